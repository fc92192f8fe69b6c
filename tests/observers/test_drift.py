from dataclasses import replace

import pytest

from lockpin_core.observers.drift import FIRST, Drift, Profile, Seen, after

USUAL = Seen("opus", 100, (800, 1000), "tools", "system")


def played(*calls):
    """Give the departures of each call after the first ten, which are `USUAL`."""
    profile, found = learnt(), []
    for call in calls:
        profile, drifts = after(profile, call)
        found.append([drift.kind for drift in drifts])
    return found


def learnt(*first):
    profile = Profile()
    for call in (*first, *[USUAL] * (FIRST - len(first))):
        profile, drifts = after(profile, call)
        assert drifts == ()
    return profile


def test_calls_like_the_first_ones_are_no_drift():
    assert played(*[USUAL] * 50) == [[]] * 50


def test_another_model_is_told_of_once_and_a_third_one_again():
    other = replace(USUAL, model="luna")

    assert played(other, other, replace(USUAL, model="sol"), other) == [["model"], [], ["model"], []]
    assert after(learnt(), other)[1] == (Drift("model", ["opus"], "luna"),)


def test_a_model_that_was_among_the_first_or_that_the_client_has_beside_its_own_is_none():
    side = replace(USUAL, model="claude-haiku-4-5", nano=1)

    assert after(learnt(side), replace(side, nano=500))[1] == ()
    assert after(learnt(), replace(side, beside=("*haiku*",)))[1] == ()
    assert [one.kind for one in after(learnt(), replace(side, beside=("*nano*",)))[1]] == ["model"]


@pytest.mark.parametrize("kind", ["tools", "system"])
def test_other_tools_or_another_system_prompt_are_told_of_once_each_where_they_were_always_the_same(kind):
    one, two, unseen = (replace(USUAL, **{kind: value}) for value in ("one", "two", None))

    assert played(one, one, two, one, unseen) == [[kind], [], [kind], [], []]
    assert after(learnt(one), two)[1] == ()  # they changed among the first calls already
    assert after(learnt(unseen), two)[1] == (Drift(kind, getattr(USUAL, kind), "two"),)


def test_a_cost_of_more_than_three_times_the_median_of_its_model_is_told_of_once():
    first = [replace(USUAL, nano=nano) for nano in (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)]
    profile = learnt(*first)  # the median, the higher of the two: 60

    assert after(profile, replace(USUAL, nano=180))[1] == ()
    profile, found = after(profile, replace(USUAL, nano=181))
    assert found == (Drift("cost", {"model": "opus", "median_nano": 60}, 181),)
    assert after(profile, replace(USUAL, nano=10**9))[1] == ()


def test_each_models_cost_is_compared_with_its_own_and_not_before_there_are_three_of_it():
    side = replace(USUAL, model="haiku", nano=1)
    dear = replace(side, nano=90)

    assert [one.kind for one in after(learnt(side, side, side), dear)[1]] == ["cost"]
    assert after(learnt(side, side), dear)[1] == ()
    assert after(learnt(side, side, side), replace(USUAL, nano=300))[1] == ()


def test_a_lost_cache_shows_over_the_last_five_calls_together():
    lost = replace(USUAL, prompt=(0, 1000))
    bit = replace(USUAL, prompt=(499, 1000))  # 499 of 5000 is under a tenth, 500 is not

    assert played(lost, lost, lost, lost, lost, lost) == [[], [], [], [], ["cache"], []]
    assert played(lost, lost, bit, lost, lost)[-1] == ["cache"]
    assert played(lost, lost, replace(bit, prompt=(500, 1000)), lost, lost)[-1] == []
    assert played(USUAL, *[lost] * 4)[-1] == []


def test_a_cache_that_was_never_good_cannot_be_lost():
    def first(read):
        return [replace(USUAL, prompt=(read, 1000))] * FIRST

    lost = replace(USUAL, prompt=(0, 1000))
    for read, kinds in ((500, ["cache"]), (499, [])):
        profile = learnt(*first(read))
        for _ in range(5):
            profile, found = after(profile, lost)
        assert [one.kind for one in found] == kinds


def test_a_profile_is_read_back_as_it_was_kept():
    profile, _ = after(learnt(), replace(USUAL, model="sol", tools="x"))

    kept = Profile.read(profile.data())

    assert kept == replace(profile, last=())
    assert Profile.read({}) == Profile()
    assert kept.told == {"model sol", "tools x"}


def test_no_more_than_a_hundred_departures_of_a_task_are_told_of():
    calls = [replace(USUAL, model=f"m{number}") for number in range(150)]

    assert sum(map(len, played(*calls))) == 100
