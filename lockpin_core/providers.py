"""Which host and path is whose, and which of them cost money. Data from `pricing/*.yaml`; no prices, no other I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from lockpin_core.addresses import (
    RESIDUE,
    canonical_host,
    canonical_path,
    hides,
    host_pattern,
    is_below,
    matches,
    normal,
    path_patterns,
)
from lockpin_core.errors import PriceError
from lockpin_core.provider_files import choice, read_files, table, text, texts, whole

type OutputFields = tuple[tuple[str, tuple[str, ...]], ...]  # the first that matches; first what Lockpin adds

_OUTPUT_FIELDS = ("max_tokens", "max_completion_tokens")
_FREE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})  # they read or remove; no provider bills them
_GLOBAL, _LOCATION = "global", re.compile("/locations/([^/]+)")
_COLON = re.compile("%3A", re.IGNORECASE)  # a colon parts no segments, so a path reads the same with it coded
_ARN_SLASH = re.compile("(/arn:[^/%]+)%2F", re.IGNORECASE)  # nor does the slash in a name of Amazon's, coded or not
_KEPT_ROUTES, _KEPT_PATH = 512, 256  # how many judged paths a provider remembers, of at most so many characters
_KEYS = frozenset(
    {
        *("provider", "base", "hosts", "host_geos", "metered_below", "wires", "free", "uploads", "billed_errors"),
        *("max_tps", "output_field", "output_fields", "include_usage", "error_shape", "polls", "key_header"),
        *(
            "output_beside_limit",
            "output_settable",
            "thinking_budget",
            "tool_limit",
            "deployments",
            "plan",
            "price_cap",
            "prompt_first",
            "prices_from",
            "resale_fees",
            "cost_headers",
            "cost_params",
            "location_geo",
        ),
        *("tier_names", "unsaid_tiers", "unsaid_geos", "unlisted_geo", "models"),
    }
)


@dataclass(frozen=True, slots=True)
class Metered:
    """A call that costs money, in the format that `wire` names; `model` where the path names it, case kept."""

    wire: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Free:
    """A call that cannot cost anything."""

    upgrades: bool = field(default=False, compare=False)  # nor can an Upgrade there: the path is no provider's
    polls: str | None = field(default=None, compare=False)  # the wire of a reply that may state an earlier call's usage


@dataclass(frozen=True, slots=True)
class Unknown:
    """A call that might cost money and cannot be metered."""


type Route = Metered | Free | Unknown


@dataclass(frozen=True, slots=True)
class BilledError:
    """A 4xx that this provider bills; `code` None: whatever its code."""

    status: int
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """One vendor's hosts and paths."""

    name: str
    base: str  # where base-URL mode sends calls: scheme and host
    hosts: tuple[str, ...]  # exact, or with `*` for one or more characters of one label
    wires: Mapping[str, str] = field(default_factory=dict)  # canonical path → wire; see `path_patterns`
    polls: Mapping[str, str] = field(default_factory=dict)  # "METHOD /path" → wire of the reply
    free: tuple[tuple[str, str], ...] = ()  # (method, pattern)
    uploads: tuple[tuple[str, str], ...] = ()  # those of them that bring a file
    metered_below: tuple[str, ...] = ()  # when set, every path elsewhere is free
    host_geos: Mapping[str, str] = field(default_factory=dict)  # host → region that its prices are for
    location_geo: str | None = None  # the same for a path that names a location, on a host that stands for none
    billed_errors: tuple[BilledError, ...] = ()
    max_tps: int = 400  # no model of theirs generates faster, in tokens a second
    output_field: str = "max_tokens"  # what Lockpin adds when a request has no output limit
    output_fields: OutputFields = ()  # which it obeys, by globs of models or billed paths; none: `output_field` alone
    error_shape: str = "openai"  # whose error shape a refusal takes where no wire is called
    key_header: str = "authorization"  # where it takes a key; there as a bearer token
    include_usage: bool = True  # the host accepts `stream_options.include_usage`
    output_settable: bool = True  # the host accepts an output limit, and a limit on tool calls
    output_beside_limit: bool = False  # reasoning is billed beside the output limit
    thinking_budget: tuple[str, ...] = ()  # globs of models that think no longer beside the limit than it says
    keeps_tool_limit: bool = False  # a page of theirs says that they keep to `max_tool_calls` of a Responses request
    deployments: bool = False  # what stands for the model is a name that the customer chose
    plan: bool = False  # logins here are of a plan, which bills by itself: held and charged at list price, marked
    price_cap: bool = False  # a request can say what it may cost at most (`provider.max_price`), and must: prices vary
    cost_headers: tuple[str, ...] = ()  # that change a cost or hide it, lower-case globs: a wire reads them, or refuses
    cost_params: tuple[str, ...] = ()  # such parameters of the query
    prompt_first: bool = False  # the first event of a stream states the whole prompt as it will be billed
    _routes: dict[tuple[str, str], Route] = field(default_factory=dict, init=False, repr=False, compare=False)

    def route(self, method: str, path: str) -> Route:
        """Say what a call without Upgrade is; `path` is as sent, query and all."""
        known = self._routes.get((method, path))
        if known is None:
            known = self._judged(method, path)
            if len(path) <= _KEPT_PATH and "?" not in path:  # a query may hold a key
                if len(self._routes) >= _KEPT_ROUTES:
                    self._routes.clear()
                self._routes[method, path] = known
        return known

    def _judged(self, method: str, path: str) -> Route:
        plain = normal(path)
        if method in _FREE_METHODS:
            return Free(upgrades=self._is_elsewhere(path, plain), polls=self._poll(method, plain))
        if RESIDUE.search(plain):
            return Unknown()
        lower = plain.lower()
        if self.metered_below and not is_below(lower, self.metered_below):
            return Free(upgrades=True) if self._is_elsewhere(path, plain) else Unknown()
        is_free = self._lists_free(method, path, plain, literal=True)
        if method == "POST" and not is_free and (found := self.metered(plain)) is not None:
            return found
        if not self._lists_free(method, path, plain):
            return Unknown()
        return Free(polls=self._poll(method, plain))

    def takes_upload(self, method: str, path: str) -> bool:
        """Say whether a call is a free one that brings a file, which may be large; `path` is as `route` takes it."""
        if not isinstance(self.route(method, path), Free):
            return False
        plain = normal(path)
        return any(verb == method and matches(pattern, plain) for verb, pattern in self.uploads)

    def metered(self, path: str) -> Metered | None:
        """Find the format that a POST to a path is in, whatever the case of the path; None: it is no billed path.

        `path` must be `canonical_path`'s or as much: decoded, without query.
        """
        lower = path.lower()
        if lower in self.wires:
            return Metered(self.wires[lower])
        for pattern, wire in self._patterns():
            if (match := pattern.fullmatch(path)) is not None:
                return Metered(wire, match.groupdict().get("model"))
        return None

    def limit_fields(self, path: str) -> OutputFields:
        """Say which output limits a call on this path may have that the host obeys, by globs of models."""
        by_model: list[tuple[str, tuple[str, ...]]] = []
        for key, fields in self.output_fields:
            if not key.startswith("/"):
                by_model.append((key, fields))
            elif matches(key, canonical_path(path)):
                return (*by_model, ("*", fields))
        return (*by_model, ("*", (self.output_field,)))

    def path_for(self, wire: str, model: str) -> str | None:
        """Give the path to which a call in a format goes here; None: this provider does not speak it, or its paths say
        more of a call than that.
        """
        paths = [path for path, spoken in self.wires.items() if spoken == wire]
        if written := next((path for path in paths if not re.search(r"[*{]", path)), None):
            return written
        naming = [path for path in paths if "/{model}/" in path and "*" not in path]
        return naming[0].replace("{model}", quote(model, safe="")) if len(naming) == 1 else None

    def _patterns(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        return path_patterns(tuple((path, wire) for path, wire in self.wires.items() if "*" in path or "{" in path))

    def _poll(self, method: str, plain: str) -> str | None:
        if not self.polls or RESIDUE.search(plain):
            return None
        wanted = f"{method} {plain.lower()}"
        depth = wanted.count("/")  # a poll's path is whole: what lies below it is another resource
        fits = (wire for poll, wire in self.polls.items() if poll.count("/") == depth and matches(poll, wanted))
        return next(fits, None)

    def geo_of(self, host: str, path: str = "") -> str | None:
        """Give the region whose price factor a canonical host stands for, or else the location in the path."""
        found = self._host_geo(host)
        if self.location_geo is None or found not in (None, _GLOBAL):
            return found
        place = _LOCATION.search(canonical_path(path))
        return found if place is None or place[1] == _GLOBAL else self.location_geo

    def _host_geo(self, host: str) -> str | None:
        if host in self.host_geos:
            return self.host_geos[host]
        for glob, geo in self.host_geos.items():
            if "*" in glob and host_pattern((glob,)).fullmatch(host):
                return geo
        return None

    def nearness(self, host: str) -> tuple[int, ...]:
        """Say how much of each label of a canonical host the nearest of the patterns spells out, the last label first.

        Of two vendors whose patterns it fits it is the vendor's with the larger one.
        """
        fitting = (glob for glob in self.hosts if host_pattern((glob,)).fullmatch(host))
        spelled = (tuple(len(label.replace("*", "")) for label in reversed(glob.split("."))) for glob in fitting)
        return max(spelled, default=())

    def bills(self, status: int, code: str | None) -> bool:
        """Say whether an error reply is billed all the same."""
        return any(error.status == status and error.code in (None, code) for error in self.billed_errors)

    def _is_elsewhere(self, path: str, plain: str) -> bool:
        """Say whether a path is plainly outside the folders that are metered, where only some are."""
        if not self.metered_below or RESIDUE.search(plain):
            return False
        return not is_below(plain.lower(), self.metered_below) and not hides(path, self.metered_below)

    def _lists_free(self, method: str, path: str, plain: str, *, literal: bool = False) -> bool:
        """Say whether a path is listed as free; `literal`: by an entry whose last segment is written out."""
        if _ARN_SLASH.sub(r"\1/", _COLON.sub(":", path.split("?", 1)[0])) != plain:
            return False
        listed = (pattern for verb, pattern in self.free if verb == method)
        wanted = (pattern for pattern in listed if not literal or not re.search(r"[*{]", pattern.rpartition("/")[2]))
        return any(matches(pattern, plain) for pattern in wanted)


@dataclass(frozen=True, slots=True)
class Providers:
    """All vendors, by name and by host."""

    _by_name: Mapping[str, Provider]
    _exact: Mapping[str, Provider]
    _patterns: tuple[tuple[re.Pattern[str], Provider], ...]

    @classmethod
    def load(cls, folder: Path) -> Providers:
        """Read every provider file. Raises PriceError naming the file and the entry."""
        return cls.of(_provider(file, tree) for file, tree in read_files(folder))

    @classmethod
    def of(cls, providers: Iterable[Provider]) -> Providers:
        """Index providers; raises PriceError where two claim one host."""
        by_name: dict[str, Provider] = {}
        exact: dict[str, Provider] = {}
        patterns: list[tuple[re.Pattern[str], Provider]] = []
        for provider in providers:
            by_name[provider.name] = provider
            if globs := [host for host in provider.hosts if "*" in host]:
                patterns.append((host_pattern(tuple(globs)), provider))
            for host in provider.hosts:
                if "*" not in host and exact.setdefault(host, provider) is not provider:
                    raise PriceError(f"host {host} belongs to both {exact[host].name} and {provider.name}")
        return cls(by_name, exact, tuple(patterns))

    def for_host(self, host: str) -> Provider | None:
        """Find whose host this is, in any spelling of it; None: nobody's."""
        name = canonical_host(host)
        if name in self._exact:
            return self._exact[name]
        found = [provider for pattern, provider in self._patterns if pattern.fullmatch(name)]
        return max(found, key=lambda provider: provider.nearness(name), default=None)

    def by_name(self, name: str) -> Provider | None:
        """Find a provider by the name it has in base URLs."""
        return self._by_name.get(name)

    def all(self) -> Sequence[Provider]:
        """List all providers by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]


def _provider(file: str, tree: Mapping[str, object]) -> Provider:
    unknown = sorted(set(tree) - _KEYS)
    if unknown:
        raise PriceError(f"{file}: {unknown[0]} is no key of a provider; allowed are {', '.join(sorted(_KEYS))}")
    limits = _output_fields(file, tree)
    return Provider(
        name=text(file, tree, "provider"),
        base=text(file, tree, "base"),
        hosts=tuple(texts(file, tree, "hosts")),
        wires=table(file, tree, "wires"),
        polls=table(file, tree, "polls"),
        free=tuple(_free(file, entry) for entry in texts(file, tree, "free")),
        uploads=tuple(_free(file, entry) for entry in texts(file, tree, "uploads")),
        metered_below=tuple(texts(file, tree, "metered_below")),
        host_geos=table(file, tree, "host_geos"),
        location_geo=text(file, tree, "location_geo") if "location_geo" in tree else None,
        billed_errors=_billed(file, tree.get("billed_errors", [])),
        max_tps=whole(file, "max_tps", tree.get("max_tps", "400")),
        output_field=limits[-1][1][0] if limits else choice(file, tree, "output_field", _OUTPUT_FIELDS),
        output_fields=limits,
        error_shape=choice(file, tree, "error_shape", ("openai", "anthropic", "gemini", "bedrock")),
        key_header=choice(file, tree, "key_header", ("authorization", "x-api-key", "api-key")),
        include_usage=choice(file, tree, "include_usage", ("true", "false")) == "true",
        output_settable=choice(file, tree, "output_settable", ("true", "false")) == "true",
        output_beside_limit=choice(file, tree, "output_beside_limit", ("false", "true")) == "true",
        thinking_budget=tuple(texts(file, tree, "thinking_budget")),
        keeps_tool_limit=choice(file, tree, "tool_limit", ("unknown", "kept")) == "kept",
        plan=choice(file, tree, "plan", ("false", "true")) == "true",
        price_cap=choice(file, tree, "price_cap", ("false", "true")) == "true",
        cost_headers=tuple(texts(file, tree, "cost_headers")),
        cost_params=tuple(texts(file, tree, "cost_params")),
        prompt_first=choice(file, tree, "prompt_first", ("false", "true")) == "true",
        deployments=choice(file, tree, "deployments", ("false", "true")) == "true",
    )


def _output_fields(file: str, tree: Mapping[str, object]) -> OutputFields:
    """Read which fields bound the output, for the whole host or by globs of models and paths."""
    value = tree.get("output_fields", {})
    if value and "output_field" in tree:
        raise PriceError(f"{file}: output_field and output_fields are both there; the first of a list is what is added")
    entries = value if isinstance(value, dict) else {"*": value}
    return tuple((str(key), _limits_of(file, key, fields)) for key, fields in entries.items())


def _limits_of(file: str, key: object, fields: object) -> tuple[str, ...]:
    if not isinstance(fields, list) or not fields or not all(field in _OUTPUT_FIELDS for field in fields):
        words = f"a list of {' and '.join(_OUTPUT_FIELDS)} is allowed"
        raise PriceError(f"{file}: output_fields of {key} is {fields!r}; {words}")
    return tuple(fields)


def _free(file: str, entry: str) -> tuple[str, str]:
    method, _, path = entry.partition(" ")
    if not method.isupper() or not path.startswith("/"):
        raise PriceError(f'{file}: free has {entry!r}; "METHOD /path" is allowed')
    return method, path


def _billed(file: str, entries: object) -> tuple[BilledError, ...]:
    if not isinstance(entries, list):
        raise PriceError(f"{file}: billed_errors is {entries!r}; a list is allowed")
    return tuple(_billed_error(file, entry) for entry in entries)


def _billed_error(file: str, entry: object) -> BilledError:
    if isinstance(entry, dict):
        return BilledError(whole(file, "billed_errors", entry.get("status")), text(file, entry, "code"))
    return BilledError(whole(file, "billed_errors", entry))
