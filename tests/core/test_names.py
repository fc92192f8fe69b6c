import pytest

from lockpin_core.names import canonical, canonical_user, reason, shown


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


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("alice@corp.com", "alice@corp.com"),
        ("Alice@Corp.com", "alice@corp.com"),
        (" \tALICE@CORP.COM\u00a0\n", "alice@corp.com"),
        ("ÄÖÉ", "äöé"),
        ("ΣΑΚΗΣ", "σακησ"),
        ("ЖЕНЯ", "женя"),
        ("ꭰᏣ", "ꭰꮳ"),  # Cherokee, whose small letters are the younger ones
        ("ǄǇ", "ǆǉ"),
        ("corp\\ann/7", "corp\\ann/7"),
    ],
)
def test_user_is_one_in_capitals_and_small_letters(text, user):
    assert canonical_user(text) == canonical_user(user) == user


# Each with what a careless comparison would take it for.
@pytest.mark.parametrize(
    ("letter", "other"),
    [
        ("\u212a", "k"), ("ſ", "s"), ("ı", "i"), ("İ", "i"), ("İ", "i̇"), ("ß", "ss"), ("ẞ", "ß"), ("ς", "σ"),
        ("\u2126", "ω"), ("\u212b", "å"), ("ǅ", "ǆ"), ("ϐ", "β"), ("ϴ", "θ"), ("µ", "μ"), ("ﬁ", "fi"), ("ａ", "a"),
        ("e\u0301", "é"),
    ],
)  # fmt: skip
def test_look_alike_is_another_user(letter, other):
    for user in (f"{letter}im@corp.com", f"{letter}IM@CORP.COM"):
        assert canonical_user(user) == f"{letter}im@corp.com" != canonical_user(f"{other}im@corp.com")


def test_no_two_letters_but_a_capital_and_its_own_small_one_are_the_same():
    users = {}
    for letter in map(chr, range(0x110000)):
        if (user := canonical_user(f"x{letter}x")) is not None:
            users.setdefault(user, []).append(letter)
    pairs = [letters for letters in users.values() if len(letters) > 1]

    assert len(pairs) > 1300
    assert all(len(letters) == 2 for letters in pairs)
    for first, second in pairs:
        big, small = (first, second) if first.lower() == second else (second, first)
        assert (big.lower(), small.upper()) == (small, big)


def test_form_of_a_user_is_its_own_form():
    for letter in map(chr, range(0x110000)):
        user = canonical_user(letter)
        assert user is None or canonical_user(user) == user


@pytest.mark.parametrize("text", ["", " \n", "a\x00", "a\nb", "\u200b", "a\u202eb", "\ud800", "x" * 257, " " * 2000])
def test_nobody_may_be_called_so(text):
    assert canonical_user(text) is None
    assert canonical_user("x" * 256) == "x" * 256


@pytest.mark.parametrize("text", ["", " \n", "\x1b[31mred", "a\x00", "a\u202eb", "a\u200bb", "x" * 501])
def test_reason_that_says_nothing_or_too_much_is_none(text):
    assert reason(text) is None


def test_reason_is_one_line():
    assert reason("  by\r\n the\tinvoice\u2028no. 7 ") == "by the invoice no. 7"
    assert reason("x" * 500) == "x" * 500


def test_text_is_shown_shortened_and_without_what_a_terminal_would_obey():
    assert shown("\x1b[31mä\u202e\n") == "\\x1b[31mä\\u202e\\n"
    assert shown("abcdef", 3) == "abc…"
