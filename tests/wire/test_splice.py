import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.wire.jsonbody import read_body
from lockpin_core.wire.splice import Splice


def test_member_is_replaced_where_it_stands():
    raw = b'{ "a" : 1 ,\n  "max\\u005ftokens" : null , "b": [ ] }'

    assert Splice.of(raw).having({"max_tokens": b"7"}) == b'{ "a" : 1 ,\n  "max\\u005ftokens" : 7 , "b": [ ] }'


def test_absent_members_are_put_first():
    assert Splice.of(b'{ "a": 1}').having({"x": b"2", "y": b'{"z":true}'}) == b'{"x":2,"y":{"z":true}, "a": 1}'


def test_member_of_an_empty_object_needs_no_comma():
    assert Splice.of(b" { }").having({"x": b"2"}) == b' {"x":2 }'


def test_several_members_are_replaced_at_once():
    assert Splice.of(b'{"b":1,"a":2}').having({"a": b"33", "b": b"44", "c": b"5"}) == b'{"c":5,"b":44,"a":33}'


def test_member_is_given_as_it_is_written():
    splice = Splice.of('{"é": "ü", "a" : [ 1 ] }'.encode())

    assert splice.get("a") == b"[ 1 ]"
    assert splice.get("b") is None


def test_layout_of_another_body_is_never_used():
    layout = read_body(b'{"a": 1}').layout()

    with pytest.raises(AssertionError):
        Splice(b'{"a": 10}', layout).having({"a": b"2"})
    with pytest.raises(AssertionError):
        Splice(b'{"a": 1}', replace(layout, size=7)).having({"a": b"2"})


SCALARS = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    tree=st.dictionaries(st.text(max_size=6) | st.just("max_tokens"), VALUES, max_size=5),
    limit=st.integers(0, 10**9),
    indent=st.sampled_from([None, 1, "\t"]),
    ascii_only=st.booleans(),
)
def test_splicing_changes_one_member_and_no_other_byte(
    tree: dict, limit: int, indent: int | str | None, ascii_only: bool
):
    raw = json.dumps(tree, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    tree = json.loads(raw)

    changed = Splice.of(raw).having({"max_tokens": b"%d" % limit})

    assert json.loads(changed) == {**tree, "max_tokens": limit}
    if "max_tokens" not in tree:
        added = b'"max_tokens":%d' % limit + (b"," if tree else b"")
        assert changed.replace(added, b"", 1) == raw
    else:
        start, end = Splice.of(raw).layout.spans["max_tokens"]
        assert changed == raw[:start] + b"%d" % limit + raw[end:]
