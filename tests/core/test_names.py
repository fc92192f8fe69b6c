import pytest

from lockpin_core.names import canonical, reason, shown


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


@pytest.mark.parametrize("text", ["", " \n", "\x1b[31mred", "a\x00", "a\u202eb", "a\u200bb", "x" * 501])
def test_reason_that_says_nothing_or_too_much_is_none(text):
    assert reason(text) is None


def test_reason_is_one_line():
    assert reason("  by\r\n the\tinvoice\u2028no. 7 ") == "by the invoice no. 7"
    assert reason("x" * 500) == "x" * 500


def test_text_is_shown_shortened_and_without_what_a_terminal_would_obey():
    assert shown("\x1b[31mä\u202e\n") == "\\x1b[31mä\\u202e\\n"
    assert shown("abcdef", 3) == "abc…"
