import json

from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.wire.deepsplice import replaced
from lockpin_core.wire.jsonbody import read_known

RAW = ' { "é" : 1,\n "a\\u0062" :[ 0 , {"x" : "\\ud83d\\ude00" , "y":[[],  "ü" ]}, null ] }\n'.encode()
KEYS = st.sampled_from(["a", "b", "é", '"', "\U0001f600"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def changed(values: dict) -> bytes:
    return replaced(read_known(RAW), values)


def test_value_deep_in_a_body_is_replaced_where_it_stands():
    assert changed({("ab", 1, "y", 1): "7"}) == RAW.replace('"ü"'.encode(), b"7")


def test_several_values_are_replaced_at_once():
    wanted = RAW.replace(b'"\\ud83d\\ude00"', b'"z"').replace(b"[],", b"true,").replace(b"null", b"{}")

    assert changed({("ab", 2): "{}", ("ab", 1, "y", 0): "true", ("ab", 1, "x"): '"z"'}) == wanted


def test_member_of_the_body_is_replaced():
    assert changed({("é",): "[2]"}) == RAW.replace(b" 1,", b" [2],")


def test_nothing_to_replace_leaves_every_byte():
    assert changed({}) == RAW


@settings(max_examples=200, deadline=None)
@given(value=st.dictionaries(KEYS, JSON, min_size=1, max_size=4), data=st.data(), is_ascii=st.booleans())
def test_any_value_is_replaced_and_no_other(value: dict, data: st.DataObject, is_ascii: bool):
    raw = json.dumps(value, ensure_ascii=is_ascii, indent=data.draw(st.sampled_from([None, 1]))).encode()
    path, inner, holder = [], value, value
    while isinstance(inner, dict | list) and inner and (not path or data.draw(st.booleans())):
        step = data.draw(st.sampled_from([*inner] if isinstance(inner, dict) else [*range(len(inner))]))
        path, holder, inner = [*path, step], inner, inner[step]

    made = replaced(read_known(raw), {tuple(path): '"new"'})

    holder[path[-1]] = "new"
    assert json.loads(made) == value
