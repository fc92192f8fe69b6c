import json

import pytest

from lockpin_core.call import Payers
from lockpin_core.clock import micros
from lockpin_core.ledger.pause_states import PauseStates
from lockpin_core.ledger.pauses import LOOP, TASK, Pause, Subject, rule_terms
from tests.ledger.desk import NOON
from tests.ledger.pauses_contract import BY_BOTH, BY_TASK

AT = micros(NOON)
SECOND = 10**6
USD = 10**9
T = Subject(TASK, "t")
FACTS = {"task": "t"}
WHOSE = {"scope": TASK, "subject": "t"}


def nothing_before(subject, after_at, after_row):
    return ()


def unknown_before(subject, after_at, after_row):
    return None


@pytest.fixture
def states():
    made = PauseStates()
    assert made.apply("breaker_defined", {"source": "config", "loosens": False, **rule_terms(BY_TASK)}, 1, AT) is None
    return made


def charge(states, dollars, at=AT, earlier=nothing_before, **facts):
    states.charged({**FACTS, **facts}, int(dollars * USD), at, earlier)


def trip(states, dollars, *, row=9, at=AT, until=None, **more):
    until = at + 300 * SECOND if until is None else until
    figures = {"charged_nano": int(dollars * USD), "usd_nano": USD, "window_us": 60 * SECOND, "until": until}
    return states.apply("breaker_tripped", {**WHOSE, **figures, **more}, row, at)


def test_a_charge_above_the_amount_must_be_followed_by_a_trip(states):
    charge(states, 0.5)
    assert states.due == []

    charge(states, 0.75, AT + 59 * SECOND)

    assert states.missing() == 'task "t" was charged $1.25 within the window, and no pause is told'
    assert trip(states, 1.25, at=AT + 59 * SECOND) is None
    assert states.missing() is None
    assert states.refuses(Payers("t", "m"), AT + 60 * SECOND) == (
        'the calls of its task "t" pause until 2026-10-21T12:05:59Z'
    )
    assert states.refuses(Payers("t", "m"), AT + 359 * SECOND) is None


def test_a_trip_that_no_charge_explains_is_wrong(states):
    charge(states, 1)

    assert trip(states, 1.25) == 'no charge of task "t" explains it'


def test_a_trip_must_tell_what_was_charged(states):
    charge(states, 1.5)

    assert trip(states, 1.25) == 'task "t" was charged $1.5 within the window, and not $1.25'


def test_a_trip_must_be_by_the_rule_in_force(states):
    charge(states, 1.5)

    assert trip(states, 1.5, until=AT + 299 * SECOND) == "it is not by the breaker that is in force"
    assert states.apply("breaker_removed", {"source": "config", "loosens": True}, 3, AT) is None
    assert trip(states, 1.5) == "no breaker is in force"


def test_what_was_charged_before_the_breaker_was_there_is_asked_for(states):
    asked = []

    def before(subject, after_at, after_row):
        asked.append((subject, after_at, after_row))
        return [(AT - 30 * SECOND, USD)]

    charge(states, 0.5, earlier=before)

    assert (asked, states.due) == ([(T, AT - 60 * SECOND, 0)], [(T, 1_500_000_000)])


def test_what_cannot_be_known_is_not_judged_until_it_has_left_the_window(states):
    charge(states, 0.25, earlier=unknown_before)
    assert trip(states, 7) is None  # maybe

    states = PauseStates.of(json.loads(json.dumps(states.state())))
    states.pauses.clear()
    charge(states, 0.25, AT, unknown_before)
    charge(states, 5, AT + 59 * SECOND)
    assert states.due == []
    charge(states, 0.5, AT + 60 * SECOND)
    assert states.due == [(T, 5_500_000_000)]


def test_a_trip_right_after_a_checkpoint_may_follow_on_a_charge_before_it(states):
    states = PauseStates.of(json.loads(json.dumps(states.state())))
    assert trip(states, 1.5) is None

    states = PauseStates.of(json.loads(json.dumps(states.state())))
    states.pauses.clear()
    charge(states, 0.5, task="other")
    assert trip(states, 1.5) == 'no charge of task "t" explains it'


def test_a_task_and_a_key_are_due_one_after_the_other():
    states = PauseStates()
    states.apply("breaker_defined", {"source": "command", "loosens": False, **rule_terms(BY_BOTH)}, 1, AT)
    charge(states, 2, user="ann", key="k1")
    assert trip(states, 2, user="ann") is None
    assert states.missing() == 'key "k1" was charged $2 within the window, and no pause is told'

    assert trip(states, 2, scope="key", subject="k1") is None

    assert states.missing() is None


def test_stops_and_resets_are_of_what_pauses(states):
    who = {"who": "ada", "loosens": True}
    assert states.apply("task_stopped", {**WHOSE, "who": "ada", "repeats": 20}, 4, AT) is None
    assert states.pauses == {(LOOP, T): Pause(AT, None, 4, {"repeats": 20})}
    assert states.apply("task_stopped", {**WHOSE, "who": "ada"}, 5, AT) == 'task "t" was stopped before'
    assert states.refuses(Payers("t", "m"), AT) == 'the calls of its task "t" pause'
    assert states.apply("task_resumed", {**WHOSE, "who": "ada"} | {"loosens": False}, 5, AT) is not None
    assert states.apply("task_resumed", {**WHOSE, **who}, 6, AT) == 'task "t" was not stopped'
    assert states.apply("breaker_reset", {**WHOSE, **who}, 7, AT) == 'the calls of task "t" do not pause'


def test_a_change_of_the_rule_must_say_whether_it_loosens(states):
    dearer = {"source": "command", **rule_terms(BY_TASK), "usd_nano": 2 * USD}
    assert states.apply("breaker_defined", {**dearer, "loosens": False}, 3, AT) == (
        "it loosens the breaker, and says otherwise"
    )
    assert states.apply("breaker_removed", {"source": "command", "loosens": True}, 3, AT) == (
        "it does not loosen the breaker, and says otherwise"
    )
    assert states.apply("breaker_removed", {"source": "command", "loosens": False}, 4, AT) == (
        "no such breaker was in force"
    )


def test_a_state_is_read_back(states):
    charge(states, 1.5)
    trip(states, 1.5)
    states.apply("task_stopped", {**WHOSE, "who": "ada", "user": "ann"}, 4, AT)
    charge(states, 1.5, task="b")

    again = PauseStates.of(json.loads(json.dumps(states.state())))

    assert (again.rules, again.pauses, again.due) == (states.rules, states.pauses, states.due)


def test_pauses_that_mean_nothing_any_more_go_with_the_next_trip(states):
    charge(states, 2)
    trip(states, 2)
    later = AT + (24 * 3600 + 300) * SECOND
    charge(states, 2, later, task="b")

    assert trip(states, 2, at=later, subject="b") is None

    assert [subject.name for _, subject in states.pauses] == ["b"]
