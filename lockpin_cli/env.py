"""`lockpin env`: the variables that send a client through the proxy and make it trust the proxy's certificate."""

from __future__ import annotations

import enum
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from lockpin_cli.authority import Trust, public_stores, trust
from lockpin_cli.changes import task_name
from lockpin_cli.inputs import load_config
from lockpin_cli.options import ConfigOption, new_app
from lockpin_core.prices import shipped_dir
from lockpin_core.providers import Providers

app = new_app()

_SINGLE_QUOTES = "'\u2018\u2019\u201a\u201b"  # PowerShell takes all of these for the end of a text


class Shell(enum.StrEnum):
    """Whose way of writing an assignment to print."""

    SH = "sh"
    FISH = "fish"
    POWERSHELL = "powershell"


@app.command()
def env(
    context: typer.Context,
    task: Annotated[str | None, typer.Option(help="The task that is charged; else the default one.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="PORT", help="Where the proxy listens.")] = 8080,
    shell: Annotated[Shell, typer.Option(help="How to write the assignments.")] = Shell.SH,
    config: ConfigOption = None,
) -> None:
    """Print the variables that an agent needs to go through the proxy.

    Example: eval "$(lockpin env --task fix-login)"
    """
    load_config(context, config)
    address = proxy_url(port, task)
    files = trust(Path.home() / ".mitmproxy", public_stores())
    bypass, taken = kept_bypass(os.environ, Providers.load(shipped_dir()))
    write = _WRITERS[shell]
    for name, value in {**variables(address, files), **bypass}.items():
        print(write(name, value))
    if taken:
        print(f"lockpin: taken out of NO_PROXY, as it would go round the cap: {', '.join(taken)}", file=sys.stderr)


def proxy_url(port: int, task: str | None) -> str:
    """Write the proxy's address with the task as its user name. Wrong use where the name is not allowed."""
    if task is None:
        return f"http://127.0.0.1:{port}"
    user = quote(task_name(task, "--task"), safe="")
    return f"http://{user}@127.0.0.1:{port}"


def variables(address: str, files: Trust) -> dict[str, str]:
    """Give one environment that serves every client."""
    bundle = str(files.bundle)
    return {
        **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy"), address),
        "NODE_EXTRA_CA_CERTS": str(files.authority),  # adds to its store; the others replace theirs
        **dict.fromkeys(("SSL_CERT_FILE", "CODEX_CA_CERTIFICATE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"), bundle),
        "NODE_USE_ENV_PROXY": "1",
    }


def kept_bypass(environment: Mapping[str, str], providers: Providers) -> tuple[dict[str, str], list[str]]:
    """Take what names a provider's host out of NO_PROXY and no_proxy; give what is left, and what was taken."""
    kept: dict[str, str] = {}
    taken: list[str] = []
    for name in ("NO_PROXY", "no_proxy"):
        entries = [entry.strip() for entry in environment.get(name, "").split(",")]
        bypassing = [entry for entry in entries if entry and _is_providers(entry, providers)]
        if bypassing:
            kept[name] = ",".join(entry for entry in entries if entry and entry not in bypassing)
            taken += [entry for entry in bypassing if entry not in taken]
    return kept, taken


def _is_providers(entry: str, providers: Providers) -> bool:
    """Say whether a NO_PROXY entry covers a provider's host: by name, as the end of it, or as the name of all."""
    if entry.count(":") > 1:
        return False  # an IPv6 address
    name = entry.lower().removeprefix("*").removeprefix(".").partition(":")[0].removesuffix(".")
    labels = name.split(".") if name else []
    return any(_covers(labels, host.split(".")) for provider in providers.all() for host in provider.hosts)


def _covers(labels: Sequence[str], host: Sequence[str]) -> bool:
    """Compare from the right; a host's own labels may be patterns."""
    end = host[len(host) - len(labels) :]
    return len(labels) <= len(host) and all(map(fnmatchcase, labels, end))


def _sh(name: str, value: str) -> str:
    return f"export {name}={shlex.quote(value)}"


def _fish(name: str, value: str) -> str:
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"set -gx {name} '{quoted}';"


def _powershell(name: str, value: str) -> str:
    quoted = "".join(char * 2 if char in _SINGLE_QUOTES else char for char in value)
    return f"$env:{name} = '{quoted}'"


_WRITERS: Mapping[Shell, Callable[[str, str], str]] = {
    Shell.SH: _sh, Shell.FISH: _fish, Shell.POWERSHELL: _powershell,
}  # fmt: skip
