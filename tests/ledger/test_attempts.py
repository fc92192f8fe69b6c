"""What is left of two attempts where the power goes, the disk fills up, or the breaker trips between them."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from faultvfs import FULL, faults, is_possible

from lockpin_core.call import Void
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.attempts import left_by
from lockpin_core.ledger.backlog import OpenHold
from lockpin_core.ledger.pauses import BreakerRule, Paused
from lockpin_core.ledger.protocol import Held
from lockpin_core.ledger.verify import verify
from tests.ledger import desk as d
from tests.ledger.contract import hold, settle
from tests.ledger.desk import WAIT_S, MemoryDesk, SqliteDesk, call, charge, machine, money, rules
from tests.ledger.test_durability import LostDesk

ONE = rules(machine("1"))
needs_faults = pytest.mark.skipif(not is_possible(), reason="this Python's SQLite is built in and cannot be reached")
OUTCOMES = {"charge": charge("0.1"), "void": Void("failed", failed=True)}


def swap(desk, before, after, outcome, *, keep, dollars="0.6", in_force=ONE):
    return desk.ledger.replace(before, outcome, call(after, dollars), in_force, keep=keep).result(WAIT_S)


def open_holds(desk):
    return [row["call"] for row in desk.query("SELECT call FROM open_holds")]


@needs_faults
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_when_the_power_goes_one_attempt_is_held_and_never_both_or_none(tmp_path, outcome, keep):
    images, chance = [], random.Random(7)
    with faults() as disk:
        desk = SqliteDesk(tmp_path)
        hold(desk, "c0", "0.6", ONE)
        disk.seen = lambda step: images.append(disk.image(chance if chance.random() < 0.5 else None))
        for number in range(3):
            _, held = swap(desk, f"c{number}", f"c{number + 1}", OUTCOMES[outcome], keep=keep)
            assert isinstance(held, Held)
        disk.seen = lambda step: None
        desk.close()

    seen = set()
    for number, image in enumerate(images):
        lost = LostDesk(tmp_path / f"lost{number}", image, desk.path)
        lost.calls()
        (one,) = open_holds(lost)
        seen.add(one)
    assert len(images) > 10
    assert seen >= {"c0", "c1", "c2"}


@needs_faults
@pytest.mark.parametrize("keep", [True, False])
def test_where_the_disk_is_full_nothing_has_happened_and_the_first_is_still_to_be_resolved(tmp_path, keep):
    failed = 0
    with faults() as disk:
        for number in range(30):
            desk = SqliteDesk(tmp_path / f"{number}")
            hold(desk, "c0", "0.6", ONE)
            disk.fail_after(number, FULL)
            try:
                swap(desk, "c0", "c1", charge("0.1"), keep=keep)
                now = "c1"
            except LedgerUnavailable:
                failed += 1
                now = "c0"
            disk.heal()
            first = desk.ledger.settle("c0", charge("0.1")).result(WAIT_S)
            assert first.charge.amount == money("0.1")
            desk.ledger.void("c1", Void("not_sent")).result(WAIT_S) if now == "c1" else None
            desk.look_after()
            assert open_holds(desk) == []
            assert [row["kind"] for row in desk.query("SELECT kind FROM rows WHERE call = 'c0'")] == ["hold", "charge"]
            desk.close()
            assert verify(desk.path).wrong is None
    assert failed > 10


@pytest.mark.parametrize("make", [lambda folder: MemoryDesk(), SqliteDesk], ids=["memory", "sqlite"])
@pytest.mark.parametrize("keep", [True, False])
def test_the_charge_of_the_first_may_trip_the_breaker_on_the_next(tmp_path, make, keep):
    minute = timedelta(minutes=1)
    quick = replace(ONE, breaker=BreakerRule(money("0.05"), minute, minute, ("task",)))
    desk = make(tmp_path)
    desk.ledger.define(quick, "lockpin.yaml").result(WAIT_S)
    hold(desk, "c0", "0.6", quick)

    resolved, found = swap(desk, "c0", "c1", charge("0.1"), keep=keep, in_force=quick)
    again = swap(desk, "c0", "c2", charge("0.1"), keep=keep, in_force=quick)

    assert (resolved.charge.amount, type(found)) == (money("0.1"), Paused)
    assert (again[0] is None, type(again[1])) == (keep, Paused)
    desk.close()


def test_accounts_that_only_one_of_both_is_on_stay_as_they_are():
    desk = MemoryDesk()
    hold(desk, "c0", "0.6", ONE)
    payers = call("look", "0").payers
    own, daily = desk.ledger.look(payers, "openai", "gpt-5.5", ONE).result(WAIT_S)
    before = OpenHold("c0", 0, 6 * 10**8, 100, [daily.account], "", "t")

    after = left_by((own, daily), before, (10**8, 20), {own.account: 10**8})

    assert after[0] == own
    assert (after[1].held, after[1].held_tokens) == (money("0"), 0)
    assert (after[1].spent, after[1].spent_tokens) == (money("0.1"), 20)


def test_a_third_attempt_follows_on_the_second(tmp_path):
    desk = SqliteDesk(tmp_path)
    hold(desk, "c0", "0.6", ONE)
    for number in range(3):
        swap(desk, f"c{number}", f"c{number + 1}", charge("0.1"), keep=False)
    settle(desk, "c3", "0.05")
    kinds = [(row["call"], row["kind"]) for row in desk.query("SELECT call, kind FROM rows WHERE call IS NOT NULL")]
    assert kinds == [
        ("c0", "hold"), ("c0", "charge"), ("c1", "hold"), ("c1", "charge"), ("c2", "hold"), ("c2", "charge"),
        ("c3", "hold"), ("c3", "charge"),
    ]  # fmt: skip
    assert d.nonzero(desk.accounts()) == desk.explained()
    desk.close()
