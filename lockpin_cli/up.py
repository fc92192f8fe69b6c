"""`lockpin up`: checks the configuration, then becomes the proxy. Knows how it is started, not what it does."""

from __future__ import annotations

import difflib
import errno
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lockpin_cli.commands import Command
from lockpin_cli.inputs import load_config, price_table
from lockpin_cli.options import ConfigOption, config_path, new_app
from lockpin_core.config import option_names
from lockpin_core.errors import CommandError, ConfigError
from lockpin_core.names import shown

app = new_app()

_PREFIX = "lockpin_"  # of the proxy's options
HOST = "127.0.0.1"
_TRIED = 100  # ports after one that is in use

# What the help shows of each flag: what it takes, and what holds without it. All others of `option_names` are for
# features that are not in this version; they are read all the same, and answered.
SHOWN = {
    "mode": ("solo|team", "solo"),
    "daily_usd": ("USD", "25"),
    "ledger": ("sqlite:///PATH", "a file in the user's data folder"),
    "durability": ("full|normal", "full"),
    "timezone": ("ZONE", "UTC"),
    "charge_failed": ("true|false", "true"),
    "max_request_mb": ("MB", "64"),
    "drain": ("DURATION", "60s"),
    "task_default": ("NAME", "default"),
    "task_budget_usd": ("USD", "no limit"),
    "task_from_session": ("true|false", "true"),
    "fit_output": ("true|false", "true"),
    "fit_output_max": ("TOKENS", "32000"),
    "fit_floor": ("TOKENS", "4096"),
    "refusal": ("auto|lockpin|provider", "auto"),
    "queue_wait": ("DURATION", "30s"),
    "degrade": ("off", "as degrade_at and those after it say"),
    "degrade_at": ("RATIO", "0.8"),
    "degrade_output_floor": ("TOKENS", "256"),
    "degrade_trim": ("true|false", "true"),
    "degrade_cache_5m": ("true|false", "true"),
    "landing_calls": ("COUNT", "0"),
    "landing_max_output_tokens": ("TOKENS", "1024"),
    "approvals_wait": ("DURATION", "120s"),
    "breaker_usd": ("USD", "no breaker"),
    "breaker_window": ("DURATION", "60s"),
    "breaker_cooldown": ("DURATION", "5m"),
    "breaker_by": ("task|key|both", "task"),
    "loop_repeats": ("COUNT", "20"),
    "loop_action": ("ask|warn|stop|off", "ask"),
    "retry_attempts": ("COUNT", "1"),
    "retry_base": ("DURATION", "500ms"),
    "retry_max": ("DURATION", "20s"),
    "retry_after_max": ("DURATION", "30s"),
    "hold_for_background": ("DURATION", "24h"),
    "hold_for_batch": ("DURATION", "48h"),
}


class UpCommand(Command):
    """Lists those of the configuration's flags in its help whose features are in this version."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Add the flags with what they take and what holds without them."""
        paths = option_names()
        rows = [
            (f"{_flag(name)} {kind}", f"{'.'.join(paths[name])} of lockpin.yaml; else {usual}")
            for name, (kind, usual) in SHOWN.items()
        ]
        with formatter.section("Flags that win over lockpin.yaml"):
            formatter.write_dl(rows)


@dataclass(frozen=True, slots=True)
class Start:
    """A process to become."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


# Flags of the configuration are none of typer's, so they come as words.
@app.command(cls=UpCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def up(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="PORT", help="Where to listen.")] = 8080,
    listen_host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="On which address; another than this machine's own for mode: team.")
    ] = HOST,
    workers: Annotated[int, typer.Option(hidden=True)] = 1,
    config: ConfigOption = None,
) -> None:
    """Start the proxy. Ctrl-C stops it: running calls may end within `drain`; again ends at once.

    Example: lockpin up --port 8080 --daily-usd 10
    """
    # A Ctrl-C waits until the proxy can answer it, or it would print what it was importing: the mask is inherited.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if workers != 1:
        raise typer.BadParameter("more than one worker is not in this version", context, param_hint="--workers")
    flags = read_flags(context.args)
    _check(context, config, flags)
    check_port(port, host=listen_host)
    file, root = config_path(context, config), Path(__file__).parent.parent
    start = proxy(port, file, flags, root, os.environ, host=listen_host)
    sys.stdout.flush()
    os.execve(start.arguments[0], start.arguments, start.environment)


def read_flags(words: Sequence[str]) -> dict[str, str]:
    """Read `--daily-usd 10` and `--daily-usd=10` into option names and values. Wrong use otherwise."""
    names = {_flag(name): name for name in option_names()}
    flags: dict[str, str] = {}
    left = list(words)
    while left:
        flag, equals, value = left.pop(0).partition("=")
        if flag not in names:
            raise typer.BadParameter(_unknown(flag, names), param_hint=flag)
        if not equals and not left:
            raise typer.BadParameter("a value must follow", param_hint=flag)
        if names[flag] in flags:
            raise typer.BadParameter("it is there twice; once is allowed", param_hint=flag)
        flags[names[flag]] = value if equals else left.pop(0)
    return flags


def check_port(port: int, command: str = "lockpin up", *, host: str = HOST) -> None:
    """Raise CommandError with a port that is free for the command where this one cannot be listened on."""
    fault = _bind(port, host)
    if fault is None:
        return
    if fault.errno == errno.EADDRNOTAVAIL or isinstance(fault, socket.gaierror):
        raise CommandError(
            f"{shown(host, 80)} is no address of this machine; 127.0.0.1, or 0.0.0.0 for all, is allowed"
        )
    free = free_port(port + 1 if port >= 1024 else 8080)
    what = "is in use" if fault.errno == errno.EADDRINUSE else f"cannot be listened on: {fault.strerror}"
    way = f"start with: {command} --port {free}" if free else "another one is allowed"
    raise CommandError(f"port {port} {what}; {way}")


def free_port(first: int) -> int | None:
    """Find a port that can be listened on, the first from there on; None: none of a hundred can."""
    return next((port for port in range(first, min(first + _TRIED, 65536)) if _bind(port) is None), None)


def _bind(port: int, host: str = HOST) -> OSError | None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the proxy does: what has ended is free
        try:
            listener.bind((host, port))
        except OSError as error:
            return error
    return None


def proxy(
    port: int, config: Path | None, flags: Mapping[str, str], root: Path, environment: Mapping[str, str], *,
    host: str = HOST,
) -> Start:  # fmt: skip
    """Say which process the proxy is. In a checkout its own packages come first, whatever is installed."""
    named = {} if config is None else {"config": str(config.absolute())}
    settings = [part for name, value in {**named, **flags}.items() for part in ("--set", f"{_PREFIX}{name}={value}")]
    # `-P`: the folder that the command is called in is no place to import from.
    where = ("--port", str(port), *(() if host == HOST else ("--host", host)))
    arguments = (sys.executable, "-P", "-m", "lockpin_addons.up", *where, *settings)
    if not (root / "addons" / "lockpin_addons").is_dir():
        return Start(arguments, dict(environment))
    folders = [str(root), str(root / "addons"), *filter(None, [environment.get("PYTHONPATH")])]
    return Start(arguments, {**environment, "PYTHONPATH": os.pathsep.join(folders)})


def _check(context: typer.Context, config: Path | None, flags: Mapping[str, str]) -> None:
    """Meet mistakes here, where they are one line, before the proxy starts."""
    load_config(context, config)
    try:
        loaded = load_config(context, config, flags)
    except ConfigError as error:  # the file alone is sound, so it is a flag
        raise typer.BadParameter(_as_typed(str(error)), context) from None
    price_table(loaded)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _as_typed(message: str) -> str:
    """Name an option as the flag that it was given by."""
    said = re.fullmatch(r"option ([a-z0-9_]+) (.*)", message)
    return message if said is None else f"{_flag(said[1])} {said[2]}"


def _unknown(flag: str, names: Mapping[str, str]) -> str:
    if not flag.startswith("-"):
        return "it is not a flag; flags such as --daily-usd 10 are allowed"
    near = difflib.get_close_matches(flag, [*names, "--port", "--config"], 1, 0.7)
    return "there is no such flag" + (f"; did you mean {near[0]}?" if near else "")
