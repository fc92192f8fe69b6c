"""`lockpin env`: the variables that send a client through the proxy and make it trust the proxy's certificate."""

from __future__ import annotations

import enum
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from lockpin_cli import completion
from lockpin_cli.authority import FOLDERS, REPLACING, Trust, stores, trust
from lockpin_cli.caller import KEY, good_caller
from lockpin_cli.changes import as_it_runs, task_name
from lockpin_cli.inputs import load_config
from lockpin_cli.listener import PORT, Health, refuse_other
from lockpin_cli.options import ConfigOption, LedgerOption, new_app
from lockpin_cli.output import say
from lockpin_cli.presence import is_there
from lockpin_core.config import Config
from lockpin_core.errors import CommandError, LockpinError
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.prices import shipped_dir
from lockpin_core.providers import Providers

app = new_app()

_NODE = "NODE_EXTRA_CA_CERTS"
_PASSWORD = "task"
_PLACEHOLDER = "lp_KEY"
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
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The task that is charged; else the default.", autocompletion=completion.tasks
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="PORT", help="Where the proxy listens.")] = PORT,
    shell: Annotated[Shell, typer.Option(help="How to write the assignments.")] = Shell.SH,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Print the variables that an agent needs to go through the proxy; in team mode with the key of $LOCKPIN_KEY.

    On any fault it prints `false`, so that what follows `&&` does not start: also where no Lockpin answers on the port
    but something else, or one that books in another ledger. Where nothing answers it warns: the proxy may start later.

    Example: eval "$(lockpin env --task fix-login)" && claude
    """
    loaded = _as_it_runs(load_config(context, config))
    answer = refuse_other(port, loaded.ledger)
    told = changes(port, loaded, task, os.environ)
    write, unset = _WRITERS[shell]
    lines = [write(name, value) for name, value in told.values.items()]
    print("\n".join([*lines, *map(unset, told.gone)]))
    notes = (
        told.note(),
        _key_note(loaded),
        _caller_note(loaded),
        _task_note(loaded, task),
        proxy_note(port, answer.health),
    )
    for note in filter(None, notes):
        say(note)


def _as_it_runs(config: Config) -> Config:
    try:
        return as_it_runs(config)
    except LockpinError:
        return config  # that the ledger cannot be read is said by a note


@dataclass(frozen=True, slots=True)
class Changes:
    """What an agent's environment must have, and what it must not."""

    values: Mapping[str, str]
    gone: Sequence[str]
    taken: Sequence[str]  # out of NO_PROXY

    def note(self) -> str | None:
        """Say what was taken out of NO_PROXY; None: nothing."""
        if not self.taken:
            return None
        return f"taken out of NO_PROXY, as it would go round the cap: {', '.join(self.taken)}"


def changes(port: int, config: Config, task: str | None, environment: Mapping[str, str]) -> Changes:
    """Say how an environment changes for an agent that goes through the proxy; the bundle of CAs is written.

    Raises LockpinError where there is no certificate of the proxy yet.
    """
    key = key_of(config, environment)
    address = proxy_url(port, task) if key is None else proxy_url(port, task or config.task.default, key)
    node = environment.get(_NODE)
    files = trust(Path.home() / ".mitmproxy", stores(environment), Path(node) if node else None)
    bypass, taken = kept_bypass(environment, Providers.load(shipped_dir()))
    # Some clients take these folders instead of the bundle; what lies there is in the bundle.
    gone = [FOLDERS] if FOLDERS in environment else []
    return Changes({**variables(address, files), **bypass}, gone, taken)


def key_of(config: Config, environment: Mapping[str, str]) -> str | None:
    """Give the key that goes into the proxy's address in team mode, or what stands for it; None in solo mode."""
    return (environment.get(KEY) or _PLACEHOLDER) if config.mode == "team" else None


def proxy_url(port: int, task: str | None, password: str = _PASSWORD) -> str:
    """Write the proxy's address with the task as its user name. Wrong use where the name is not allowed.

    In solo mode the password says nothing, but clients such as Python's own drop a user name that comes without one.
    """
    if task is None:
        return f"http://127.0.0.1:{port}"
    user = quote(task_name(task, "--task"), safe="")
    return f"http://{user}:{quote(password, safe='')}@127.0.0.1:{port}"


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


def proxy_note(port: int, found: Health) -> str | None:
    """Say that no proxy of ours answers on this machine's port, or that it refuses calls; None: all is well.

    That none answers is no fault: it may be started afterwards.
    """
    where = f"http://127.0.0.1:{port}"
    match found:
        case Health.NONE:
            return f"no proxy answers at {where}; `lockpin up{'' if port == PORT else f' --port {port}'}` starts it"
        case Health.REFUSING:
            return f"the proxy at {where} refuses calls; {where}/lockpin/healthz says why"
    return None


def _key_note(config: Config) -> str | None:
    """Say where the key goes, and from which machines the address serves; None in solo mode, or where one is known."""
    if config.mode == "solo" or os.environ.get(KEY):
        return None
    return (
        f"put a key in the place of {_PLACEHOLDER}, or set {KEY} first (`lockpin key create --user NAME` makes one); "
        "on another machine, put this one's name in the place of 127.0.0.1"
    )


def _caller_note(config: Config) -> str | None:
    """Say that the key is not good; None: it is, or nobody can say here."""
    try:
        if config.mode == "team" and is_there(config.ledger):
            with LedgerReader(config.ledger) as reader:
                good_caller(reader, config, os.environ)
    except CommandError as error:
        return f"{error}; calls with it are refused"
    except LockpinError:
        return None  # the task's note says it
    return None


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
    owner = " --user ID" if config.mode == "team" and (terms is None or terms.user is None) else ""
    command = f"`lockpin task new {shlex.quote(name)} --budget USD{owner}`"
    if terms is not None and terms.closed:
        return f'task "{name}" is closed, so its calls are refused; {command} opens it again'
    if config.task_default().limit is None and (terms is None or terms.limit_nano is None):
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
