"""A large request that falls back is written anew beside the event loop, where nobody waits for it."""

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest
from desks import PROVIDERS, Desk, body
from lockpin_addons.fallbacks import Elsewhere, Fallbacks
from lockpin_addons.route import Bound
from lockpin_addons.trip import Home, Tries

from lockpin_core.wire import wire_named

LARGE = body("ink", messages=[{"role": "user", "content": "x" * 100_000}])


class Noting:
    """A format that notes in which thread it writes."""

    def __init__(self) -> None:
        self.wire, self.threads = wire_named("openai_chat"), set()

    def with_model(self, request, model):
        self.threads.add(threading.get_ident())
        return self.wire.with_model(request, model)


async def real_key(provider: str) -> str:
    return "real"


@pytest.mark.parametrize("target", ["openai/pen", "together/pen"])
@pytest.mark.parametrize(("told", "is_beside"), [(LARGE, True), (body("ink"), False)])
def test_a_large_request_is_not_written_on_the_loop(target, told, is_beside):
    incoming = Desk().incoming(told)
    bound = Bound(incoming.provider, incoming.host, incoming.path, by_base_url=True)
    tries = Tries(of=2, home=Home(None, bound, None))
    trip = SimpleNamespace(incoming=incoming, bound=bound, tries=tries, flow=None)
    noting = Noting()
    fallbacks = Fallbacks(PROVIDERS, real_key, lambda: "there")

    found = asyncio.run(fallbacks.find(target, trip, SimpleNamespace(wire=noting)))

    assert isinstance(found, Elsewhere)
    assert json.loads(found.incoming.body)["model"] == "pen"
    assert (threading.get_ident() not in noting.threads) is is_beside
