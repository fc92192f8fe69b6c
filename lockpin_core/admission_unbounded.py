"""Calls that their request does not bound: what is billed by the piece, and what is free however much it is.

Knows no format, and no limit that is in force.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lockpin_core.call import Ceiling, Parsed
from lockpin_core.errors import UnpricedError
from lockpin_core.money import ZERO, Money
from lockpin_core.prices import Model, costs_nothing
from lockpin_core.usage import PIECE_UNITS, Unit

_OF_SOUND = (
    "; uncompressed sound does: send it as a .wav file (PCM), or, to let it pass uncounted, add to lockpin.yaml: "
)


def billed_by(parsed: Parsed, model: Model) -> Parsed:
    """Leave among the pieces of a call what its model bills by: seconds, characters, or neither but tokens.

    Raises UnpricedError where the request does not show how many those are, and they cost something.
    """
    if parsed.fees.keys().isdisjoint(PIECE_UNITS) and model.piece is None:
        return parsed
    fees = {unit: count for unit, count in parsed.fees.items() if unit not in PIECE_UNITS}
    if model.piece is not None and model.piece in parsed.fees:
        fees[model.piece] = parsed.fees[model.piece]
    elif model.piece is not None and not costs_nothing(model):
        words = f'model "{model.id}" bills by the {model.piece}, and the request does not show how many'
        is_sound = model.piece is Unit.SECOND and Unit.AUDIO_IN in parsed.prompt_units
        raise UnpricedError(words + (_OF_SOUND + f'pricing: {{"{model.id}": {{free: true}}}}' if is_sound else ""))
    return replace(parsed, fees=fees)


def free_ceiling(parsed: Parsed, model: Model, most: Callable[[Ceiling], Money]) -> Ceiling | None:
    """Bound a call in dollars alone, where nothing of it costs anything; None: something may.

    `most` is what a ceiling costs at most. Raises UnpricedError as that does.
    """
    if not costs_nothing(model):
        return None
    fees = {unit: count for unit, count in parsed.fees.items() if unit not in PIECE_UNITS}
    tokens, pieces = (1, {}) if model.piece is None else (0, {model.piece: 1})
    one = Ceiling(tokens, tokens, parsed.prompt_units, parsed.output_units, {**fees, **pieces})
    return replace(one, prompt=0, output=0, fees=fees) if most(one) == ZERO else None
