"""`lockpin up`: our own mitmproxy master with only the addons that a proxy needs, so that it starts and runs lean.

Run as `python -m lockpin_addons.up --port 8080 --set lockpin_daily_usd=10`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mitmproxy.addons import core, disable_h2c, dns_resolver, errorcheck, next_layer, proxyserver, tlsconfig
from mitmproxy.master import Master
from mitmproxy.options import Options

from lockpin_addons import bundle, guard, users


def main(arguments: Sequence[str] | None = None) -> None:
    """Start, serve until a signal, end with status 0; a start that fails is one line and status 1."""
    parser = argparse.ArgumentParser(prog="lockpin up")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--host", default="")
    parser.add_argument("--confdir", default="~/.mitmproxy")
    parser.add_argument("--until-unused", nargs=2, type=Path, metavar=("RUN", "USERS"))
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=VALUE")
    told = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        # `lockpin up` holds a Ctrl-C back while all this is imported; now it comes.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        asyncio.run(_serve(told))
    except KeyboardInterrupt:
        sys.exit(130)


async def _serve(told: argparse.Namespace) -> None:
    master = Master(Options(confdir=told.confdir, listen_host=told.host, listen_port=told.port))
    with guard.or_end_process():
        master.addons.add(*_addons())
        bundle.install(master, _settings(told.settings)).by_command = True
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, master)
    if told.until_unused is not None:
        run, shared = told.until_unused
        users.await_last(run, shared, lambda: loop.call_soon_threadsafe(_stop, master))
    await master.run()


def _addons() -> list[object]:
    return [
        core.Core(),
        disable_h2c.DisableH2C(),
        proxyserver.Proxyserver(),
        dns_resolver.DnsResolver(),
        next_layer.NextLayer(),
        tlsconfig.TlsConfig(),
        errorcheck.ErrorCheck(),
    ]


def _settings(pairs: Sequence[str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise bundle.StartError(f"--set {name} has no value; NAME=VALUE is allowed")
        settings[name] = value
    return settings


def _stop(master: Master) -> None:
    master.shutdown()  # looked up here: it is the drain's by now


if __name__ == "__main__":
    main()
