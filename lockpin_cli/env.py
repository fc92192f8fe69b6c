"""`lockpin env`: the variables that send a client through the proxy and make it trust the proxy's certificate."""

from __future__ import annotations

import enum
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from lockpin_cli.authority import FOLDERS, REPLACING, Trust, stores, trust
from lockpin_cli.changes import task_name
from lockpin_cli.inputs import load_config
from lockpin_cli.options import ConfigOption, new_app
from lockpin_cli.output import say
from lockpin_cli.presence import is_there
from lockpin_core.config import Config
from lockpin_core.errors import LockpinError
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.prices import shipped_dir
from lockpin_core.providers import Providers

app = new_app()

_NODE = "NODE_EXTRA_CA_CERTS"
_PORT = 8080
_ANSWER_S = 0.5  # a proxy on this machine answers at once
_SINGLE_QUOTES = "'\u2018\u2019\u201a\u201b"  # PowerShell takes all of these for the end of a text


class Shell(enum.StrEnum):
    """Whose way of writing an assignment to print."""

    SH = "sh"
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


@app.command()
def env(
    context: typer.Context,
    task: Annotated[str | None, typer.Option(help="The task that is charged; else the default one.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="PORT", help="Where the proxy listens.")] = _PORT,
    shell: Annotated[Shell, typer.Option(help="How to write the assignments.")] = Shell.SH,
    config: ConfigOption = None,
) -> None:
    """Print the variables that an agent needs to go through the proxy.

    On any fault it prints `false`, so that what follows `&&` does not start.

    Example: eval "$(lockpin env --task fix-login)" && claude
    """
    loaded = load_config(context, config)
    address = proxy_url(port, task)
    node = os.environ.get(_NODE)
    files = trust(Path.home() / ".mitmproxy", stores(os.environ), Path(node) if node else None)
    bypass, taken = kept_bypass(os.environ, Providers.load(shipped_dir()))
    write, unset = _WRITERS[shell]
    lines = [write(name, value) for name, value in {**variables(address, files), **bypass}.items()]
    # Some clients take these folders instead of the bundle; what lies there is in the bundle.
    lines += [unset(FOLDERS)] if FOLDERS in os.environ else []
    print("\n".join(lines))
    if taken:
        say(f"taken out of NO_PROXY, as it would go round the cap: {', '.join(taken)}")
    for note in filter(None, (_task_note(loaded, task), proxy_note(port))):
        say(note)


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
        _NODE: str(files.node),  # adds to its store; the others replace theirs
        **dict.fromkeys(REPLACING, bundle),
        "NODE_USE_ENV_PROXY": "1",
    }


_LOOPBACK = ("127.0.0.1", "localhost")


def proxy_note(port: int) -> str | None:
    """Say that no proxy of ours answers on this machine's port; None: one does."""
    from http.client import HTTPConnection, HTTPException  # slow to import; it asks directly, through no proxy

    where, start = f"http://127.0.0.1:{port}", f"`lockpin up{'' if port == _PORT else f' --port {port}'}` starts it"
    connection = HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/lockpin/healthz")
        status = connection.getresponse().status
    except (OSError, HTTPException):
        return f"no proxy answers at {where}; {start}"
    finally:
        connection.close()
    if status == 503:
        return f"the proxy at {where} refuses calls; {where}/lockpin/healthz says why"
    return None if status == 200 else f"what answers at {where} is no Lockpin; {start}, on another port"


def _task_note(config: Config, task: str | None) -> str | None:
    """Say that a task has no budget of its own, or is closed; None: all is well, or no task is named."""
    if task is None:
        return None
    name, terms = task_name(task, "--task"), None
    try:
        if is_there(config.ledger):
            with LedgerReader(config.ledger) as reader:
                terms = reader.task_terms().get(name)
    except LockpinError as error:
        return str(error)
    command = f"`lockpin task new {shlex.quote(name)} --budget USD`"
    if terms is not None and terms.closed:
        return f'task "{name}" is closed, so its calls are refused; {command} opens it again'
    if config.task.budget_usd is None and (terms is None or terms.limit_nano is None):
        return f'task "{name}" has no budget of its own; {command} makes one'
    return None


def kept_bypass(environment: Mapping[str, str], providers: Providers) -> tuple[dict[str, str], list[str]]:
    """Take what names a provider's host out of NO_PROXY and no_proxy; give both as they should be, and what was taken.

    This machine itself is in them: a base URL on the proxy's port is called as it stands, with the task that it names.
    """
    kept: dict[str, str] = {}
    taken: list[str] = []
    for name in ("NO_PROXY", "no_proxy"):
        entries = [entry.strip() for entry in environment.get(name, "").split(",") if entry.strip()]
        bypassing = [entry for entry in entries if _is_providers(entry, providers)]
        staying = [entry for entry in entries if entry not in bypassing]
        kept[name] = ",".join([*staying, *(own for own in _LOOPBACK if own not in staying)])
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


_Writers = tuple[Callable[[str, str], str], Callable[[str], str]]
_POSIX: _Writers = (_sh, "unset {}".format)
_WRITERS: Mapping[Shell, _Writers] = {
    **dict.fromkeys((Shell.SH, Shell.BASH, Shell.ZSH), _POSIX),
    Shell.FISH: (_fish, "set -e {};".format),
    Shell.POWERSHELL: (_powershell, "Remove-Item Env:{} -ErrorAction SilentlyContinue".format),
}
