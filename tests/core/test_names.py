import pytest

from lockpin_core.names import canonical


@pytest.mark.parametrize(
    "text", ["", " ", "\t \n", ".", "..", " .. ", "a/b", "/", "a\nb", "a\x00", "\x1b[31m", "\u200b", "a\u2028", "\ud800", "x" * 129]
)  # fmt: skip
def test_nothing_may_be_called_so(text):
    assert canonical(text) is None


@pytest.mark.parametrize("text", ["x" * 128, "Fix login bug", "日本", "a:b@c%2F", "...", ".a", "a.", "%2e"])
def test_name_is_itself(text):
    assert canonical(text) == text


def test_name_is_one_in_every_spelling():
    assert canonical(" e\u0301 ") == canonical("\u00e9") == "\u00e9"
    assert canonical("e\u0301" * 128) == "\u00e9" * 128
