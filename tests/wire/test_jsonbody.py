import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import Splice, read_body, shown, shown_name, whole

MALFORMED = {
    "empty": b"",
    "blank": b"  ",
    "a list": b"[]",
    "a string": b'"x"',
    "a number": b"1",
    "null": b"null",
    "cut": b'{"a": 1',
    "cut in a key": b'{"a',
    "no colon": b'{"a" 1}',
    "no comma": b'{"a": 1 "b": 2}',
    "comma at the end": b'{"a": 1,}',
    "single quotes": b"{'a': 1}",
    "more after it": b'{"a": 1} {"b": 2}',
    "a comment": b'{"a": 1 /* x */}',
    "not UTF-8": b'{"a": "\xff"}',
    "a lone surrogate in UTF-8": b'{"a": "\xed\xa0\x80"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "duplicate key": b'{"a": 1, "a": 1}',
    "duplicate key by escape": b'{"max_tokens": 1, "max\\u005ftokens": 2}',
    "nested duplicate key": b'{"a": {"b": [{"c": 1, "c": 2}]}}',
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": [Infinity]}',
    "minus Infinity": b'{"a": {"b": -Infinity}}',
    "a float that overflows": b'{"a": 1e400}',
    "an integer of 5000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "a control character": b'{"a": "\x01"}',
    "a leading zero": b'{"a": 01}',
    "too deep": b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_body_is_a_bad_request(body: bytes):
    with pytest.raises(WireError) as refused:
        read_body(body)

    assert refused.value.code == "bad_request"
    assert len(str(refused.value)) < 200


def test_members_and_where_they_stand():
    body = read_body(b' { "a" : [1, {"b": "\\u00e4"}] ,\n"c":\t"x" } ')

    assert body.members == {"a": [1, {"b": "ä"}], "c": "x"}
    assert {key: body.text[start:end] for key, (start, end) in body.spans.items()} == {
        "a": '[1, {"b": "\\u00e4"}]',
        "c": '"x"',
    }


def test_empty_object_has_no_members():
    assert read_body(b"{ }").members == {}


def test_size_is_the_bytes_as_written_or_of_their_nfc():
    body = read_body('{"a": "é", "b": "\U0001d15e", "c": "abc"}'.encode())

    assert body.size("a") == 4
    assert body.size("b") == 2 + 8  # a half note, 4 bytes, becomes a note head and a stem of 4 bytes each
    assert body.size("c") == 5


def test_lone_surrogate_by_escape_is_tolerated():
    assert read_body(b'{"a": "\\ud800"}').members == {"a": "\ud800"}


@pytest.mark.parametrize("value", [0, 1, 10**9])
def test_whole_number_is_read(value: int):
    assert whole(value, "max_tokens") == value


def test_null_is_no_limit():
    assert whole(None, "max_tokens") is None


@pytest.mark.parametrize("text", ["-1", "10.0", "1e2", "true", '"10"', "[1]", "{}", "1000000001", "9" * 4000])
def test_anything_else_is_no_whole_number(text: str):
    value = read_body(b'{"n": ' + text.encode() + b"}").members["n"]

    with pytest.raises(WireError, match=r"max_tokens is .*; a whole number from 0 to 1000000000 is allowed") as refused:
        whole(value, "max_tokens")

    assert len(str(refused.value)) < 120


def test_messages_never_show_text():
    assert shown("my secret prompt") == "a string"
    assert shown(-1) == "-1"
    assert shown(10.5) == "10.5"
    assert shown({"a": 1}) == "an object"
    assert shown_name("x" * 500) == '"' + "x" * 40 + '..."'
    assert shown_name("ä\n") == '"\\u00e4\\n"'


def test_member_is_replaced_where_it_stands():
    text = '{ "a" : 1 ,\n  "max\\u005ftokens" : null , "b": [ ] }'

    assert Splice.of(text).having({"max_tokens": "7"}) == '{ "a" : 1 ,\n  "max\\u005ftokens" : 7 , "b": [ ] }'


def test_absent_members_are_put_first():
    assert Splice.of('{ "a": 1}').having({"x": "2", "y": '{"z":true}'}) == '{"x":2,"y":{"z":true}, "a": 1}'


def test_member_of_an_empty_object_needs_no_comma():
    assert Splice.of("{ }").having({"x": "2"}) == '{"x":2 }'


def test_several_members_are_replaced_at_once():
    assert Splice.of('{"b":1,"a":2}').having({"a": "33", "b": "44", "c": "5"}) == '{"c":5,"b":44,"a":33}'


SCALARS = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=6), VALUES, max_size=5), st.booleans(), st.sampled_from([None, 0, 2, "\t"]))
def test_reading_agrees_with_the_standard_reader(tree: dict, ascii_only: bool, indent: int | str | None):
    raw = json.dumps(tree, ensure_ascii=ascii_only, indent=indent)
    if not raw.isascii():
        raw = raw.encode("utf-8", "replace").decode()

    assert read_body(raw.encode()).members == json.loads(raw)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.text(max_size=6), VALUES, max_size=5), st.integers(0, 10**9), st.sampled_from([None, 1, "\t"])
)
def test_splicing_changes_one_member_and_no_other_character(tree: dict, limit: int, indent: int | str | None):
    raw = json.dumps(tree, indent=indent)

    changed = Splice.of(raw).having({"max_tokens": str(limit)})

    assert json.loads(changed) == {**tree, "max_tokens": limit}
    if "max_tokens" not in tree:
        added = f'"max_tokens":{limit}' + ("," if tree else "")
        assert changed.replace(added, "", 1) == raw
