"""A client's request as one to another model, at its own provider or another one. Pure; sends nothing.

Nothing is translated: the other model must be spoken to in the caller's format. To another provider's host go the body
and the few headers that say what is in it; whatever else the caller sent, its credentials above all, does not.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from lockpin_core.addresses import canonical_host, canonical_path
from lockpin_core.admission import Incoming
from lockpin_core.providers import Metered, Provider
from lockpin_core.wire.protocol import Wire

# What another provider may see of a caller's headers: nothing here says who calls.
KEPT_HEADERS = frozenset(
    {"accept", "accept-encoding", "anthropic-beta", "anthropic-version", "content-type", "user-agent"}
)
_BEARER = "authorization"


def other_model(incoming: Incoming, wire: Wire, model: str) -> Incoming | None:
    """Name another model of the same provider; None: the request cannot name it."""
    route = incoming.provider.route(incoming.method, incoming.path)
    if not isinstance(route, Metered):
        return None
    request = wire.with_model(replace(incoming, path_model=route.model).request(), model)
    if request is None:
        return None
    there = incoming.provider.route(incoming.method, request.path)
    if not isinstance(there, Metered) or there.wire != route.wire:
        return None
    return replace(incoming, path=request.path, path_model=request.path_model, body=request.body)


def other_provider(incoming: Incoming, wire: Wire, target: Provider, model: str, key: str) -> Incoming | None:
    """Make the request one to another provider's model, under that provider's key; None: it speaks another format."""
    path = path_at(incoming, target, model)
    if path is None:
        return None
    headers = {name: value for name, value in incoming.headers.items() if name in KEPT_HEADERS}
    headers[target.key_header] = f"Bearer {key}" if target.key_header == _BEARER else key
    host = canonical_host(urlsplit(target.base).hostname or "")
    moved = replace(incoming, provider=target, host=host, path=path, query="", headers=headers)
    request = wire.with_model(moved.request(), model)
    return None if request is None else replace(moved, body=request.body)


def path_at(incoming: Incoming, target: Provider, model: str) -> str | None:
    """Find where another provider takes the format of a request, on the caller's own path if it does there; None: it
    does not take it. A path that names the model is of one provider alone.
    """
    route = incoming.provider.route(incoming.method, incoming.path)
    if not isinstance(route, Metered) or route.model is not None:
        return None
    own = canonical_path(incoming.path).lower()
    path = own if target.wires.get(own) == route.wire else target.path_for(route.wire, model)
    return path if path is not None and target.metered(path) == Metered(route.wire) else None
