import pytest

from lockpin_core.call import Content, Parsed
from lockpin_core.wire.replies import (
    MAX_KEPT_BYTES,
    Figure,
    UnreadableCount,
    WholeBody,
    count,
    error_type,
    first_count,
    json_bytes,
    read_object,
    read_value,
    term,
    word,
)


@pytest.mark.parametrize(
    ("value", "wanted"), [(None, 0), (0, 0), (7, 7), (7.0, 7), ("7", 7), ("7.0", 7), (10**15, 10**15)]
)
def test_count_is_read(value: object, wanted: int):
    assert count(value) == wanted


@pytest.mark.parametrize(
    "value",
    [-1, -1.0, 1.5, True, False, "", "-1", "1e3", "٣", " 7", "1" * 17, 10**15 + 1, float("nan"), float("inf"), [], {}],
)
def test_anything_else_is_no_count(value: object):
    with pytest.raises(UnreadableCount):
        count(value)


def test_first_count_takes_the_first_that_is_stated():
    assert first_count(None, 0, 5) == 0
    assert first_count(None, None) == 0


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"1", b"null", b'{"a":' + b"[" * 200_000, b'{"a":' + b"9" * 5000 + b"}"]
)
def test_what_is_no_object_is_none(data: bytes):
    assert read_object(data) is None


def test_object_is_read_after_blank_lines_and_with_broken_text():
    assert read_object(b'\xef\xbb\xbf\r\n\n {"a": "\xff", "b": 1}') == {"a": "\ufffd", "b": 1}


def test_number_with_a_fraction_keeps_its_text():
    found = read_object(b'{"a": 1.20e-05, "b": 7}')

    assert found == {"a": 1.2e-05, "b": 7}
    assert isinstance(found["a"], Figure)
    assert found["a"].text == "1.20e-05"


def test_value_is_read_whatever_follows():
    assert read_value(b'{"a": [1]}, "b": \xff') == {"a": [1]}
    assert read_value(b'"x"]') == "x"
    assert read_value(b"") is None
    assert read_value(b"{" * 200_000) is None


def test_error_is_named_by_the_first_key_that_names_it():
    assert error_type({"code": None, "type": "server_error"}, "code", "type") == "server_error"
    assert error_type({"code": 502}, "code", "type") == "502"
    assert error_type("stopped", "code") == "error"
    assert error_type({"code": True}, "code") == "error"
    assert error_type(None, "code") is None
    assert error_type({}, "code") is None


def test_bytes_of_json_are_counted_without_escapes():
    nested: object = "é"
    for _ in range(100_000):
        nested = [nested]

    assert json_bytes({"a": "é"}) == len('{"a": "é"}'.encode())
    assert json_bytes(nested) == 0


@pytest.mark.parametrize("value", ["gpt-5.5", "a", "a b", "~", "x" * 128, "anthropic/claude:beta@1"])
def test_name_of_printable_ascii_is_read(value: str):
    assert word(value) == term(value) == value


@pytest.mark.parametrize(
    "value",
    ["é", "a\n", "\na", "a\r\nx-header: 1", " a", "a ", "\x00", "\x7f", "\ud800", "x" * 129, " ", 5, [], {}, True],
)
def test_any_other_name_was_not_said_and_as_a_term_is_unknown(value: object):
    assert word(value) is None
    assert term(value) == "unreadable"


def test_term_that_is_absent_or_empty_was_not_said():
    assert term(None) is None
    assert term("") is None


def test_error_that_cannot_be_named_is_an_error():
    assert error_type({"code": "a\nb", "type": "server_error"}, "code", "type") == "server_error"
    assert error_type({"code": "é" * 9, "type": 10**200}, "code", "type") == "error"


def asked(*, streamed: bool) -> Parsed:
    return Parsed("m", streamed, Content(0, 0, 0, 0), None)


def test_body_beside_a_stream_is_kept_up_to_a_limit():
    start, end = b'{"a": "', b'"}'
    text = b"x" * (MAX_KEPT_BYTES - len(start + end))
    for more, found in ((b"", True), (b"x", False)):
        body = WholeBody(asked(streamed=True))
        for chunk in (start, text, more, end):
            body.feed(chunk)

        assert (body.read() is not None) is found
        assert found or body._kept == b""
    body.feed(b'{"a": 1}')
    assert body.read() is None


def test_whole_body_has_no_limit():
    for parsed in (None, asked(streamed=False)):
        body = WholeBody(parsed)
        body.feed(b'{"a": "' + b"x" * MAX_KEPT_BYTES + b'"}')
        assert body.read() is not None
