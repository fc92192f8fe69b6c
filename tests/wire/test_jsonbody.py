import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Request
from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import (
    _unique,
    digest,
    model_name,
    plain_word,
    read_body,
    read_items,
    shown,
    shown_name,
    whole,
)

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


@pytest.mark.parametrize("space", [b"", b" " * 20_000], ids=["short", "long"])
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_body_is_a_bad_request(body: bytes, space: bytes):
    with pytest.raises(WireError) as refused:
        read_body(body + space)

    assert refused.value.code == "bad_request"
    assert len(str(refused.value)) < 200


def test_members_and_where_they_stand():
    body = read_body(b' { "a" : [1, {"b": "\\u00e4"}] ,\n"c":\t"x" } ')

    assert body.members == {"a": [1, {"b": "ä"}], "c": "x"}
    assert {key: body.text[start:end] for key, (start, end) in body.spans.items()} == {
        "a": '[1, {"b": "\\u00e4"}]',
        "c": '"x"',
    }


def test_long_body_has_the_values_of_a_short_one():
    text = '{"a": [0, -7, 12345678901234567890, 1.50, 1e3, true, null, "é"], "b": {"c": [1]}}'
    short, long = read_body(text.encode()), read_body((text + " " * 20_000).encode())

    assert long.members == short.members == json.loads(text)
    assert [type(item) for item in long.members["a"][:3]] == [int, int, int]
    assert long.spans == short.spans


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


def test_name_is_plain_text_of_a_fair_length():
    assert plain_word("Größe-é", "model") == "Größe-é"
    assert plain_word("x" * 256, "model") == "x" * 256
    assert plain_word(None, "service_tier") is None
    assert model_name("gpt-5.5") == "gpt-5.5"


@pytest.mark.parametrize(
    "value", [1, True, [], {}, "x" * 257, "a\nb", "a\x00", "\x7f", "\ud800", "a\udfffb", "\u2028", "\x85"]
)
def test_anything_else_is_no_name(value: object):
    with pytest.raises(WireError) as refused:
        plain_word(value, "service_tier")

    assert refused.value.code == "bad_request"
    assert str(refused.value).encode().startswith(b"service_tier is ")
    with pytest.raises(WireError):
        model_name(value)


@pytest.mark.parametrize("value", [None, ""])
def test_model_must_be_named(value: object):
    with pytest.raises(WireError):
        model_name(value)


def test_layout_says_where_members_stand_in_bytes():
    raw = ' \n{"é": "日本", "a" : [1], "ü": {}, "b":2 } '.encode()

    layout = read_body(raw).layout(("a", "b", "c"))

    assert (layout.size, layout.is_empty) == (len(raw), False)
    assert raw[: layout.opening] == b" \n{"
    assert {key: raw[start:end] for key, (start, end) in layout.spans.items()} == {"a": b"[1]", "b": b"2"}
    assert set(read_body(raw).layout().spans) == {"é", "a", "ü", "b"}
    assert read_body(b"{ }").layout().is_empty


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


class CountedKey(str):
    compared = 0

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedKey.compared += 1
        return str.__eq__(self, other)


def test_repeated_key_is_found_without_comparing_every_pair():
    pairs = [(CountedKey(i), None) for i in (*range(2000), 1999)]

    with pytest.raises(WireError, match='the key "1999" twice'):
        _unique(pairs)

    assert CountedKey.compared < 10 * len(pairs)


@pytest.mark.parametrize(
    "name", ["grok-4.20-multi-agent", "x-ai/grok-5-multi-agent-latest", "Grok-4.20-Multi-Agent-0309"]
)
def test_a_model_that_stands_for_many_runs_is_refused_by_name(name: str):
    with pytest.raises(WireError, match=f'"{name}" stands for agents') as caught:
        model_name(name)
    assert caught.value.code == "unpriced_tool"


@pytest.mark.parametrize("name", ["grok-4.20-multi", "grok-4.20", "our-multi-agent-tune"])
def test_a_model_that_only_sounds_like_it_is_one_model(name: str):
    assert model_name(name) == name


def digested(body: str, *names: str) -> bytes:
    return digest(Request("POST", "h", "/p", {}, body.encode()), names)


@pytest.mark.parametrize("space", ["", " " * 20_000], ids=["short", "long"])
def test_digest_tells_bodies_apart_by_every_character_but_what_is_left_out(space: str):
    """Also by the digits of a number that is the same value: a tokenizer reads them all."""
    body = '{"model": "m", "limit": 5, "request": {"a": 1.0, "reasoning": {"limit": 7, "x": 1}}, "stream": true}'
    known = digested(body + space, "limit")

    for same in (
        body.replace("5", "123"),
        body.replace("7", "8"),
        body.replace(', "stream": true', ""),
        '{"stream": false, "request": {"reasoning": {"x": 1, "limit": 7}, "a": 1.0}, "limit": 5, "model": "m"}',
        body.replace('"stream": true', '"stream": true, "stream_options": {"include_usage": true}'),
    ):
        assert digested(same + space, "limit") == known
    for other in (
        body.replace("1.0", "1.00"),
        body.replace("1.0", "1"),
        body.replace('"x": 1', '"x": 1e0'),
        body.replace("5", '"five"'),
        body.replace('"m"', '"\\u006d"'),
        body.replace('"a"', '"b"'),
    ):
        assert digested(other + space, "limit") != known


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            '{"request": {"thinking": {"reasoning": {"limit": 1}}}}',
            '{"request": {"thinking": {"reasoning": {"limit": 2}}}}',
        ),
        ('{"a": {"limit": 1}}', '{"a": {"limit": 2}}'),  # no place of settings, so it may be text
        ('{"request": [{"limit": 1}]}', '{"request": [{"limit": 2}]}'),
        ('{"limit": {"a": true}}', '{"limit": {"a": true, "b": true}}'),
        ('{"stream_options": {"include_usage": true}}', '{"stream_options": {"include_usage": true, "words": true}}'),
        ('{"request": {"stream_options": {"words": true}}}', '{"request": {"stream_options": {"more": true}}}'),
        ('{"limit": "12 words"}', '{"limit": "13 words"}'),
        ('{"limit": 1}', '{"limit": 1000000000000}'),
    ],
)
def test_digest_leaves_out_nothing_that_may_be_input(one: str, other: str):
    assert digested(one, "limit") != digested(other, "limit")


def test_digest_leaves_a_limit_out_where_settings_stand():
    assert digested('{"thinking": {"limit": 1}}', "limit") == digested('{"thinking": {"limit": 2}}', "limit")
    assert digested('{"limit": 1}', "limit") == digested('{"limit": 2}', "limit") == digested("{}", "limit")


def test_digest_does_not_confuse_where_one_member_ends():
    assert digested('{"a": "x", "b": "y"}') != digested('{"a": "x\\",b:1:y"}')
    assert digested("no json") != digested("no json either")


def items(raw: bytes, key: str = "all") -> list[dict]:
    return [dict(item.members) for item in read_items(raw, key)]


def test_the_members_of_one_long_list_are_read_one_after_the_other():
    assert items(b' { "all" : [ {"a": 1} ,{"b": [2]}\n] } ') == [{"a": 1}, {"b": [2]}]
    assert items(b'{"all": []}') == []
    first = next(read_items(b'{"all": [{"a": 1}, nonsense', "all"))
    assert first.members == {"a": 1}


def test_a_member_of_a_list_knows_where_its_own_members_stand():
    raw = '{"all": [{"é": 1}, {"a": {"b": 1.50, "c": "grüße"}}]}'.encode()
    _, item = read_items(raw, "all")

    inner = item.inner("a")

    assert (inner.members["c"], inner.size("b"), inner.size("c")) == ("grüße", 4, len('"grüße"'.encode()))
    assert inner.members["b"].text == "1.50"
    for key, words in (("c", "c is a string"), ("d", "d is null")):
        with pytest.raises(WireError, match=f"{words}; an object is needed"):
            inner.inner(key)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"[]", "no JSON object"),
        (b"{}", "all is null; a list is needed"),
        (b'{"all": 3}', "all is 3; a list is needed"),
        (b'{"all": [3]}', r"all\[0\]: an object is needed"),
        (b'{"all": [{}', "no JSON"),
        (b'{"all": [{} {}]}', "no JSON"),
        (b'{"all": [{},]}', r"all\[1\]: an object is needed"),
        (b'{"all": []', "no JSON"),
        (b'{"all": []} x', "goes on after"),
        (b'{"all": [], "all": []}', "twice in one object"),
        (b'{"all": [{}, {"a": {"b": 1, "b": 2}}]}', r"all\[1\]: .* twice in one object"),
        (b'{"all": [{"a": 1e999}]}', r"all\[0\]: .* too large"),
        (b'{"all": [{"a": NaN}]}', "NaN"),
        (b'{"all": [{"a": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_list_is_read_as_strictly_as_a_body(raw: bytes, words: str):
    with pytest.raises(WireError, match=words) as refused:
        items(raw)

    assert refused.value.code == "bad_request"


@pytest.mark.parametrize("raw", [b'{"more": 1, "all": []}', b'{"all": [], "more": 1}'])
def test_what_stands_beside_the_list_is_refused_by_name(raw: bytes):
    with pytest.raises(WireError, match='"more"') as refused:
        items(raw)

    assert refused.value.code == "unpriced_tool"
