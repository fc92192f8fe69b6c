from dataclasses import replace

import nouns
import pytest

from lockpin_core.ladder import Room, Rung, room, rungs
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


def never() -> int:
    raise AssertionError("the largest limit was asked for in vain")


def test_a_limit_of_the_request_is_left_alone():
    assert list(rungs(may_set=False, in_force=32_000, floor=4096, largest_fitting=never)) == []


@pytest.mark.parametrize(
    ("fitting", "expected"),
    [
        (5000, [Rung(5000, "fit")]),
        (4096, [Rung(4096, "fit")]),
        (4095, []),
        (0, []),
        (31_999, [Rung(31_999, "fit")]),
        (32_000, []),  # nothing smaller: that one was tried
        (40_000, []),
    ],
)
def test_a_set_limit_shrinks_to_what_is_left_down_to_the_floor(fitting, expected):
    assert list(rungs(may_set=True, in_force=32_000, floor=4096, largest_fitting=lambda: fitting)) == expected
