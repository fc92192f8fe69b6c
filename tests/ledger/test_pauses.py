from datetime import timedelta

import pytest

from lockpin_core.call import Payers
from lockpin_core.clock import micros
from lockpin_core.config_near_cap import Breaker
from lockpin_core.ledger.pauses import (
    BREAKER,
    KEY,
    LOOP,
    TASK,
    BreakerRule,
    Pause,
    Recent,
    Subject,
    chosen,
    loosens,
    read_rule,
    rule_of,
    rule_terms,
    rule_words,
    subjects_of,
)
from tests.ledger.desk import NOON, money

AT = micros(NOON)
MINUTE = timedelta(minutes=1)
RULE = BreakerRule(money("1"), MINUTE, 5 * MINUTE, (TASK,))


def test_a_configuration_without_an_amount_has_no_breaker():
    assert rule_of(Breaker()) is None
    assert rule_of(Breaker(money("1"))) == RULE
    assert rule_of(Breaker(money("2"), 1500, 1000, "both")) == BreakerRule(
        money("2"), timedelta(seconds=1.5), timedelta(seconds=1), (TASK, KEY)
    )


def test_a_rule_is_read_back():
    assert read_rule(rule_terms(RULE)) == RULE
    assert rule_words(RULE) == "$1 in 1m by task, cooldown 5m"
    assert rule_words(None) == "off"


@pytest.mark.parametrize(
    ("before", "after", "is_looser"),
    [
        (None, RULE, False),
        (RULE, None, True),
        (RULE, RULE, False),
        (RULE, BreakerRule(money("1.1"), MINUTE, 5 * MINUTE, (TASK,)), True),
        (RULE, BreakerRule(money("0.9"), MINUTE, 5 * MINUTE, (TASK,)), False),
        (RULE, BreakerRule(money("1"), MINUTE / 2, 5 * MINUTE, (TASK,)), True),
        (RULE, BreakerRule(money("1"), 2 * MINUTE, 5 * MINUTE, (TASK,)), False),
        (RULE, BreakerRule(money("1"), MINUTE, 4 * MINUTE, (TASK,)), True),
        (RULE, BreakerRule(money("1"), MINUTE, 6 * MINUTE, (TASK, KEY)), False),
        (RULE, BreakerRule(money("1"), MINUTE, 5 * MINUTE, (KEY,)), True),
    ],
)
def test_a_change_loosens_where_it_may_let_through_what_was_stopped(before, after, is_looser):
    assert loosens(before, after) is is_looser


def test_a_task_is_each_users_own_and_a_key_is_nobodys_where_there_is_none():
    assert subjects_of(Payers("t", "m"), (TASK, KEY)) == (Subject(TASK, "t"),)
    payers = Payers("t", "m", key="k1", user="ann")
    assert subjects_of(payers, (TASK, KEY)) == (Subject(TASK, "t", "ann"), Subject(KEY, "k1"))
    assert subjects_of(payers, (KEY,)) == (Subject(KEY, "k1"),)


def test_charges_are_let_go_when_they_are_not_after_an_instant():
    recent = Recent()
    for at, nano in ((1, 5), (2, 7), (2, 1), (4, 9)):
        recent.add(at, nano)

    assert [(recent.pass_time(at), recent.total)[1] for at in (0, 1, 2, 3, 4)] == [22, 17, 9, 9, 0]


def test_of_several_pauses_the_breakers_last_end_is_told_and_then_the_loop():
    early, late = (Pause(AT, AT + seconds * 10**6, 1, {}) for seconds in (10, 20))
    loop = Pause(AT, None, 2, {"repeats": 20})
    task, key = Subject(TASK, "t"), Subject(KEY, "k")
    pauses = [(LOOP, task, loop), (BREAKER, task, late), (BREAKER, key, early)]

    found = [chosen(AT + seconds * 10**6, pauses) for seconds in (0, 19, 20)]

    assert [(one.kind, one.subject) for one in found] == [(BREAKER, "t"), (BREAKER, "t"), (LOOP, "t")]
    assert chosen(AT, []) is None


def test_a_pause_is_old_a_day_after_its_end():
    pause, day = Pause(AT, AT + 5, 1, {}), 24 * 3600 * 10**6

    assert [pause.is_old(at) for at in (AT + 4 + day, AT + 5 + day)] == [False, True]
    assert not Pause(AT, None, 1, {}).is_old(AT + 400 * day)
