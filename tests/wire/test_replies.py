import pytest

from lockpin_core.wire.replies import UnreadableCount, count, error_type, first_count, json_bytes, read_object


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
