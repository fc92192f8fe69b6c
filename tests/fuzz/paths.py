"""Target: no spelling of a metered path is free, and no spelling of a provider's host is nobody's.

What a server may make of a path is worked out here anew: decoded up to three times, with and without what follows a
semicolon, with slashes either way and doubled or not, dots resolved before or after.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator
from itertools import product
from urllib.parse import unquote

from desks import PROVIDERS
from inputs import Choices, split
from lockpin_addons.route import Bound, Foreign, Listener, Own, Wrong, plain_path, target
from mitmproxy import http

from lockpin_core.addresses import canonical_host, canonical_path
from lockpin_core.providers import Free, Metered, Provider, Unknown

VENDORS = PROVIDERS.all()
METERING = tuple(provider for provider in VENDORS if provider.wires)
METHODS = ("POST", "PUT", "PATCH", "post", "GET", "DELETE", "HEAD", "OPTIONS", "QUERY", "")
LISTENER = Listener(frozenset({"127.0.0.1", "::1", "localhost"}), frozenset({8080}))
DOTS = ("..", ".", "%2e%2e", ".%2E", "%2e", "...", "..;", "v1", "x1", "")
GAPS = (
    "//",
    "/./",
    "/x/../",
    "/%2e/",
    "%2f",
    "%2F",
    "\\",
    "%5c",
    "/;/",
    ";a=b/",
    "/v1/",
    "%252f",
    "/..;/x/",
    "/x/%2e%2E/",
)
TAILS = (
    "",
    "/../../../../../../x",
    "/",
    "?a=b",
    "#x",
    "?x=/../v1/files",
    "%3Fa",
    "%23",
    ";a",
    ".",
    "/.",
    "%00",
    "%20",
    "/..",
    " ",
    "\t",
    "*",
)


def run(data: bytes) -> None:
    head, body = split(data)
    choices = Choices(head)
    text = body.decode("utf-8", "surrogateescape")
    provider = choices.pick(METERING)
    path = _spelled(provider, choices, text) if choices.flag() else "/" + text.lstrip("/")
    _check_path(provider, choices.pick(METHODS), path)
    _check_host(provider, choices, path)


def _spelled(provider: Provider, choices: Choices, text: str) -> str:
    """Write one of a provider's metered paths in another way."""
    path = choices.pick(tuple(provider.wires)).replace("{model}", "m1").replace("*", "x1")
    for _ in range(choices.number() % 4):
        at = choices.number() % len(path)
        kind = choices.number()
        char = path[at]
        others = (char.upper(), f"%{ord(char):02x}", f"%25{ord(char):02X}", char)
        if char == "/":
            others = (*GAPS, "/" + GAPS[kind % len(GAPS)])
        path = path[:at] + others[kind % len(others)] + path[at + 1 :]
    return path + choices.pick(TAILS) + text


def _check_path(provider: Provider, method: str, path: str) -> None:
    route = provider.route(method, path)
    assert isinstance(route, Metered | Free | Unknown)
    assert route == provider._judged(method, path), "a route is remembered wrongly"
    plain = canonical_path(path)
    assert plain.startswith("/") and "//" not in plain
    provider.geo_of(provider.hosts[0], path)
    if method not in ("POST", "PUT", "PATCH") or not isinstance(route, Free):
        return
    for read in _readings(path):
        folders = [one for one in _folders(provider.name) if one.match(read)]
        assert not folders, f"{method} {path} of {provider.name} is free, and begins as a metered one: {read}"
        assert not _is_metered(provider, read), f"{method} {path} of {provider.name} is free, and may be read as {read}"


def _readings(path: str) -> Iterator[str]:
    """Give what a server may take a path for."""
    seen = set()
    ways = product((True, False), range(4), *[(True, False)] * 4)
    for cut, times, is_param, is_back, is_merged, is_resolved in ways:
        read = re.split(r"[?#]", path, maxsplit=1)[0] if cut else path.split("?", 1)[0]
        for _ in range(times):
            read = unquote(read)
        read = re.sub(r"[?#].*", "", read) if times else read
        read = read.replace("\\", "/") if is_back else read
        read = re.sub(r";[^/]*", "", read) if is_param else read
        read = re.sub(r"[\x00-\x20\x7f]+", "", read)
        read = re.sub(r"/+", "/", read) if is_merged else read
        read = _resolved(read) if is_resolved else read
        if read not in seen:
            seen.add(read)
            yield read


def _resolved(path: str) -> str:
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept).strip("/")


@functools.cache
def _patterns(provider: str) -> tuple[re.Pattern[str], ...]:
    found = PROVIDERS.by_name(provider)
    assert found is not None
    texts = [re.escape(path).replace(re.escape("{model}"), "[^/]+").replace(r"\*", "[^/]+") for path in found.wires]
    return tuple(re.compile(text, re.IGNORECASE | re.ASCII) for text in texts)


@functools.cache
def _folders(provider: str) -> tuple[re.Pattern[str], ...]:
    """Give what a path begins with that is metered, where all else is free."""
    found = PROVIDERS.by_name(provider)
    assert found is not None
    texts = [re.escape(folder.rstrip("/")).replace(r"\*", "[^/]+") + "(?:/|$)" for folder in found.metered_below]
    return tuple(re.compile(text, re.IGNORECASE | re.ASCII) for text in texts)


def _is_metered(provider: Provider, path: str) -> bool:
    return any(pattern.fullmatch(path) for pattern in _patterns(provider.name))


# Hosts


def _check_host(provider: Provider, choices: Choices, path: str) -> None:
    host = _other_host(provider.hosts[choices.number() % len(provider.hosts)].replace("*", "x"), choices)
    assert canonical_host(canonical_host(host)) == canonical_host(host)
    kind = choices.number() % 4
    path = path.encode("utf-8", "surrogateescape").decode("latin-1")
    if kind == 0:
        path = f"/{provider.name}{path}" if path.startswith("/") else path
        where = target(_request("127.0.0.1", path, 8080), None, PROVIDERS, LISTENER)
        assert isinstance(where, Own | Bound | Wrong)
        if isinstance(where, Bound):
            assert where.provider is provider and plain_path(where).startswith("/"), where
        return
    sni = host if kind == 2 else None
    named = "other.example" if kind > 1 else host
    where = target(_request(named, path, 443, host if kind == 3 else None), sni, PROVIDERS, LISTENER)
    if _plainly(host) in _every_host():
        assert not isinstance(where, Foreign), f"{host} is nobody's"
    assert isinstance(where, Bound | Wrong | Foreign | Own)


@functools.cache
def _every_host() -> frozenset[str]:
    return frozenset(host.replace("*", "x") for provider in VENDORS for host in provider.hosts)


def _plainly(host: str) -> str:
    """Write a host as a resolver takes it."""
    plain = unicodedata.normalize("NFKC", host).lower()
    return re.sub("[\u3002\uff0e\uff61]", ".", plain).replace("\xad", "").strip("[]. \t\r\n\v\f")


def _other_host(host: str, choices: Choices) -> str:
    ends = ("", ".", "..", "。", " ", "．", "\t")
    host = host.upper() if choices.flag() else host
    at = choices.number() % len(host)
    wide = host[at] if host[at] == "-" else chr(ord(host[at]) + 0xFEE0)
    other = (host[at], host[at], wide, host[at] + "\xad", host[at].swapcase())[choices.number() % 5]
    return host[:at] + other + host[at + 1 :] + choices.pick(ends)


def _request(host: str, path: str, port: int, named: str | None = None) -> http.Request:
    fields = ((b"Host", named.encode("utf-8", "surrogateescape")),) if named is not None else ()
    return http.Request(host, port, b"POST", b"https", b"", path.encode("latin-1", "replace"), b"HTTP/1.1",
                        http.Headers(fields), b"", None, 0.0, 0.0)  # fmt: skip
