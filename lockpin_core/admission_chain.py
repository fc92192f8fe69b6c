"""What an earlier reply brings into a prompt that names it: how much of it usage may leave out, and what it may be.

Knows no field of any format.
"""

from __future__ import annotations

from dataclasses import replace

from lockpin_core.call import Parsed
from lockpin_core.prices import Model
from lockpin_core.sizing.bound import bound_beside_chain
from lockpin_core.usage import Unit

_BEYOND_WINDOW = 2**40  # tokens of a conversation of which nobody knows how many it has


def left_out(parsed: Parsed, model: Model) -> Parsed:
    """Bound what the usage of a turn may lack, where the format is known to leave a kept conversation out of it."""
    rest = bound_beside_chain(parsed.content, replace(model, context_tokens=None))
    kept = parsed.content.extra_tokens or _BEYOND_WINDOW  # of such a format nothing else is in there
    return replace(parsed, chain_rest=rest, left_out=0 if parsed.chain is None else kept)


def brought_in(parsed: Parsed, model: Model) -> Parsed:
    """Say as what a prompt may be billed beside text: as pictures, and where it is not known whole, as sound too.

    What is known has no sound in it (`is_silent`). A model without a price for sound hears none.
    """
    units = {Unit.IMAGE_IN} if parsed.content.hidden is None else {Unit.IMAGE_IN, Unit.AUDIO_IN}
    bands = [band for dated in model.prices for tier in dated.tiers.values() for band in tier.bands]
    priced = {unit for unit in units if any(unit in band.rates for band in bands)}
    return replace(parsed, prompt_units=parsed.prompt_units | priced)


def is_silent(prompt_units: frozenset[Unit], output_units: frozenset[Unit]) -> bool:
    """Say whether a turn has no sound that a later one may read again, and has made no media of which nobody says how
    many tokens they are as input.
    """
    return Unit.AUDIO_IN not in prompt_units and output_units == {Unit.OUTPUT}
