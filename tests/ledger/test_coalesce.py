import pytest

from lockpin_core.ledger.coalesce import ROWS_A_SECOND, Coalescer, Refused
from lockpin_core.refusals import STRANGERS
from tests.ledger.desk import note, refusal


def refused(name, *, task="t", code="budget_exceeded"):
    return Refused(note(name, task=task), refusal(code))


def test_the_first_hundred_of_a_second_are_written_one_by_one():
    coalescer = Coalescer()
    assert [len(coalescer.add(refused(f"r{n}"), 7)) for n in range(ROWS_A_SECOND)] == [1] * 100
    assert not coalescer.is_waiting


def test_the_surplus_is_one_row_when_the_second_is_over():
    coalescer = Coalescer()
    for n in range(150):
        coalescer.add(refused(f"r{n}"), 7)
    assert coalescer.is_waiting
    due = coalescer.add(refused("next"), 8)
    assert [(one.note.id, one.count) for one in due] == [("r100", 50), ("next", 1)]
    assert not coalescer.is_waiting


def test_tasks_and_codes_are_counted_apart():
    coalescer = Coalescer()
    for n in range(101):
        coalescer.add(refused(f"r{n}"), 7)
    assert len(coalescer.add(refused("other", task="u"), 7)) == 1
    coalescer.add(refused("x", code="task_closed"), 7)
    coalescer.add(refused("y"), 7)
    assert sorted((one.refusal.code, one.count) for one in coalescer.flush()) == [
        ("budget_exceeded", 2),
        ("task_closed", 1),
    ]
    assert coalescer.flush() == []


@pytest.mark.parametrize("code", sorted(STRANGERS))
def test_of_strangers_the_first_of_a_second_is_written_whatever_task_they_name(code):
    coalescer = Coalescer()

    written = [len(coalescer.add(refused(f"r{n}", task=f"t{n % 3}", code=code), 7)) for n in range(10)]

    assert written == [1] + [0] * 9
    assert sorted(one.count for one in coalescer.turn(8)) == [3, 3, 3]


def test_strangers_take_no_room_from_a_task_of_their_codes_name():
    coalescer = Coalescer()
    for n in range(5):
        coalescer.add(refused(f"s{n}", code="key_unknown"), 7)

    assert len(coalescer.add(refused("own", task="key_unknown"), 7)) == 1
