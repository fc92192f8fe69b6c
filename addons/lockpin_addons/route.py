"""Pure facts of a request at the proxy: where it really goes, whether that is a provider, and what is wrong with it.

Judged by the destination of the connection, never by the Host header alone: that is the client's to choose.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from mitmproxy import http

from lockpin_core.addresses import canonical_host
from lockpin_core.config import Upstream
from lockpin_core.providers import Provider, Providers

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
OVERRIDES = frozenset({b"x-http-method-override", b"x-http-method", b"x-method-override"})
OVERRIDE_PARAMETERS = frozenset({"$httpmethod", "httpmethod", "x-http-method-override"})


@dataclass(frozen=True, slots=True)
class Listener:
    """Our own addresses."""

    hosts: frozenset[str]
    ports: frozenset[int]

    def is_ours(self, host: str, port: int) -> bool:
        """Say whether a destination is this proxy itself."""
        return port in self.ports and canonical_host(host).strip("[]") in self.hosts


@dataclass(frozen=True, slots=True)
class Foreign:
    """No provider's host: passes untouched."""


@dataclass(frozen=True, slots=True)
class Own:
    """For this proxy itself; `path` without query."""

    path: str


@dataclass(frozen=True, slots=True)
class Bound:
    """For a provider. `path` is what it will see, query and all; `base_task` comes from a base URL."""

    provider: Provider
    host: str  # canonical: prices and paths are judged by it
    path: str
    by_base_url: bool = False
    base_task: str | None = None


@dataclass(frozen=True, slots=True)
class Wrong:
    """Refused for its form; `bound` says in whose shape."""

    words: str
    bound: Bound | None = None
    status: int = 400


type Target = Foreign | Own | Bound | Wrong


def target(request: http.Request, sni: str | None, providers: Providers, listener: Listener) -> Target:
    """Say where a request goes."""
    if listener.is_ours(request.host, request.port):
        return own(request, providers)
    host = canonical_host(request.host)
    provider = providers.for_host(host)
    named = [canonical_host(name) for name in _named_hosts(request, sni)]
    if provider is None:
        return _foreign(named, providers)
    bound = Bound(provider, host, request.path)
    return _form_fault(request, bound, named) or bound


def _named_hosts(request: http.Request, sni: str | None) -> list[str]:
    names = [_without_port(value) for value in request.headers.get_all("host")]
    if request.authority:
        names.append(_without_port(request.authority))
    return [*names, *([sni] if sni else [])]


def _foreign(named: Collection[str], providers: Providers) -> Target:
    """A name of a provider on a call that goes elsewhere: perhaps an alias of it, so it is not let through."""
    for name in named:
        provider = providers.for_host(name)
        if provider is not None:
            words = f"the call names {name} but goes to another host; call that host by its own name"
            return Wrong(words, Bound(provider, name, "/"))
    return Foreign()


def _form_fault(request: http.Request, bound: Bound, named: Collection[str]) -> Wrong | None:
    host_headers = request.headers.get_all("host")
    if len(host_headers) > 1:
        return Wrong("there is more than one Host header", bound)
    names = [_without_port(value) for value in host_headers]
    if request.authority:
        names.append(_without_port(request.authority))
    if any(canonical_host(name) != bound.host for name in names):
        return Wrong(f"the Host header is not the destination {bound.host}", bound)
    return override_fault(request, bound)


def override_fault(request: http.Request, bound: Bound) -> Wrong | None:
    """Find what would make a provider read another method than the one that is judged: a header, or Google's parameter.

    Source of the parameter: the system parameters of Google's APIs, read 2026-11.
    """
    for name, _ in request.headers.fields:
        if name.lower() in OVERRIDES:
            return Wrong(f"header {name.decode().lower()} is not allowed on a provider's host", bound)
    named = parse_qsl(query_of(bound).partition("#")[0].removeprefix("?"), keep_blank_values=True)
    if found := next((name for name, _ in named if name.lower() in OVERRIDE_PARAMETERS), None):
        return Wrong(f"query parameter {found} is not allowed on a provider's host", bound)
    return None


def own(request: http.Request, providers: Providers) -> Target:
    """Say where a request to this proxy itself goes: a base URL leads on to its provider."""
    path, query = _split(request.path)
    if path.startswith("/lockpin/"):
        return Own(path)
    task: str | None = None
    rest = path
    if match := re.fullmatch(r"/t/([^/]+)(/.*)", path):
        task, rest = match[1], match[2]
    if match := re.fullmatch(r"/([a-z0-9_-]+)(/.*)?", rest):
        provider = providers.by_name(match[1])
        if provider is not None:
            host = _host_of(provider.base)
            bound = Bound(provider, host, (match[2] or "/") + query, by_base_url=True, base_task=task)
            return override_fault(request, bound) or bound
    return Own(path)


def _host_of(base: str) -> str:
    return canonical_host(urlsplit(base).hostname or "")


def _split(path: str) -> tuple[str, str]:
    match = re.search(r"[?#]", path)
    return (path, "") if match is None else (path[: match.start()], path[match.start() :])


def _without_port(authority: str) -> str:
    return re.sub(r":\d*$", "", authority.strip().rsplit("@", 1)[-1])


def plain_path(bound: Bound) -> str:
    """Give the path that the provider will see, without its query."""
    return _split(bound.path)[0]


def query_of(bound: Bound) -> str:
    """Give the query that the provider will see, with its question mark."""
    return _split(bound.path)[1]


def lower_headers(headers: http.Headers) -> dict[str, str]:
    """Give headers by lower-case name, several of one name joined by a comma."""
    lowered: dict[str, str] = {}
    for raw_name, raw_value in headers.fields:
        name, value = (raw.decode("utf-8", "surrogateescape") for raw in (raw_name.lower(), raw_value))
        lowered[name] = f"{lowered[name]}, {value}" if name in lowered else value
    return lowered


def redirect(request: http.Request, bound: Bound, upstream: Upstream | None) -> None:
    """Point a request at the host it is for: the configured upstream, else, from a base URL, the provider's own."""
    if upstream is not None:
        _point(request, upstream.scheme, upstream.host, upstream.port)
    elif bound.by_base_url:
        base = urlsplit(bound.provider.base)
        _point(request, base.scheme, bound.host, base.port or {"http": 80, "https": 443}[base.scheme])
    request.path = bound.path


def name_destination(request: http.Request, bound: Bound) -> None:
    """Where another proxy is next: a plain request to it names its destination, one inside a tunnel does not."""
    if not request.is_http2 and (bound.by_base_url or request.authority):
        request.authority = f"{request.host}:{request.port}" if request.scheme == "http" else ""


def _point(request: http.Request, scheme: str, host: str, port: int) -> None:
    # Only the last of these rewrites the Host header: each of mitmproxy's properties would, one after the other.
    request.data.scheme, request.data.port = scheme.encode(), port
    request.host = host
