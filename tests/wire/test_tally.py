import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import read_body
from lockpin_core.wire.tally import Nested, Shape, Tally, Unknown, as_json, scalars, shape, variant

THING = shape("a thing", "name size", {"parts": as_json}, uncounted="data", refused={"magic": "it costs"})


def tallied(text: str) -> Tally:
    tally = Tally()
    THING.read(read_body(text.encode()).members, tally)
    return tally


def test_keys_strings_and_numbers_are_counted():
    content = tallied('{"name": "abc", "size": 1.50, "other": -7, "flag": true, "none": null}').content()

    assert content.text_bytes == len("nameabcsize1.50other-7flagnone")
    assert content.strings == 8


def test_uncounted_field_is_left_out_with_its_key():
    assert tallied('{"data": "AAAA", "name": "b"}').content().text_bytes == len("nameb")


def test_nested_value_is_counted_as_json():
    content = tallied('{"parts": [[1, "é\\n"], {"k": null}]}').content()

    assert content.text_bytes == len('parts[[1, "é\\n"], {"k": null}]'.encode())
    assert content.strings == 4  # the key, 1, the text, "k"


def test_unknown_nested_field_is_refused_by_name_only():
    with pytest.raises(WireError) as refused:
        tallied('{"gadget": {"secret": "text"}}')

    assert refused.value.code == "unpriced_tool"
    assert str(refused.value) == 'field "gadget" of a thing is not known, so its cost cannot be bounded'


def test_refused_field_says_what_it_is():
    with pytest.raises(WireError, match=r'"magic" \(it costs\) cannot be priced in this version') as refused:
        tallied('{"magic": {}}')

    assert refused.value.code == "unpriced_tool"


@pytest.mark.parametrize("text", ['{"magic": null}', '{"magic": []}'])
def test_refused_field_without_a_value_passes(text: str):
    assert tallied(text).content().text_bytes == len("magic")


@pytest.mark.parametrize("key", ["Name", "NAME", "na_me", "na-me", "_name", "par\\u0074S", "Magic", "ſize"])
def test_look_alike_of_a_known_field_is_a_bad_request(key: str):
    with pytest.raises(WireError, match="it is spelled") as refused:
        tallied(f'{{"{key}": 1}}')

    assert refused.value.code == "bad_request"


@pytest.mark.parametrize("value", ['"x"', "5", "1.5", "true", "false"])
def test_plain_value_where_an_object_or_a_list_belongs_is_a_bad_request(value: str):
    with pytest.raises(WireError, match=r'"parts" of a thing is .*; an object or a list is allowed') as refused:
        tallied(f'{{"parts": {value}}}')

    assert refused.value.code == "bad_request"
    assert tallied('{"parts": null}').texts == ["parts"]


def test_field_that_may_be_plain_too_is_counted():
    either = shape("a thing", "parts", {"parts": as_json})
    tally = Tally()

    either.read({"parts": "abc"}, tally)
    either.read({"parts": [1]}, tally)

    assert tally.texts == ["parts", "abc", "parts", "[1]"]


REFERENCES = [
    "file_id",
    "fileIds",
    "image_url",
    "url",
    "uri",
    "document-ref",
    "cached_content",
    "prompt_id",
    "video_data",
]


@pytest.mark.parametrize("key", [*REFERENCES, "previous_anything_id", "conversationId", "thread_id"])
def test_unknown_field_that_sounds_like_a_reference_hides_input(key: str):
    assert tallied(f'{{"{key}": "x"}}').hidden == "reference"
    assert tallied(f'{{"{key}": null}}').hidden is None


@pytest.mark.parametrize("key", ["user_id", "session_id", "trace", "id", "title", "content_type", "profile", "curl"])
def test_unknown_field_of_another_name_is_text(key: str):
    assert tallied(f'{{"{key}": "x"}}').hidden is None


@pytest.mark.parametrize(("value", "hidden"), [("x", "reference"), (7, None), (True, None), (None, None)])
def test_shape_of_input_takes_any_unknown_text_for_a_reference(value: object, hidden: str | None):
    tally = Tally()

    shape("a part", "type", unknown=Unknown.HIDE).read({"type": "x", "new": value}, tally)

    assert tally.hidden == hidden


@pytest.mark.parametrize(
    "wary", [shape("a thing", "name", unknown=Unknown.REFUSE), shape("a thing", "name", wary="gad.et|x")]
)
def test_wary_shape_refuses_unknown_plain_values(wary: Shape):
    for value in ("x", 1, True, 1.5):
        with pytest.raises(WireError, match="is not known, so its cost cannot be bounded") as refused:
            wary.read({"Gad_get": value}, Tally())
        assert refused.value.code == "unpriced_tool"
    for value in (None, False):
        wary.read({"Gad_get": value}, Tally())


def test_unknown_object_in_history_is_counted_with_escapes_and_numbers_as_written():
    history = shape("a message", "role", nested_unknown=Nested.COUNT)
    value = '{"a": ["\\u00e9", 1.50000000000000000000000], "b": {}}'
    tally = Tally()

    history.read(read_body(f'{{"new": {value}, "none": {{}}}}'.encode()).members, tally)

    content = tally.content()
    assert content.text_bytes >= len("newnone" + value)
    assert content.hidden is None


@pytest.mark.parametrize("inner", ['{"file_id": "f"}', '[{"source": {"data": "QQ=="}}]', '{"a": [{"imageUrl": "x"}]}'])
def test_place_of_input_inside_an_unknown_object_hides_input(inner: str):
    history = shape("a message", "role", nested_unknown=Nested.COUNT)
    tally = Tally()

    history.read(read_body(f'{{"new": {inner}}}'.encode()).members, tally)

    assert tally.hidden == "reference"


def test_only_what_is_empty_passes_where_that_is_said():
    top = shape("the request", "name", refused={"magic": "it costs"}, nested_unknown=Nested.EMPTY)
    tally = Tally()
    top.read({"new": {}, "newer": [], "magic": []}, tally)
    assert tally.texts == ["new", "newer", "magic"]

    for value in ({"new": {"a": 1}}, {"new": [0]}, {"magic": {}}, {"new_model": {}}, {"name": {}}):
        with pytest.raises(WireError) as refused:
            top.read(value, tally)
        assert refused.value.code == "unpriced_tool"


def test_variant_is_chosen_by_type():
    rule = variant({"a": shape("an a", "type")}, {"b_": "it costs"}, "block", default=None)
    tally = Tally()
    rule({"type": "a"}, tally)
    assert tally.texts == ["type", "a"]

    for value, code in (
        ({"type": "c"}, "unpriced_tool"),
        ({"type": "b_2026"}, "unpriced_tool"),
        ({"type": ["a"]}, "bad_request"),
        ({}, "bad_request"),
        ("a", "bad_request"),
    ):
        with pytest.raises(WireError) as refused:
            rule(value, tally)
        assert refused.value.code == code


def test_scalars_are_plain_values_only():
    tally = Tally()
    scalars({"a": 1, "b": "x", "c": None}, tally)
    scalars(["a", "b"], tally)

    for value in ({"a": {}}, [["a"]]):
        with pytest.raises(WireError):
            scalars(value, tally)


def test_half_note_counts_eight_bytes_after_nfc():
    content = tallied('{"name": "\\ud834\\udd5e"}').content()

    assert (content.text_bytes, content.nfc_bytes) == (len("name") + 4, len("name") + 8)


def test_text_that_shrinks_by_nfc_is_counted_as_sent():
    content = tallied('{"name": "e\\u0301"}').content()

    assert content.text_bytes == content.nfc_bytes == len("name") + 3


def test_lone_surrogate_counts_three_bytes():
    assert tallied('{"name": "\\ud800"}').content().text_bytes == len("name") + 3


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=20), max_size=8))
def test_counts_are_those_of_the_single_texts(texts: list[str]):
    content = Tally(texts=texts).content()

    utf8 = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    nfc = sum(len(unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")) for text in texts)
    assert content.text_bytes == utf8
    assert content.nfc_bytes == max(utf8, nfc)
    assert content.strings == len(texts)
