import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.jsontext import dumps

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=9)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | DECIMALS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(TREES)
def test_what_is_written_is_read_back_in_one_line_of_ascii(tree):
    text = dumps(tree)

    assert json.loads(text, parse_float=Decimal) == tree
    assert text.isascii()
    assert min(text) >= " "


def test_a_decimal_is_a_plain_number_without_exponent():
    assert dumps({"a": Decimal("0.000000001"), "b": Decimal("1E+3"), "c": [Decimal("25.10")]}) == (
        '{"a":0.000000001,"b":1000,"c":[25.10]}'
    )


def test_mappings_and_sequences_of_any_kind_are_written():
    assert dumps({1: (None, True, "ü\n")}) == '{"1":[null,true,"\\u00fc\\n"]}'


@pytest.mark.parametrize("value", [1.5, {1, 2}, object()], ids=lambda v: type(v).__name__)
def test_what_has_no_place_is_refused(value):
    with pytest.raises(TypeError, match=f"{type(value).__name__} has no place in this JSON"):
        dumps(value)
