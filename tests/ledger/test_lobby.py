from concurrent.futures import Future
from datetime import timedelta

from lockpin_core.ledger.lobby import Lobby
from lockpin_core.ledger.operations import Operation
from lockpin_core.ledger.protocol import Closed, Wait
from lockpin_core.ledger.turns import Size, Stands, Waiter, make_ticket
from tests.ledger.desk import NOON, call, rules

CLOSED = Closed(NOON, "t")


def waiting(name):
    one, wait = call(name, "0.1"), Wait(timedelta(seconds=3))
    return Waiter(
        one, rules(), None, make_ticket(1, one, "w", 0, wait, Stands(("a",), ("a",))), 0.0, (Size(one.quote),)
    )


def asked(name, *, waits=True):
    return Operation(lambda books: None, Future(), kept=False, call_id=name, waits=waits)


def test_who_waits_is_not_told_and_gets_what_is_found_later():
    lobby, first, other = Lobby(), asked("c1"), asked("c2", waits=False)

    assert lobby.sort([(first, waiting("c1")), (other, CLOSED)]) == [(other, CLOSED)]

    found = lobby.answers_to([], [("c1", CLOSED), ("c3", CLOSED)])
    assert found == [(first, CLOSED)]
    assert lobby.sort(found) == found
    assert lobby.answers_to([], [("c1", CLOSED)]) == []


def test_who_begins_to_wait_and_ends_in_one_transaction_is_told_once():
    lobby, first = Lobby(), asked("c1")
    answers = [(first, waiting("c1"))]

    answers += lobby.answers_to(answers, [("c1", CLOSED)])

    assert lobby.sort(answers) == [(first, CLOSED)]
    assert lobby.clear() == []


def test_all_who_ask_for_a_call_are_told():
    lobby, first, again = Lobby(), asked("c1"), asked("c1")
    lobby.sort([(first, waiting("c1"))])
    lobby.sort([(again, waiting("c1"))])

    assert lobby.answers_to([], [("c1", None)]) == [(first, None), (again, None)]


def test_one_that_is_refused_beside_one_that_waits_leaves_it_there():
    lobby, first, other = Lobby(), asked("c1"), asked("c1", waits=False)
    lobby.sort([(first, waiting("c1"))])

    lobby.sort([(other, CLOSED)])

    assert lobby.clear() == [first]
    assert lobby.clear() == []
