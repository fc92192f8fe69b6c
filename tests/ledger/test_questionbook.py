"""The contract on SQLite, and what other processes see of a question; after each test the books are proved."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockpin_core.errors import CommandError, LedgerUnavailable
from lockpin_core.ledger.protocol import Held
from lockpin_core.ledger.questions import ONCE, REFUSE
from lockpin_core.ledger.verify import verify
from lockpin_core.ledger.watchers import Watcher
from tests.ledger.desk import WAIT_S, SqliteDesk, call
from tests.ledger.questions_contract import (
    TASK,
    AttemptsContract,
    QuestionsContract,
    answer,
    ask,
    asking,
    once,
    own,
    spend,
)


class WatchedDesk(SqliteDesk):
    def open(self, **more):
        return super().open(ticks=lambda: 0.0, **more)

    def watch(self):
        self.watcher = Watcher(self.path, "eye", lambda: 0.0).__enter__()

    def stop_watching(self):
        self.watcher.__exit__(None, None, None)


@pytest.fixture
def desk(tmp_path):
    made = WatchedDesk(tmp_path)
    yield made
    assert verify(made.path).wrong is None
    made.close()
    assert verify(made.path).wrong is None
    assert made.query("SELECT * FROM allowances") == []


class TestQuestions(QuestionsContract):
    pass


class TestAttempts(AttemptsContract):
    pass


@pytest.fixture
def other(desk):
    """Another process on the same books."""
    made = desk.open()
    yield made
    made.stop()


def test_what_one_process_asks_another_sees_and_joins(desk, other):
    desk.watch()
    question = ask(desk)

    assert other.question(question.id).result(WAIT_S) == question
    assert other.ask(asking("c2")).result(WAIT_S) == question
    answered = answer(desk, question, REFUSE)
    assert desk.ledger.question(question.id).result(WAIT_S) == other.question(question.id).result(WAIT_S) == answered


def at_once(count, do):
    """Do something from so many threads at the same moment; give what each was given, or what it failed with."""
    start = threading.Barrier(count)

    def one(number):
        start.wait(WAIT_S)
        try:
            return do(number)
        except CommandError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_of_many_who_answer_at_once_the_first_is_heard(desk):
    desk.watch()
    question = ask(desk)

    told = at_once(8, lambda number: desk.admin.answer(question.id, (ONCE, REFUSE)[number % 2], who=f"p{number}"))

    (first,) = [each for each in told if not isinstance(each, CommandError)]
    assert desk.ledger.question(question.id).result(WAIT_S) == first
    assert all(f'was answered "{first.answer}" by {first.who}' in str(e) for e in told if e is not first)
    assert len(desk.query("SELECT 1 FROM rows WHERE code = 'question_answered'")) == 1


def test_of_many_who_take_an_answer_in_two_processes_one_gets_it(desk, other):
    spend(desk, "0.75")
    question = once(desk)

    def take(number):
        ledger = (desk.ledger, other)[number % 2]
        return ledger.hold(call(f"c{number}", "0.5"), TASK, allowed=question.id).result(WAIT_S)

    told = at_once(8, take)

    assert sum(isinstance(each, Held) for each in told) == 1
    assert own(desk) == ("0.75", "0.5", "1.25")


def test_a_ledger_that_is_closed_knows_no_question(desk):
    desk.watch()
    question = ask(desk)
    desk.ledger.stop()
    for asked in (desk.ledger.question(question.id), desk.ledger.ask(asking())):
        with pytest.raises(LedgerUnavailable, match="closed"):
            asked.result(WAIT_S)


def test_a_line_goes_a_day_after_its_end(desk):
    desk.watch()
    ask(desk)
    desk.clock.pass_by(days=1, seconds=119)
    assert len(desk.admin.questions()) == 1
    desk.clock.pass_by(seconds=2)
    assert desk.admin.questions() == []
    second = ask(desk, "c2")
    assert [row["id"] for row in desk.query("SELECT id FROM questions")] == [second.id]
