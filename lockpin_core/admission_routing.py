"""What a request must say of prices where its host passes calls on to others, who may take other ones. Pure."""

from __future__ import annotations

from lockpin_core.admission import Priced
from lockpin_core.money import rate_exact
from lockpin_core.price_entry import STANDARD
from lockpin_core.usage import Unit
from lockpin_core.wire.splice import Splice


def price_cap(found: Priced, most: int) -> bytes | None:
    """Give what the request must say of prices, where its host may serve it at dearer ones than those it is held at.

    A price for each request, or for each image, is not in the hold: who asks for one must not serve it.
    Source: OpenRouter's guide to provider routing, `provider.max_price` in dollars a million tokens, read 2026-11.
    """
    if not found.incoming.provider.price_cap or not found.is_capped:
        return None
    bands = found.model.price_at(found.at).tiers[STANDARD].bands
    bands = tuple(band for band in bands if band.start <= most)  # none that the hold does not reach
    prompt, completion = (max(band.rates.get(unit, 0) for band in bands) for unit in (Unit.INPUT, Unit.OUTPUT))
    usd = [rate_exact(pico) for pico in (prompt, completion)]
    image = ',"image":0' if found.parsed.content.images else ""
    return f'{{"prompt":{usd[0]},"completion":{usd[1]},"request":0{image}}}'.encode()


def with_price_cap(body: bytes, cap: bytes) -> bytes:
    """Put what a host may cost at most beside what the request itself says of who may serve it."""
    whole = Splice.of(body)
    said = whole.get("provider") or b""
    routing = Splice.of(said if said.startswith(b"{") else b"{}")
    return whole.having({"provider": routing.having({"max_price": cap})})
