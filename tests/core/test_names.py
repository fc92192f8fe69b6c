import pytest

from lockpin_core.names import canonical, canonical_tag, canonical_user, reason, shown, why_not


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


KEY = "lp_" + "a1" * 26
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5AY29ycC5jb20ifQ.xhYxl3fGYGPZ2LXvJmPCTg"  # {"alg":"HS256"}, {"sub":"ann@corp.com"}


@pytest.mark.parametrize("secret", [KEY, KEY.upper(), "lp%5F" + KEY[3:], f"x{KEY}x", JWT, f"x.{JWT}"])
def test_nothing_that_is_kept_has_a_secret_in_it(secret):
    for text in (secret, f"key {secret} leaked"):
        assert canonical(text) is canonical_user(text) is reason(text) is None
        assert canonical_tag(f"env={text}") is canonical_tag(f"{text}=ci") is None
        assert why_not("task name", text, "some") == "the task name has a key's secret or a token in it; leave that out"
        assert secret[3:30] not in shown(f"{text}, and more", 500)


@pytest.mark.parametrize(
    "name", ["lp_migration", "eyes.of.tiger", "v1.2.3", "a1b2.c3d4.e5f6", "k-7f3c9x2m1q", "lp_" + "a" * 51]
)
def test_a_name_that_only_begins_like_a_secret_is_one(name):
    assert canonical(name) == canonical_user(name) == reason(name) == shown(name) == name


def test_a_secret_is_taken_out_of_what_is_shown_and_the_rest_stays():
    assert shown(f"http://task:{KEY}@host, {JWT}; \u00e9") == "http://task:…@host, …; \u00e9"
    assert shown(f"a lp%5F{KEY[3:]}") == "…"


@pytest.mark.parametrize(
    ("text", "tag"),
    [("env=ci", ("env", "ci")), (" env = ci ", ("env", "ci")), ("a=b=c", ("a", "b=c")), ("b=x/y", ("b", "x/y")),
     ("cafe\u0301=1", ("caf\u00e9", "1"))],
)  # fmt: skip
def test_a_tag_is_read_into_its_one_form(text, tag):
    assert canonical_tag(text) == tag
    assert canonical_tag("=".join(tag)) == tag
