from contextlib import closing
from datetime import timedelta

import pytest

from lockpin_core.ledger.place import connect
from tests.ledger.desk import WAIT_S, MemoryDesk, SqliteDesk

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
