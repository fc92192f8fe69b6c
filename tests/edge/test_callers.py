"""Who is charged in team mode: the key's record alone says it, and what a request says of itself may only add."""

import asyncio
from concurrent.futures import Future
from datetime import UTC, datetime

import pytest
from lockpin_addons.callers import Caller, charged, record_of
from lockpin_addons.identity import IdentityError

from lockpin_core.call import Payers
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.keys import KeyRecord, digest_of

SECRET = "lp_" + "a1" * 26
AT = datetime(2026, 11, 30, tzinfo=UTC)
RECORD = KeyRecord(id="k_1", user="alice@corp.com", created=AT)
CALLER = Caller(
    "alice@corp.com", "k_1", team="web", groups=("ml", "platform"), ring="ring1", project="search",
    tags=(("env", "prod"), ("repo", "café")),
)  # fmt: skip
BARE = Caller("bob", "k_2")


def over(why):
    return KeyRecord(id="k_3", user="eve", created=AT, over=why)


def look(secret, found=None, *, error=None):
    asked = []

    def book(digest):
        asked.append(digest)
        future = Future()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)
        return future

    try:
        return asyncio.run(record_of(secret, book)), asked
    except IdentityError as fault:
        return (fault.code, str(fault)), asked


def test_a_key_is_found_by_its_digest_alone():
    assert look(SECRET, RECORD) == (RECORD, [digest_of(SECRET)])


@pytest.mark.parametrize("presented", [None, SECRET, SECRET[:-1], "x", "", SECRET.upper(), SECRET + "a"])
def test_without_a_known_key_nobody_is_charged(presented):
    (code, words), asked = look(presented)

    assert code == ("key_required" if presented is None else "key_unknown")
    assert asked == ([digest_of(SECRET)] if presented == SECRET else [])  # what is no key of ours is in no book
    assert SECRET not in words
    assert ("no whole Lockpin key" in words) == (presented not in (None, SECRET))


def test_a_revoked_key_is_as_unknown_as_any():
    assert look(SECRET, over("revoked"))[0] == look(SECRET)[0]


@pytest.mark.parametrize(("why", "words"), [("expired", "has expired"), ("rotated", "has a new secret by now")])
def test_a_key_whose_time_is_over_says_so(why, words):
    code, message = look(SECRET, over(why))[0]

    assert code == "key_expired"
    assert words in message and "k_3" in message and SECRET not in message


def test_keys_that_cannot_be_read_are_a_fault_of_ours():
    code, message = look(SECRET, error=LedgerUnavailable("the ledger was deleted while in use"))[0]

    assert (code, message) == (
        "keys_unavailable",
        "the keys cannot be read: the ledger was deleted while in use; nobody knows who calls, so the call was not sent",
    )


def test_a_record_says_who_pays_and_the_request_what_for():
    payers = Payers("fix", "box", tags=(("run", "7"),))

    assert charged(payers, CALLER) == Payers(
        "fix", "box", key="k_1", user="alice@corp.com", team="web", groups=("ml", "platform"), ring="ring1",
        project="search", tags=(("env", "prod"), ("repo", "café"), ("run", "7")),
    )  # fmt: skip


def test_what_a_request_says_already_of_itself_is_replaced():
    told = Payers("t", "box", key="k_9", user="boss", team="board", groups=("all",), ring="ring0")

    assert charged(told, BARE) == Payers("t", "box", key="k_2", user="bob")


@pytest.mark.parametrize("caller", [CALLER, BARE])
def test_a_project_that_is_not_the_keys_is_a_conflict(caller):
    with pytest.raises(IdentityError, match="a project comes from the key alone; leave the header out") as raised:
        charged(Payers("t", "box", project="billing"), caller)

    assert raised.value.code == "identity_conflict"


def test_the_keys_own_project_and_tags_may_be_said_again():
    told = Payers("t", "box", project="search", tags=(("env", "prod"),))

    assert charged(told, CALLER) == charged(Payers("t", "box"), CALLER)


def test_a_tag_of_the_keys_keeps_its_value():
    with pytest.raises(IdentityError, match='gives the key\'s own tag "env" another value; leave it out') as raised:
        charged(Payers("t", "box", tags=(("env", "dev"),)), CALLER)

    assert raised.value.code == "identity_conflict"


def test_a_keys_own_tags_count_among_a_calls_sixteen():
    more = tuple((f"t{n:02}", "1") for n in range(15))

    assert len(charged(Payers("t", "box", tags=more[:14]), CALLER).tags) == 16
    with pytest.raises(IdentityError, match="the call has more than 16 tags") as raised:
        charged(Payers("t", "box", tags=more), CALLER)
    assert raised.value.code == "bad_request"
