import hashlib
import re
from datetime import UTC, datetime, timedelta

import pytest

from lockpin_core.errors import CommandError
from lockpin_core.keys import KeyFacts, KeyRecord, digest_of, facts_of, is_secret, new_secret, over_at

NOON = datetime(2026, 10, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_secrets_differ_and_need_no_quotes_in_a_url_or_a_shell():
    made = {new_secret() for _ in range(1000)}

    assert len(made) == 1000
    assert all(re.fullmatch(r"lp_[0-9a-z]{52}", secret) for secret in made)


def test_all_256_bits_are_in_a_secret():
    # 2^256 - 1 in digits of five bits: the first has one bit, 51 are full.
    assert new_secret(lambda count: b"\xff" * count) == "lp_1" + "z" * 51
    assert new_secret(lambda count: bytes(count)) == "lp_" + "0" * 52
    assert new_secret(lambda count: bytes(count - 1) + b"\x21") == "lp_" + "0" * 50 + "11"
    asked = []
    new_secret(lambda count: asked.append(count) or bytes(count))
    assert asked == [32]


def test_secret_is_told_by_its_form():
    assert is_secret(new_secret())
    assert not any(map(is_secret, ["", "lp_", "sk-ant-123", "lp_" + "a" * 51, "lp_" + "A" * 52, f"{new_secret()}\n"]))


def test_digest_is_sha_256_of_whatever_a_caller_shows():
    assert digest_of("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest_of("ä\udcff") == hashlib.sha256(b"\xc3\xa4\xff").digest()


def test_facts_have_each_name_in_its_one_form():
    found = facts_of(
        " Alice@Corp.com ", team=" Web", groups=["platform", "ml", "ml "], ring="ring1", project="e\u0301",
        tags=["env = ci", "cost=7", "cost=7", "eq=a=b"], name="Alice’s laptop",
    )  # fmt: skip

    assert found == KeyFacts(
        user="alice@corp.com", team="Web", groups=("ml", "platform"), ring="ring1", project="\u00e9",
        tags=(("cost", "7"), ("env", "ci"), ("eq", "a=b")), name="Alice’s laptop",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"user": " "}, 'user " " is not allowed; 1 to 256 printable characters are'),
        ({"user": "a\nb"}, r'user "a\nb" is not allowed'),
        ({"team": ""}, 'team "" is not allowed; 1 to 128 printable characters without a slash'),
        ({"groups": ["a", "b/c"]}, 'group "b/c" is not allowed'),
        ({"ring": ".."}, 'ring ".." is not allowed'),
        ({"project": "x" * 129}, 'project "' + "x" * 40 + '…" is not allowed'),
        ({"name": "\x1b[31m"}, r'name "\x1b[31m" is not allowed'),
        ({"tags": ["env"]}, 'tag "env" is not allowed; k=v is, each of 1 to 128 printable characters without a comma'),
        ({"tags": ["=v"]}, 'tag "=v" is not allowed'),
        ({"tags": ["k="]}, 'tag "k=" is not allowed'),
        ({"tags": ["k=a,b"]}, 'tag "k=a,b" is not allowed; k=v is'),
        ({"tags": ["k=" + "a" * 129]}, 'tag "k=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…" is not allowed; k=v is'),
        ({"tags": [f"k{n}=a" for n in range(17)]}, "a key may have up to 16 tags, and these are 17"),
        ({"tags": ["k=a", "k=b"]}, 'tag "k" has two values; one is allowed'),
    ],
)
def test_what_is_no_name_is_one_line(facts, said):
    with pytest.raises(CommandError) as error:
        facts_of(**{"user": "ann"} | facts)

    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("what", ["user", "team", "groups", "ring", "project", "tags", "name"])
@pytest.mark.parametrize("form", ["{}", " {}\n", "k={}", "{}=v,", "http://task:{}@host"])
def test_secret_in_the_place_of_a_name_is_refused_and_not_repeated(what, form):
    secret = new_secret()
    value = form.format(secret)
    with pytest.raises(CommandError) as error:
        facts_of(**{"user": "ann"} | {what: [value] if what in ("groups", "tags") else value})

    assert secret[3:8] not in str(error.value)
    assert str(error.value).endswith("has a key's secret or a token in it; leave that out")


@pytest.mark.parametrize(
    ("expires", "revoked", "secret_until", "over"),
    [
        (None, None, None, None),
        (HOUR, None, HOUR, None),
        (timedelta(0), None, None, "expired"),
        (None, None, timedelta(0), "rotated"),
        (-HOUR, None, -HOUR, "expired"),
        (-HOUR, -HOUR, -HOUR, "revoked"),
        (HOUR, -HOUR, HOUR, "revoked"),
    ],
)
def test_key_is_over_at_its_first_end(expires, revoked, secret_until, over):
    ends = {"expires": expires, "revoked": revoked, "secret_until": secret_until}

    assert over_at(NOON, **{name: None if after is None else NOON + after for name, after in ends.items()}) == over


def test_secret_ends_with_its_key_or_before_it():
    def ends(expires, secret_until):
        return KeyRecord(id="k", user="u", created=NOON, expires=expires, secret_until=secret_until).ends()

    assert ends(None, None) is None
    assert ends(NOON, None) == ends(None, NOON) == ends(NOON, NOON + HOUR) == ends(NOON + HOUR, NOON) == NOON
