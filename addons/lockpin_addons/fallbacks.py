"""A call that failed as a call to another model: where it goes then, under whose key, and what its request becomes.

The caller's key goes to no other host: of the caller's headers only those are kept that say what the body is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import quote

from mitmproxy import http
from mitmproxy.proxy.mode_specs import UpstreamMode

from lockpin_addons.identity import IdentityError
from lockpin_addons.route import Bound, name_destination, query_of, redirect
from lockpin_addons.trip import Home, Trip, put_credentials
from lockpin_core.admission import Incoming
from lockpin_core.admission_elsewhere import other_model, other_provider
from lockpin_core.aside import beside_loop
from lockpin_core.clock import NewId
from lockpin_core.engine_attempts import Skipped
from lockpin_core.providers import Provider, Providers
from lockpin_core.settler import Admitted
from lockpin_core.substitutes import parts, substitutes

type RealKeys = Callable[[str], Awaitable[str]]  # a provider's own key, by its name; raises IdentityError

_PLAIN = "".join(char for char in map(chr, range(0x21, 0x7F)) if char not in ";,%")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A request to another model, and where it goes; `real`: the provider's own key, where it is another provider's."""

    incoming: Incoming
    bound: Bound
    real: str | None = field(repr=False)
    moved: bool  # to another provider


class Fallbacks:
    """Finds where a call may go instead."""

    def __init__(self, providers: Providers, real_keys: RealKeys, new_id: NewId) -> None:
        self._providers, self._real_keys, self._new_id = providers, real_keys, new_id

    def of(self, trip: Trip, admitted: Admitted) -> tuple[str, ...]:
        """List the models that a call may fall back to, in order."""
        call = admitted.held.call
        if admitted.parsed.batch or trip.incoming is None:
            return ()
        return substitutes(trip.terms.config.near_cap.fallbacks, call.provider, call.asked_model, call.model)

    async def find(self, name: str, trip: Trip, admitted: Admitted) -> Elsewhere | Skipped:
        """Make the request to one of them, or say why there is none."""
        assert trip.incoming is not None and trip.bound is not None, "no call falls back that was not kept"
        provider, model = parts(name)
        target, incoming = self._providers.by_name(provider), replace(trip.incoming, id=self._new_id())
        home = _home(trip.flow, trip)
        if target is None:
            return Skipped("unknown_provider")
        if target.name != incoming.provider.name:
            return await self._moved(target, model, incoming, home.bound, admitted)
        named = await beside_loop(len(incoming.body), partial(other_model, incoming, admitted.wire, model))
        if named is None:
            return Skipped("other_wire")
        return Elsewhere(named, replace(home.bound, path=named.path + query_of(home.bound)), home.real_key, moved=False)

    async def _moved(
        self, target: Provider, model: str, incoming: Incoming, bound: Bound, admitted: Admitted
    ) -> Elsewhere | Skipped:  # fmt: skip
        try:
            real = await self._real_keys(target.name)
        except IdentityError:
            real = None
        moving = partial(other_provider, incoming, admitted.wire, target, model, real or "")
        there = await beside_loop(len(incoming.body), moving)
        if there is None:
            return Skipped("other_wire")
        if real is None:
            return Skipped("no_key")
        to = Bound(target, there.host, there.path, by_base_url=True, base_task=bound.base_task)
        return Elsewhere(there, to, real, moved=True)


def skipped_line(name: str, skipped: Skipped) -> str:
    """Say in a header's value why a model was left out."""
    return f"{quote(name, safe=_PLAIN)}; {skipped.why}"


def served_line(name: str) -> str:
    """Name in a header's value the model that a call went to instead."""
    return quote(name, safe=_PLAIN)


def _home(flow: http.HTTPFlow, trip: Trip) -> Home:
    assert trip.tries is not None and trip.bound is not None, "it has left once"
    if trip.tries.home is None:
        trip.tries.home = Home(flow.request.copy(), trip.bound, trip.real_key)
    return trip.tries.home


def turn_to(flow: http.HTTPFlow, trip: Trip, there: Elsewhere, admitted: Admitted) -> None:
    """Make a flow's request the one to another model."""
    request, first = flow.request, _home(flow, trip).request
    data, was = request.data, first.data
    data.scheme, data.host, data.port, data.authority = was.scheme, was.host, was.port, was.authority
    request.headers = first.headers.copy()
    if there.moved:
        _move(flow, trip, there)
    request.path = there.bound.path
    request.headers.pop("content-encoding", None)
    if admitted.strips_usage:
        request.headers["accept-encoding"] = "identity"
    body = there.incoming.body if admitted.body is None else admitted.body
    request.raw_content = body
    request.headers["content-length"] = str(len(body))
    trip.bound, trip.real_key = there.bound, there.real


def _move(flow: http.HTTPFlow, trip: Trip, there: Elsewhere) -> None:
    """Point a request at another provider, with nothing of the caller's on it but what says what it is."""
    request = flow.request
    host = [field for field in request.headers.fields if field[0].lower() == b"host"]
    told = there.incoming.headers.items()
    request.headers = http.Headers(
        [*host, *((name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in told)]
    )
    redirect(request, there.bound, trip.terms.config.upstreams.get(there.bound.host))
    if isinstance(flow.client_conn.proxy_mode, UpstreamMode):
        name_destination(request, there.bound)
    put_credentials(request, trip)
