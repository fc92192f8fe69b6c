import gc

from lockpin_core.call import Doubt, Portion, Terms
from lockpin_core.usage import Unit
from lockpin_core.wire.portions import Portions

DOUBT = Doubt(Unit.INPUT, 1, frozenset({Unit.CACHE_WRITE_1H}))
TOLD = (
    Portion("x", {Unit.INPUT: 1, Unit.OUTPUT: 2}),
    Portion(None, {}),
    Portion("x", {Unit.OUTPUT: 3, Unit.INPUT: 0}, (DOUBT,), Terms("batch", "fast", "us")),
    Portion("x", {Unit.INPUT: 4, Unit.OUTPUT: 5}),
)


def kept(*portions: Portion) -> Portions:
    made = Portions()
    made.extend(portions)
    return made


def test_what_was_kept_comes_back_as_it_was_and_in_its_order():
    found = kept(*TOLD)

    assert [*found] == [*TOLD] == [found[number] for number in range(len(found))]
    assert (len(found), found[-1], [*found[1:3]]) == (4, TOLD[-1], [*TOLD[1:3]])
    assert not Portions()


def test_they_are_equal_to_what_they_hold():
    assert kept(*TOLD) == TOLD
    assert (TOLD == kept(*TOLD)) is True  # noqa: SIM300 - from the other side
    assert kept(*TOLD) != TOLD[:3]
    assert Portions() == ()
    assert Portions() != 3


def test_these_and_more_leave_these_as_they_were():
    found = kept(TOLD[0])

    assert found.also(TOLD[1:]) == TOLD
    assert found == TOLD[:1]


def test_very_many_of_them_are_nothing_to_be_looked_through_for_garbage():
    found = Portions()
    gc.collect()
    before = len(gc.get_objects())

    for number in range(10_000):
        found.extend([Portion("x", {Unit.INPUT: number, Unit.OUTPUT: number + 1}, (), Terms("batch"))])
    gc.collect()

    assert len(gc.get_objects()) - before < 1000
    assert found[9_999].usage == {Unit.INPUT: 9_999, Unit.OUTPUT: 10_000}
