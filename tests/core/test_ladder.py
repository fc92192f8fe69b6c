from dataclasses import replace

import nouns
import pytest

from lockpin_core.ladder import Cheaper, Lowered, Room, Rung, ladder, lowered, room
from lockpin_core.money import Money

DAILY = nouns.budget()


def test_room_is_what_the_tightest_enforced_accounts_leave():
    standings = [
        nouns.standing(DAILY, limit="5", spent="1", held="0.5", limit_tokens=900, spent_tokens=100, held_tokens=50),
        nouns.standing(nouns.TASK, limit="4", spent="3"),
        nouns.standing(nouns.budget("tokens"), limit_tokens=800),
        nouns.standing(replace(DAILY, enforce=False), limit="0.1", limit_tokens=1),
    ]

    assert room(standings) == Room(Money.parse("1"), 750)


def test_room_without_a_limit_is_open():
    assert room([nouns.standing(nouns.TASK)]) == Room(None, None)
    assert room([]) == Room(None, None)


def test_room_may_be_negative():
    assert room([nouns.standing(DAILY, limit="1", spent="3")]) == Room(Money.parse("-2"), None)


class Facts:
    """How a call stands, as it is told."""

    def __init__(
        self, *, near: bool = False, cheaper: tuple[str, ...] = (), person: bool = False, asked: bool = False,
        turns: int = 0,
    ) -> None:  # fmt: skip
        self.near, self.others, self.person, self.asked, self.turns = near, cheaper, person, asked, turns

    def is_near_cap(self) -> bool:
        return self.near

    def has_turned(self) -> bool:
        self.turns -= 1
        return self.turns >= 0

    def cheaper(self) -> tuple[str, ...]:
        return self.others

    def is_for_a_person(self) -> bool:
        return self.person

    def was_asked(self) -> bool:
        return self.asked


def test_a_call_is_counted_then_waits_or_is_lowered():
    assert list(ladder(Facts())) == [Rung.AS_SENT, Rung.COUNTED, Rung.LATER_OR_LOWER]


def test_all_rungs_come_in_the_order_of_the_contract():
    """SPEC §8: 5 hold, 6 count, 7 five-minute cache, then trim, 8 wait, 9 lower, 10 cheaper, 11 ask."""
    assert list(ladder(Facts(near=True, cheaper=("a/x", "a/y"), person=True, asked=True))) == [
        Rung.AS_SENT,
        Rung.COUNTED,
        Rung.CACHE_5M,
        Rung.TRIMMED,
        Rung.LATER_OR_LOWER,
        Rung.LIGHTER_AND_LOWER,
        Cheaper("a/x"),
        Cheaper("a/y"),
        Rung.ASKED,
        Rung.AGAIN,  # SPEC §17: after an answer all of it
        Rung.LIGHTER_AND_LOWER,
        Cheaper("a/x"),
        Cheaper("a/y"),
    ]


def test_what_took_its_time_is_followed_by_a_last_look():
    assert list(ladder(Facts(cheaper=("a/x",))))[-3:] == [Cheaper("a/x"), Rung.AGAIN, Cheaper("a/x")]
    assert list(ladder(Facts(person=True, asked=True)))[-2:] == [Rung.ASKED, Rung.AGAIN]
    assert list(ladder(Facts(person=True)))[-2:] == [Rung.LATER_OR_LOWER, Rung.ASKED]  # nobody watches


@pytest.mark.parametrize("near", [False, True])
def test_what_was_not_so_before_a_wait_is_tried_after_it(near):
    """Its end may be what takes the task near its cap, and then calls may be smaller and lighter than before."""
    rungs, facts = [], Facts(turns=1)
    for rung in ladder(facts):
        rungs.append(rung)
        facts.near = near and Rung.LATER_OR_LOWER in rungs

    lighter = [Rung.CACHE_5M, Rung.TRIMMED]
    assert rungs == [
        Rung.AS_SENT,
        Rung.COUNTED,
        Rung.LATER_OR_LOWER,
        *(lighter if near else []),
        Rung.LATER_OR_LOWER,
        *([Rung.LIGHTER_AND_LOWER] if near else []),
    ]


def test_a_turn_that_is_seen_at_the_last_look_is_followed_too():
    rungs, facts = [], Facts(cheaper=("a/x",))
    for rung in ladder(facts):
        if rung is Rung.AGAIN:
            facts.turns = 1
        rungs.append(rung)

    assert rungs[-3:] == [Rung.AGAIN, Rung.LATER_OR_LOWER, Cheaper("a/x")]


def test_nothing_is_asked_of_the_facts_before_it_matters():
    class Never(Facts):
        def is_near_cap(self) -> bool:
            raise AssertionError("asked in vain")

    rungs = ladder(Never())

    assert [next(rungs), next(rungs)] == [Rung.AS_SENT, Rung.COUNTED]


def never() -> int:
    raise AssertionError("the largest limit was asked for in vain")


def test_a_limit_that_must_stay_is_left_alone():
    assert lowered(may_lower=False, in_force=32_000, floor=4096, largest_fitting=never) is None


@pytest.mark.parametrize(
    ("fitting", "expected"),
    [
        (5000, Lowered(5000)),
        (4096, Lowered(4096)),
        (4095, None),
        (0, None),
        (31_999, Lowered(31_999)),
        (32_000, None),  # nothing smaller: that one was tried
        (40_000, None),
    ],
)
def test_a_limit_shrinks_to_what_is_left_down_to_the_floor(fitting, expected):
    assert lowered(may_lower=True, in_force=32_000, floor=4096, largest_fitting=lambda: fitting) == expected
