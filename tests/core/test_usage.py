from lockpin_core.usage import (
    FEE_UNITS,
    OUTPUT_UNITS,
    PIECE_UNITS,
    PROMPT_UNITS,
    Unit,
    add,
    nonzero,
    output_tokens,
    prompt_tokens,
    total_tokens,
)

EACH = {unit: 1 << place for place, unit in enumerate(Unit)}


def test_every_unit_is_prompt_output_piece_or_fee_and_only_one_of_them():
    kinds = (PROMPT_UNITS, OUTPUT_UNITS, PIECE_UNITS, FEE_UNITS)

    assert sum(map(len, kinds)) == len(Unit)
    assert set(Unit) == PROMPT_UNITS | OUTPUT_UNITS | PIECE_UNITS | FEE_UNITS


def test_tokens_are_prompt_and_output_without_pieces_and_fees():
    pieces = (Unit.WEB_SEARCH, Unit.SEARCH_PROMPT, Unit.MAPS, Unit.MAPS_PROMPT, Unit.FILE_SEARCH, Unit.CODE_SESSION)
    fees = sum(EACH[unit] for unit in (*pieces, Unit.REQUEST, Unit.SECOND, Unit.CHARACTER))

    assert prompt_tokens(EACH) + output_tokens(EACH) == total_tokens(EACH) == sum(EACH.values()) - fees
    assert output_tokens(EACH) == EACH[Unit.OUTPUT] + EACH[Unit.AUDIO_OUT] + EACH[Unit.IMAGE_OUT]


def test_usages_add_unit_by_unit_and_stay_as_they_were():
    first, second = {Unit.INPUT: 1, Unit.OUTPUT: 2}, {Unit.OUTPUT: 3, Unit.CACHE_READ: 4}

    assert add(first, second) == {Unit.INPUT: 1, Unit.OUTPUT: 5, Unit.CACHE_READ: 4}
    assert first == {Unit.INPUT: 1, Unit.OUTPUT: 2}


def test_units_that_count_nothing_are_left_out():
    assert nonzero({Unit.INPUT: 0, Unit.OUTPUT: 2}) == {Unit.OUTPUT: 2}
