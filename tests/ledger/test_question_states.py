"""What `verify` says of questions and allowances that no ledger would write, and across a prune."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from lockpin_core.call import Void
from lockpin_core.ledger.allowances import Allowance
from lockpin_core.ledger.prune import KEPT_US, plan, prune
from lockpin_core.ledger.question_states import QuestionStates
from lockpin_core.ledger.verify import verify
from lockpin_core.ledger.watchers import Watcher
from tests.ledger.contract import hold, settle
from tests.ledger.desk import LIFETIME, SqliteDesk, call, machine, money, rules
from tests.ledger.everything import chain_anew, forging, tables_anew
from tests.ledger.questions_contract import TASK, allowed, once, own, spend

KEPT = timedelta(microseconds=KEPT_US)
MINUTE = 60 * 10**6


class WatchedDesk(SqliteDesk):
    def open(self, **more):
        return super().open(ticks=lambda: 0.0, **more)

    def watch(self):
        Watcher(self.path, "eye", lambda: 0.0).__enter__()


@pytest.fixture
def desk(tmp_path):
    made = WatchedDesk(tmp_path)
    yield made
    made.close()


def allowed_and_settled(desk):
    """Spend, allow a call once, and settle it: rows with all four events."""
    spend(desk, "0.75")
    allowed(desk, once(desk))
    settle(desk, "c1", "0.3")
    desk.ledger.stop()


def forge(desk, code, **change):
    """Change an event, with chains that fit again."""
    with forging(desk.path) as books:
        (text,) = books.execute("SELECT data FROM rows WHERE code = ?", (code,)).fetchone()
        data = json.dumps({**json.loads(text), **change}, sort_keys=True, separators=(",", ":"))
        books.execute("UPDATE rows SET data = ? WHERE code = ?", (data, code))
        chain_anew(books)


@pytest.mark.parametrize(
    ("code", "change", "words"),
    [
        ("question_asked", {"question": "1"}, "it is no question that a ledger puts"),
        ("question_asked", {"short_nano": 1, "needed_nano": 1}, "it allows more than question"),
        (
            "question_asked",
            {"user": "ann@corp.com"},
            "call c1 is not of the user whom the question before it was about",
        ),
        ("question_answered", {"answer": "refuse"}, 'was not answered "once" for a call of task "t", or is used'),
        ("question_answered", {"answer": "stop"}, '"stop" is no answer to question'),
        ("question_answered", {"question": "1"}, "question 1 waits for no answer"),
        ("allowed_once", {"by_nano": 0}, "it allows more than question"),
        ("allowed_once", {"by_nano": 9 * 10**8}, "it allows more than question"),
        ("allowed_once", {"by_nano": 24 * 10**7}, "passes the limit of"),
        ("allowed_once", {"call": "c9"}, "the row before it is of call c9, whose hold does not follow"),
        ("allowed_once", {"account": "daily\x1fmachine\x1fm\x1f2026-10-21T00:00:00Z"}, "is not the own budget of"),
        ("allowed_once", {"loosens": False}, "it loosens a limit, and says otherwise"),
        ("allowance_ended", {"by_nano": 21 * 10**7}, "what was taken back of its allowance is not $0.21"),
        ("allowance_ended", {"by_nano": 0}, "what was taken back of its allowance is not $0"),
        ("allowance_ended", {"by_nano": 26 * 10**7}, "it takes back what call c1 was not allowed"),
        ("allowance_ended", {"call": "c9"}, "it takes back what call c9 was not allowed"),
    ],
)
def test_an_event_that_no_ledger_writes_is_named(desk, code, change, words):
    allowed_and_settled(desk)
    assert verify(desk.path).wrong is None

    forge(desk, code, **change)

    assert words in verify(desk.path).wrong.words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"by_nano": 26 * 10**7}, "it passes on what call c1 was not allowed"),
        ({"call": "c9"}, "it passes on what call c9 was not allowed"),
        ({"to": "c9"}, "the row before it is of call c9, whose hold does not follow"),
    ],
)
def test_what_one_attempt_leaves_to_the_next_is_judged(desk, change, words):
    spend(desk, "0.75")
    allowed(desk, once(desk))
    desk.ledger.replace("c1", Void("failed"), call("c2", "0.5"), TASK, keep=False).result(20)
    desk.ledger.shrink("c2", money("0.2"), 0).result(20)
    settle(desk, "c2", "0.1")
    desk.ledger.stop()
    assert verify(desk.path).wrong is None

    forge(desk, "allowance_passed_on", **change)

    assert words in verify(desk.path).wrong.words


@pytest.mark.parametrize("nano", [0, 19 * 10**7, 21 * 10**7])
def test_another_part_is_not_taken_back_though_the_charge_says_so_too(desk, nano):
    allowed_and_settled(desk)
    with forging(desk.path) as books:
        (text,) = books.execute("SELECT data FROM rows WHERE kind = 'charge' AND call = 'c1'").fetchone()
        data = json.loads(text)
        data["balances"][0][2] = 125 * 10**7 - nano
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        books.execute("UPDATE rows SET data = ? WHERE kind = 'charge' AND call = 'c1'", (text,))

    forge(desk, "allowance_ended", by_nano=nano)

    assert "the balances that it tells are not those that its rows say" in verify(desk.path).wrong.words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("allowance_ended", "nothing is said of what it was allowed and has not used"),
        ("allowed_once", "passes the limit of"),
        ("question_answered", 'was not answered "once"'),
    ],
)
def test_an_event_that_is_missing_is_missed(desk, code, words):
    allowed_and_settled(desk)
    with forging(desk.path) as books:
        (row,) = books.execute("SELECT id FROM rows WHERE code = ?", (code,)).fetchone()
        books.execute("DELETE FROM rows WHERE id = ?", (row,))
        books.execute("UPDATE rows SET id = -id WHERE id > ?", (row,))
        books.execute("UPDATE rows SET id = -id - 1 WHERE id < 0")
        chain_anew(books)

    assert words in verify(desk.path).wrong.words


def test_what_is_kept_of_an_allowance_is_compared(desk):
    spend(desk, "0.75")
    allowed(desk, once(desk))
    assert verify(desk.path).wrong is None
    with forging(desk.path) as books:
        books.execute("UPDATE allowances SET nano = nano + 1")
    assert "call c1: what it was allowed is kept otherwise than its rows say" in verify(desk.path).wrong.words
    with forging(desk.path) as books:
        books.execute("DELETE FROM allowances")
    assert "call c1: what it was allowed is not kept" in verify(desk.path).wrong.words


def test_an_allowance_whose_call_has_no_hold_is_named(desk):
    spend(desk, "0.75")
    allowed(desk, once(desk))
    with forging(desk.path) as books:
        books.execute("DELETE FROM rows WHERE kind = 'hold' AND call = 'c1'")
        books.execute("DELETE FROM open_holds")
        chain_anew(books)
        tables_anew(books)
    assert "call c1: it was allowed something, and is not open" in verify(desk.path).wrong.words


def test_a_question_is_forgotten_when_its_answer_is_good_for_nothing_any_more():
    states = QuestionStates()
    asked = {"question": "1", "kind": "approval", "until": 2 * MINUTE, "needed_nano": 5, "short_nano": 2}
    assert states.ask(asked, "t", 1, 0) is None
    answered = {"question": "1", "answer": "once"}
    given = {"question": "1", "call": "c1", "account": "a", "by_nano": 5}
    late = QuestionStates.of(json.loads(json.dumps(states.state())))

    assert states.answer(answered, MINUTE) is None
    assert "waits for no answer" in states.answer(answered, MINUTE)
    assert "waits for no answer" in late.answer(answered, 2 * MINUTE)
    again = QuestionStates.of(json.loads(json.dumps(states.state())))
    assert "was not answered" in again.allow(given, "u", MINUTE)
    assert "was not answered" in again.allow(given, "t", 11 * MINUTE + 1)
    assert states.allow(given, "t", 11 * MINUTE) is None
    assert "or is used" in states.allow({**given, "call": "c2"}, "t", 11 * MINUTE)
    assert states.allowances == {"c1": Allowance("a", 5)}
    assert QuestionStates.of(json.loads(json.dumps(states.state()))) == states
    states.forget("a")
    assert states.allowances == {}


def test_rows_of_what_was_allowed_may_be_taken_out_around_it(desk):
    """The cut is before the hold that is open, so right behind the event that has raised its limit."""
    ever = rules(machine("100", window=LIFETIME), own=replace(TASK.task_default, window=LIFETIME))
    spend(desk, "0.75", in_force=ever)
    allowed(desk, once(desk), in_force=ever)
    desk.ledger.defer("c1", KEPT + timedelta(days=20)).result(20)
    desk.clock.pass_by(seconds=KEPT.total_seconds() + 10**6)
    hold(desk, "later", "0", ever)

    taken = prune(desk.path, plan(desk.path, desk.clock()), clock=desk.clock, new_id=desk.new_id, who="ada")

    assert taken > 0
    (code,) = desk.query("SELECT kind FROM rows ORDER BY id LIMIT 1")[0]
    assert code == "hold"
    assert verify(desk.path).wrong is None
    settle(desk, "c1", "0.1")
    assert own(desk, ever) == ("0.85", "0", "1")
    assert verify(desk.path).wrong is None
