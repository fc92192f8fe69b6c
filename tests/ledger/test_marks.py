from contextlib import closing
from datetime import timedelta

import pytest

from lockpin_core.call import Payers
from lockpin_core.ledger import listing
from lockpin_core.ledger.place import connect
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.verify import verify
from lockpin_core.readers.calls import receipt_of
from tests.ledger.desk import WAIT_S, MemoryDesk, SqliteDesk, call, charge, machine, rules

TALK, OTHER = b"t" * 32, b"o" * 32


@pytest.fixture(params=["memory", "sqlite"])
def desk(request, tmp_path):
    made = MemoryDesk() if request.param == "memory" else SqliteDesk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def on_disk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def marks(ledger, conversation=TALK):
    return ledger.marks(conversation).result(WAIT_S)


def test_nothing_is_remembered_of_a_conversation_at_first(desk):
    assert marks(desk.ledger) == {}


def test_marks_are_laid_over_those_before_and_none_takes_one_away(desk):
    desk.ledger.mark(TALK, {"trim": 3, "loop": {"a": [1, 2]}})
    desk.ledger.mark(TALK, {"trim": 5, "cut": True})
    assert marks(desk.ledger) == {"trim": 5, "cut": True, "loop": {"a": [1, 2]}}

    desk.ledger.mark(TALK, {"cut": None, "never": None})

    assert marks(desk.ledger) == {"trim": 5, "loop": {"a": [1, 2]}}


def test_those_that_have_a_mark_are_listed_from_an_instant_on(desk):
    ledger = desk.ledger
    ledger.mark(TALK, {"cut": True, "trim": 1})
    ledger.mark(OTHER, {"trim": 2})
    found, then = ledger.marked("cut", 0).result(WAIT_S)
    assert list(found) == [TALK]

    desk.clock.pass_by(seconds=1)
    assert list(ledger.marked("cut", then + 1).result(WAIT_S)[0]) == []
    ledger.mark(OTHER, {"cut": True})
    found, now = ledger.marked("cut", then + 1).result(WAIT_S)
    assert (list(found), now - then) == ([OTHER], 1_000_000)
    assert list(ledger.marked("cut", 0).result(WAIT_S)[0]) == [OTHER, TALK]

    ledger.mark(TALK, {"cut": None})
    assert list(ledger.marked("cut", 0).result(WAIT_S)[0]) == [OTHER]
    assert list(ledger.marked("cu", 0).result(WAIT_S)[0]) == []
    desk.clock.pass_by(days=30)
    assert list(ledger.marked("cut", 0).result(WAIT_S)[0]) == []


def test_what_another_process_wrote_is_come_upon(on_disk):
    other = on_disk.open()
    ledger = on_disk.ledger
    found, _ = ledger.marked("cut", 0).result(WAIT_S)
    before = ledger.others_wrote
    assert list(ledger.marked("cut", 0).result(WAIT_S)[0]) == list(found) == []
    assert ledger.others_wrote == before  # what it writes itself is nothing new

    other.mark(TALK, {"cut": True})
    marks(other)

    assert list(ledger.marked("cut", 0).result(WAIT_S)[0]) == [TALK]
    assert ledger.others_wrote == before + 1


def test_each_conversation_has_its_own_marks(desk):
    desk.ledger.mark(TALK, {"cut": True})

    assert marks(desk.ledger, OTHER) == {}


def test_what_was_given_to_remember_may_change_afterwards(desk):
    given = {"cut": True}
    desk.ledger.mark(TALK, given)
    marks(desk.ledger)
    given["cut"] = False

    assert marks(desk.ledger) == {"cut": True}


def test_marks_to_which_nothing_was_added_for_30_days_are_gone(desk):
    desk.ledger.mark(TALK, {"cut": True})
    assert marks(desk.ledger) == {"cut": True}

    desk.clock.pass_by(days=29, hours=23)
    assert marks(desk.ledger) == {"cut": True}
    desk.clock.pass_by(hours=1)
    assert marks(desk.ledger) == {}

    desk.ledger.mark(TALK, {"trim": 1})
    assert marks(desk.ledger) == {"trim": 1}


def test_other_processes_see_marks_and_so_does_one_that_begins_later(on_disk):
    other = on_disk.open()
    on_disk.ledger.mark(TALK, {"cut": True})
    marks(on_disk.ledger)

    assert marks(other) == {"cut": True}
    other.mark(TALK, {"trim": 2})
    assert marks(other) == marks(on_disk.ledger) == {"cut": True, "trim": 2}

    other.stop()
    on_disk.ledger.stop()
    on_disk.ledger = on_disk.open()
    assert marks(on_disk.ledger) == {"cut": True, "trim": 2}


def test_conversations_that_are_too_old_leave_the_file(on_disk):
    for number in range(3):
        on_disk.ledger.mark(b"%d" % number * 32, {"cut": True})
    marks(on_disk.ledger)
    on_disk.clock.now += timedelta(days=31)

    on_disk.ledger.mark(TALK, {"cut": True})
    marks(on_disk.ledger)

    with closing(connect(on_disk.path, read_only=True)) as books:
        assert books.execute("SELECT id FROM conversations").fetchall() == [(TALK,)]
        assert books.execute("SELECT count(*) FROM rows").fetchone() == (0,)


def test_marks_that_are_taken_away_leave_no_line(on_disk):
    on_disk.ledger.mark(TALK, {"cut": True})
    on_disk.ledger.mark(TALK, {"cut": None})
    marks(on_disk.ledger)

    with closing(connect(on_disk.path, read_only=True)) as books:
        assert books.execute("SELECT count(*) FROM conversations").fetchone() == (0,)


def test_what_a_tasks_first_calls_were_like_is_kept_as_it_was_said_last(desk):
    assert desk.ledger.profile("t").result(WAIT_S) == {}
    desk.ledger.keep_profile("t", {"models": ["a"]})
    desk.ledger.keep_profile("t", {"models": ["a", "b"]})

    assert desk.ledger.profile("t").result(WAIT_S) == {"models": ["a", "b"]}
    assert desk.ledger.profile("u").result(WAIT_S) == {}


def test_an_event_of_a_call_is_on_its_receipt_and_the_books_stay_sound(on_disk):
    for name in ("c1", "c2"):
        on_disk.ledger.hold(call(name, "0.1"), rules(machine("1")))
    for kind in ("model", "cost"):
        on_disk.ledger.tell("drift", {"call": "c1", "kind": kind}, "t")
    on_disk.ledger.tell("loop_found", {"call": "c1", "what": "same_request"}, "t")
    on_disk.ledger.settle("c1", charge("0.05")).result(WAIT_S)

    with LedgerReader(on_disk.path) as reader:
        assert receipt_of(reader.call("c1"))["drift"] == ["model", "cost"]
        assert "drift" not in receipt_of(reader.call("c2"))
        told = [(event.code, event.data) for event in reader.events() if event.data.get("call") == "c1"]
    assert ("loop_found", {"call": "c1", "what": "same_request"}) in told
    assert verify(on_disk.path).wrong is None


def test_a_task_is_stopped_for_the_calls_of_its_user_alone(desk):
    ann, bob = Payers("t", "m", user="ann"), Payers("t", "m", user="bob")

    assert desk.ledger.stop_task(ann, who="the loop check", data={"repeats": 20}).result(WAIT_S) is True
    assert desk.ledger.stop_task(ann, who="the loop check", data={"repeats": 21}).result(WAIT_S) is False

    assert desk.ledger.paused(ann).result(WAIT_S).kind == "loop"
    assert desk.ledger.paused(bob).result(WAIT_S) is None


def test_the_drift_of_calls_is_found_by_its_index(on_disk):
    with closing(connect(on_disk.path, read_only=True)) as books:
        plan = books.execute(f"EXPLAIN QUERY PLAN {listing._DRIFT}", ('["c1"]',)).fetchall()

    assert "USING INDEX rows_drift" in str([tuple(row) for row in plan])
