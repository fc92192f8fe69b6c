"""`lockpin.yaml` and the options over it, as frozen data. Knows every key by name; knows no clock and no ledger.

A key whose feature is not built is an error and never ignored, unless its value is the default or turns it off.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from lockpin_core.budgets import Budget
from lockpin_core.config_budgets import daily_budget, own_budget, read_budgets
from lockpin_core.config_files import content
from lockpin_core.config_include import read_policies
from lockpin_core.config_keys import read_keys
from lockpin_core.config_near_cap import SECTIONS as NEAR_CAP
from lockpin_core.config_near_cap import NearCap, read_near_cap
from lockpin_core.config_oidc import read_oidc
from lockpin_core.config_pricing import read_pricing
from lockpin_core.config_values import (
    Reader,
    Section,
    amount,
    built,
    duration_ms,
    is_meant,
    keyed,
    label,
    listed,
    not_built,
    one_of,
    optional,
    ratios,
    section,
    text,
    truth,
    whole,
    wrong,
    zone,
)
from lockpin_core.config_yaml import Node, Plain, Table, Text, Where, located, read
from lockpin_core.money import Money
from lockpin_core.oidc import Issuer

FILE_NAME = "lockpin.yaml"
DAILY_USD = Money(25 * 10**9)
_ADDRESS = re.compile(r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/?#@\\:\[\]%]+)(:(?P<port>[0-9]{1,5}))?")
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")

_SECTIONS = {
    "task": ("default", "budget_usd", "alert_at", "from_session"),
    "fit": ("output", "output_max", "floor"),
    "queue": ("wait",),
    **NEAR_CAP,
    "hold_for": ("background", "batch"),
}
_SCALARS = (
    *("mode", "ledger", "durability", "timezone", "daily_usd", "subscription", "refusal", "estimates"),
    *("hidden_input_tokens", "max_estimated_output_tokens", "charge_failed", "on_fault", "max_request_mb", "drain"),
)
_LISTS = ("budgets", "allow_uncapped", "allow_hosts", "alerts", "include")
_TABLES = ("pricing", "models", "upstreams", "fallbacks", "cheaper", "keys", "oidc")
_TOP = (*_SCALARS, *_SECTIONS, *_LISTS, *_TABLES)
_UNBUILT = ("alerts", "hidden_input_tokens", "max_estimated_output_tokens")
_BUILT = tuple(key for key in _TOP if key not in _UNBUILT)  # what an error names as allowed


@dataclass(frozen=True, slots=True)
class Places:
    """Where files are looked for when nobody names them."""

    here: Path
    config: Path
    data: Path


@dataclass(frozen=True, slots=True)
class TaskKeys:
    """What a task gets when nobody says more."""

    default: str = "default"
    budget_usd: Money | None = None
    alert_at: tuple[str, ...] = ("0.75", "0.95")
    from_session: bool = True


@dataclass(frozen=True, slots=True)
class Fit:
    """How an output limit is set where a request has none, and how far it may be lowered."""

    output: bool = True
    output_max: int = 32000
    floor: int = 4096


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the calls of a host go instead."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration that can be run."""

    file: Path | None  # None: no file was found, all are defaults and options
    ledger: Path  # the SQLite file
    mode: str = "solo"
    durability: str = "full"
    timezone: str = "UTC"
    daily_usd: Money | None = DAILY_USD
    task: TaskKeys = TaskKeys()
    pricing: Mapping[str, Plain] = field(default_factory=dict)  # scalars as text, for PriceTable.load
    models: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # provider → alias → priced model
    subscription: str = "list"
    budgets: tuple[Budget, ...] = ()  # those under `budgets:`
    oidc: Issuer | None = None  # team mode: whose tokens stand for a key
    provider_env: Mapping[str, str] = field(default_factory=dict)  # provider → variable with its real key
    refusal: str = "auto"
    allow_uncapped: tuple[str, ...] = ()  # globs of host and path
    allow_hosts: tuple[str, ...] = ()  # team mode: what may be reached besides providers; empty: any public host
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)  # canonical host → where it goes
    fit: Fit = Fit()
    near_cap: NearCap = field(default_factory=NearCap)
    queue_wait_ms: int = 30_000  # 0: no waiting
    hold_for_ms: int = 86_400_000  # of background calls, after their exchange
    hold_for_batch_ms: int = 172_800_000  # of batches
    estimates: str = "hold"
    charge_failed: bool = True
    on_fault: str = "block"
    max_request_mb: int = 64
    drain_ms: int = 60_000
    include: tuple[Path, ...] = ()  # gateway policy files whose prices and budgets are among those above

    def all_budgets(self) -> tuple[Budget, ...]:
        """Give every budget in force but the tasks' own: `budgets:`, and the one of `daily_usd` first."""
        daily = () if self.daily_usd is None else (daily_budget(self.daily_usd, self.timezone),)
        return (*daily, *self.budgets)

    def task_default(self) -> Budget:
        """Give the budget of a task that has none by command; it is for calls without a user, which a team has not."""
        return own_budget(self.task.budget_usd if self.mode == "solo" else None, self.task.alert_at, self.timezone)

    def files(self) -> tuple[Path, ...]:
        """Give every file that this was read from."""
        return () if self.file is None else (self.file, *self.include, *self.near_cap.files)


def usual_places() -> Places:
    """Give the folders that this system keeps for a user's configuration and data."""
    config = platformdirs.user_config_path("lockpin", appauthor=False)
    return Places(Path(), config, platformdirs.user_data_path("lockpin", appauthor=False))


def updates_dir() -> Path:
    """Give the folder of later prices than the shipped ones, as `lockpin prices update` writes them."""
    return usual_places().config / "prices"


def option_names() -> Mapping[str, tuple[str, ...]]:
    """Give the flat name of every scalar and its path: "fit_output_max" → ("fit", "output_max")."""
    nested = [(name, key) for name, keys in _SECTIONS.items() for key in keys if key != "alert_at"]
    return {"_".join(path): path for path in [*((key,) for key in _SCALARS), ("degrade",), *nested]}


def load(
    path: Path | None,
    *,
    options: Mapping[str, str] | None = None,
    env: Mapping[str, str],
    places: Places | None = None,
) -> Config:
    """Read the configuration; no file is needed, `options` (flat name → text) win over it.

    `path` None: `$LOCKPIN_CONFIG`, `./lockpin.yaml`, then the user's folder. Raises ConfigError, always one line.
    """
    places = places or usual_places()
    file = find_file(path, env=env, places=places)
    return parse(None if file is None else content(file), file, options=options, places=places)


def parse(
    words: str | None,
    file: Path | None,
    *,
    options: Mapping[str, str] | None = None,
    places: Places | None = None,
    included: Mapping[Path, str] | None = None,
) -> Config:
    """Read a configuration from a file's content; None: there is no file. Raises ConfigError.

    `included` are the contents of the files under `include:`; None: they are read now.
    """
    tree = Table(Where(FILE_NAME, 1)) if words is None else read(words, str(file), _refuse_foreign)
    top = section(tree, _TOP, options=_options(options or {}), unbuilt=_UNBUILT)
    return _config(top, file, places or usual_places(), included)


def _refuse_foreign(keys: Sequence[str], where: Where) -> None:
    # A `key:` is not taken for our `keys`: in another program's file it is a secret as a rule.
    likely = [key for key in _TOP if key != "keys"]
    if not any(key == "keys" or is_meant(key, likely) for key in keys):
        raise where.error(f"has no key that is one of a configuration; allowed are {', '.join(_BUILT)}")


def find_file(path: Path | None, *, env: Mapping[str, str], places: Places) -> Path | None:
    """Find the file to read; None where nobody names one and none is there."""
    named = path or (Path(env["LOCKPIN_CONFIG"]) if env.get("LOCKPIN_CONFIG") else None)
    if named is not None:
        return named
    usual = (places.here / FILE_NAME, places.config / FILE_NAME)
    return next((file for file in usual if file.exists()), None)


def _options(options: Mapping[str, str]) -> dict[str, Text]:
    names = option_names()
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"allowed are {', '.join(names)}"
            raise located("option", None, f"{name} is not known; {hint}")
    return {".".join(names[name]): Text(Where("option", None, name), value) for name, value in options.items()}


def _config(top: Section, file: Path | None, places: Places, included: Mapping[Path, str] | None) -> Config:
    _check_not_built(top)
    policies = read_policies(top.entries.get("include"), file, included)
    mode = top.get("mode", one_of("solo", "team"), "solo")
    usual_usd = DAILY_USD if mode == "solo" else None  # a team says its own limits
    timezone, usual = top.get("timezone", zone, "UTC"), places.data / "ledger.sqlite3"
    hold_for = top.section("hold_for", _SECTIONS["hold_for"])
    return Config(
        file=file,
        ledger=top.get("ledger", _ledger(usual), usual),
        mode=mode,
        durability=top.get("durability", one_of("full", "normal"), "full"),
        timezone=timezone,
        daily_usd=top.get("daily_usd", optional(amount), usual_usd),
        task=_task(top.section("task", _SECTIONS["task"])),
        pricing=read_pricing(top.entries.get("pricing"), *policies.pricing),
        models=top.get("models", keyed(keyed(text)), {}),
        subscription=top.get("subscription", built(one_of("list", "free"), "list"), "list"),
        budgets=read_budgets(top.get("budgets", listed(_as_is), ()), timezone, policies.budgets),
        oidc=_oidc(top, mode),
        provider_env=top.get("keys", read_keys, {}),
        refusal=top.get("refusal", one_of("auto", "lockpin", "provider"), "auto"),
        allow_uncapped=top.get("allow_uncapped", listed(_host_glob), ()),
        allow_hosts=_allow_hosts(top, mode),
        upstreams=top.get("upstreams", _upstreams, {}),
        fit=_fit(top.section("fit", _SECTIONS["fit"])),
        near_cap=read_near_cap(top, file, included),
        queue_wait_ms=top.section("queue", _SECTIONS["queue"]).get("wait", duration_ms, 30_000),
        hold_for_ms=hold_for.get("background", duration_ms, 86_400_000),
        hold_for_batch_ms=hold_for.get("batch", duration_ms, 172_800_000),
        estimates=top.get("estimates", built(one_of("hold", "measured"), "hold"), "hold"),
        charge_failed=top.get("charge_failed", truth, True),
        on_fault=top.get("on_fault", built(one_of("block", "allow"), "block"), "block"),
        max_request_mb=top.get("max_request_mb", whole(1, 4096), 64),
        drain_ms=top.get("drain", duration_ms, 60_000),
        include=policies.files,
    )


def _check_not_built(top: Section) -> None:
    top.empty("alerts")
    top.only("hidden_input_tokens", whole(0), 200_000)
    top.only("max_estimated_output_tokens", whole(1), 128_000)


def _task(keys: Section) -> TaskKeys:
    usual = TaskKeys()
    return TaskKeys(
        default=keys.get("default", label, usual.default),
        budget_usd=keys.get("budget_usd", optional(amount), usual.budget_usd),
        alert_at=keys.get("alert_at", ratios, usual.alert_at),
        from_session=keys.get("from_session", truth, usual.from_session),
    )


def _fit(keys: Section) -> Fit:
    usual = Fit()
    fit = Fit(
        output=keys.get("output", truth, usual.output),
        output_max=keys.get("output_max", whole(1), usual.output_max),
        floor=keys.get("floor", whole(1), usual.floor),
    )
    if fit.floor > fit.output_max:
        raise keys.where.error(
            f"has a floor of {fit.floor} above output_max of {fit.output_max}; at most that is allowed"
        )
    return fit


def _ledger(usual: Path) -> Reader[Path]:
    """Read where the ledger is. Only an absolute path: another folder to start from must not mean an empty ledger."""
    allowed = "sqlite or sqlite:///absolute/path is allowed"

    def read_path(node: Node) -> Path:
        words = text(node)
        if words == "sqlite":
            return usual
        if words.startswith(("postgresql://", "postgres://")):
            raise not_built(node)
        path = re.fullmatch(r"sqlite://(/[^\0]*[^/\0])", words)
        if path is None:
            raise wrong(node, allowed)
        return Path("/" + path[1].lstrip("/"))

    return read_path


def _oidc(top: Section, mode: str) -> Issuer | None:
    found = top.get("oidc", optional(read_oidc), None)
    if found is not None and mode != "team":
        raise top.entries["oidc"].where.error("is for mode: team; in solo mode nobody is asked who calls")
    return found


def _allow_hosts(top: Section, mode: str) -> tuple[str, ...]:
    everywhere: tuple[str, ...] = ()
    found = top.get("allow_hosts", listed(_host), everywhere)
    if found and mode != "team":
        raise top.entries["allow_hosts"].where.error("is for mode: team; solo mode tunnels to any host")
    return found


def _host(node: Node) -> str:
    """Read a host, an address, or a glob of hosts, in its one form."""
    import ipaddress

    from lockpin_core.addresses import canonical_host

    host = canonical_host(text(node))
    is_address = False
    with contextlib.suppress(ValueError):
        is_address = bool(ipaddress.IPv6Address(host))
    if not is_address and not re.fullmatch(r"[a-z0-9*_-]{1,63}(\.[a-z0-9*_-]{1,63})*", host):
        raise wrong(node, "a host such as github.com or *.github.com, or an address, is allowed")
    return host


def _host_glob(node: Node) -> str:
    host, slash, path = text(node).partition("/")
    if not host or not slash or ":" in host or any(char.isspace() for char in host + path):
        raise wrong(node, "a host and path, such as api.openai.com/v1/videos*, is allowed")
    return f"{host.lower()}/{path}"


def _upstreams(node: Node) -> Mapping[str, Upstream]:
    from lockpin_core.addresses import canonical_host  # most have no upstreams, and commands must start fast

    upstreams: dict[str, Upstream] = {}
    for name, upstream in keyed(_as_is)(node).items():
        host = canonical_host(name)
        if not re.fullmatch(r"[a-z0-9.-]+", host):
            raise upstream.where.error("is no host; a host name such as api.openai.com is allowed")
        if host in upstreams:
            raise upstream.where.error("names a host for the second time; one is allowed")
        upstreams[host] = _upstream(upstream)
    return upstreams


def _upstream(node: Node) -> Upstream:
    allowed = "scheme://host or scheme://host:port with http or https, and no more, is allowed"
    found = _ADDRESS.fullmatch(text(node))
    host = None if found is None else _upstream_host(found["host"])
    if found is None or host is None:
        raise wrong(node, allowed)
    port = int(found["port"] or (443 if found["scheme"] == "https" else 80))
    if not 1 <= port <= 65535:
        raise wrong(node, "a port from 1 to 65535 is allowed")
    return Upstream(found["scheme"], host, port)


def _upstream_host(written: str) -> str | None:
    """Give the name or address in its one form, without brackets; None: it is none."""
    import ipaddress

    from lockpin_core.addresses import canonical_host

    host = canonical_host(written)
    try:
        if written.startswith("["):
            return str(ipaddress.IPv6Address(written[1:-1]))
        if host.rpartition(".")[2].isdigit():
            return str(ipaddress.IPv4Address(host))
    except ValueError:
        return None
    return host if len(host) <= 253 and _HOST.fullmatch(host) else None


def _as_is(node: Node) -> Node:
    return node
