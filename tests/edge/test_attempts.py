"""Calls that fail are sent again, through real processes: the origin's log says how often, the ledger at what price."""

import contextlib
import json
import math
import sqlite3

import pytest
import tries
from streams import IN_NANO, OUT_NANO
from tries import BARE, CUT, DROP, EMPTY, PLAIN, busy

from lockpin_core.ledger import listing
from lockpin_core.readers.calls import receipt_of, summary

TASK_NANO = 10_000_000  # each task's own budget: about 2,000 tokens of output
CONFIG = "task: {budget_usd: 0.01}\nfit: {output: false}\n"
STATUSES = (408, 429, 500, 502, 503, 504, 529)
FREE = {408, 429}
GARBAGE = {"before": "no reply at all\r\n\r\n", "body": ""}
FAILURES = {str(status): busy(status) for status in STATUSES} | {
    "dropped": DROP, "garbage": GARBAGE, "cut error": busy(503, cut_after=9), "empty": EMPTY, "bare": BARE, "cut": CUT,
}  # fmt: skip


@pytest.fixture(scope="module")
def rigs(tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield {
            attempts: stack.enter_context(
                tries.running(tmp_path_factory.mktemp(f"attempts{attempts}"), attempts, CONFIG, kind)
            )
            for attempts, kind in ((1, "up"), (2, "mitmdump"), (3, "up"))
        }


def cost_of(failure: str, found: tries.Seen) -> int:
    """Say what an attempt that failed so is charged, by hand (SPEC §12)."""
    if failure in ("408", "429"):
        return 0
    if failure in ("empty", "bare", "cut"):
        return found.holds[0]["usd"]
    sent = found.requests[0]["body"].replace('"stream_options":{"include_usage":true},', "")
    return math.ceil(len(sent) / 3) * IN_NANO


def limit_of(rig, wire, failure, *, fits):
    """Choose an output limit with which a second hold fits beside a first attempt that failed, or just does not."""
    probe = tries.send(rig, wire, PLAIN, limit=1000, task=tries.new_task())
    base = probe.holds[0]["usd"] - 1000 * OUT_NANO
    if failure in ("empty", "bare", "cut"):
        return ((TASK_NANO // 2) - base) // OUT_NANO - 10 if fits else (TASK_NANO - base) // OUT_NANO
    return (TASK_NANO - base) // OUT_NANO - (100 if fits else 0)


@pytest.mark.parametrize("way", ["h1", "h2"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_the_matrix(rigs, attempts, failure, streamed, way):
    """Every failure, until the attempts are used up or the budget is, and one that the next attempt mends."""
    rig, wire, turn = rigs[attempts], "chat", FAILURES[failure]
    if failure in ("empty", "bare", "cut") and not streamed:
        pytest.skip("a reply that is read whole has no first byte of its own")
    good = tries.whole(wire) if streamed else PLAIN
    is_free = failure in ("408", "429")
    for fits in (True, False):
        limit = limit_of(rig, wire, failure, fits=fits)
        told = {"limit": limit, "task": tries.new_task(), "way": way, "stream": streamed}
        found = tries.send(rig, wire, turn, **told)
        tried = attempts if fits or is_free else 1
        if failure in ("empty", "bare", "cut"):
            tried = min(tried, 2)
        expected = [cost_of(failure, found)] * (1 if is_free else tried)
        assert len(found.requests) == tried
        assert found.charged == expected
        check_reply(found, turn)

        told["task"] = tries.new_task()
        found = tries.send(rig, wire, turn, good, **told)
        is_mended = attempts > 1 and (fits or is_free)
        assert len(found.requests) == 1 + is_mended
        if is_mended:
            assert found.answer.status == 200
            assert found.answer.headers["x-lockpin-call"] == found.holds[-1]["call"]
            assert found.ends[-1]["estimated"] == 0
            assert found.charged[:-1] == ([] if is_free else [cost_of(failure, found)])
        else:
            check_reply(found, turn)
        check_books(rig, told["task"])


def check_reply(found, turn):
    """The client has the provider's own reply, or where there was none the proxy's word for that."""
    if "cut_after" in turn and "status" in turn:
        assert found.answer.status == 502
    elif "status" in turn:
        assert found.answer.status == turn["status"]
        assert found.answer.body.decode() == turn["body"]
        assert found.answer.headers["x-lockpin-call"] == found.holds[-1]["call"]
    elif turn in (EMPTY, BARE):
        assert (found.answer.status, found.answer.body) == (200, b"")


def check_books(rig, task):
    (account,) = rig.proxy.rows("SELECT * FROM accounts WHERE budget = 'task' AND subject = ?", task)
    (rows,) = rig.proxy.rows("SELECT coalesce(sum(usd), 0) AS usd FROM rows WHERE kind = 'charge' AND task = ?", task)
    assert (account["held_nano"], account["spent_nano"]) == (0, rows["usd"])
    assert account["spent_nano"] <= TASK_NANO


def test_the_receipt_says_which_attempt_it_was(rigs):
    found = tries.send(rigs[3], "chat", busy(503), busy(503), PLAIN, task=tries.new_task(), limit=500)

    told = json.loads(found.answer.headers["x-lockpin-receipt"])
    first, _, last = (hold["call"] for hold in found.holds)
    assert (told["id"], told["attempt"], told["of"], told["first_call"]) == (last, 3, 3, first)
    with contextlib.closing(sqlite3.connect(rigs[3].proxy.ledger)) as books:
        books.row_factory = sqlite3.Row
        row = listing.call(books, last)
        assert receipt_of(row) == told
        assert summary(row).endswith(", attempt 3 of 3")
        assert "attempt" not in receipt_of(listing.call(books, first))
