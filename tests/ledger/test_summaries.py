import json
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from lockpin_core.call import Void
from lockpin_core.clock import instant
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.summaries import GROUPS
from tests.ledger.contract import hold, settle
from tests.ledger.desk import NOON, WAIT_S, SqliteDesk, call, machine, money, note, parted, refusal, rules

WIDE = rules(machine("1000"))
COUNTED = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
NUMBERS = ("calls", "refused", "uncapped", "estimated_calls", *COUNTED, "spent", "estimated", "unpriced_calls")
BERLIN = ZoneInfo("Europe/Berlin")

PAYERS = (
    {},
    {"project": "p"},
    {"tags": (("env", "ci"),)},
    {"tags": (("env", "ci"), ("x", "y")), "ring": "r1"},
    {"user": "u", "team": "t", "groups": ("ml", "web")},
    {"user": "v", "groups": ("ml",)},
)
STEPS = (
    "hold",
    "hold",
    "hold",
    "settle",
    "estimate",
    "unpriced",
    "parted",
    "parted",
    "void",
    "defer",
    "defer",
    "late",
    "correct",
    "refuse",
    "uncap",
)


def play(desk, told):
    """Let things happen; a step that has no call to happen to is passed over."""
    opened, deferred, ended = [], [], []
    for number, (what, passed, task, pick) in enumerate(told):
        desk.clock.pass_by(minutes=passed, microseconds=pick)
        name, dollars = f"c{number:02}", str(pick + 1)
        more = PAYERS[pick % len(PAYERS)]
        if what in ("hold", "defer"):
            hold(desk, name, "9", WIDE, task=task, **more)
            (deferred if what == "defer" else opened).append(name)
            if what == "defer":
                desk.ledger.defer(name, timedelta(minutes=15)).result(WAIT_S)
        elif what == "refuse":
            desk.ledger.refuse(note(name, task=task), refusal())
        elif what == "uncap":
            desk.ledger.uncapped(note(name, code="no_limit", task=task))
        elif what == "late" and deferred:
            again(desk)  # what is open is charged, and what is deferred and over
            ended, opened = ended + opened, []
            settle(desk, deferred[pick % len(deferred)], dollars, shares=parted(dollars) if number % 2 else ())
        elif what == "correct" and ended:
            desk.admin.correct(ended[pick % len(ended)], money(f"0.{number:02}1"), reason="invoice", who="ada")
        elif what in ("settle", "estimate", "unpriced", "parted", "void") and opened:
            taken = opened.pop(pick % len(opened))
            ended.append(taken)
            facts = {"estimate": {"estimated": True, "reason": "no_usage"}, "unpriced": {"priced": False}}
            facts["parted"] = {"shares": parted(dollars, f"dear-{pick % 2}")}
            if what == "void":
                desk.ledger.void(taken, Void("not_sent")).result(WAIT_S)
            else:
                settle(desk, taken, dollars, **facts.get(what, {}))
    again(desk)


def again(desk):
    """Stop and start: what is deferred and over is charged, once the new one has answered."""
    desk.ledger.stop()
    desk.ledger = desk.open()
    desk.ledger.look(call("none", "0").payers, "openai", "m", WIDE).result(WAIT_S)


def keys_of(row, by, zone):
    when = instant(row["held_at"] or row["at"])
    if by == "day":
        return [when.astimezone(zone).date().isoformat()]
    if by == "group":
        return json.loads(row["groups"] or "[]") or [None]
    if by == "tag":
        return [f"{k}={v}" for k, v in json.loads(row["tags"] or "{}").items()] or [None]
    return [row[by] or None]


def answered(rows):
    """Put the shares of other models in rows of their own, and take them off those that they are in."""
    for row in rows:
        others = [one for one in json.loads(row["data"] or "{}").get("shares", ()) if one["model"] != row["model"]]
        names = ("usd", *COUNTED)
        yield row | {name: (row[name] or 0) - sum(one.get(name, 0) for one in others) for name in names if others}
        for one in others:
            nothing = {"estimated": None, "priced": None, "data": "{}"}
            yield row | nothing | {name: one.get(name, 0) for name in names} | {"model": one["model"]}


def added_up(rows, by, since, until, zone=UTC):
    """Add up every row by itself: the slow way, in other words than the program's."""
    found = {}
    rows = answered(rows) if by == "model" else rows
    for row in rows:
        when = instant(row["held_at"] or row["at"])
        if (since is not None and when < since) or (until is not None and when >= until):
            continue
        if row["kind"] in ("event", "shrink"):
            continue
        for key in keys_of(row, by, zone):
            sums = found.setdefault(key, dict.fromkeys(NUMBERS, 0))
            sums["calls"] += row["kind"] == "hold"
            sums["refused"] += (row["count"] or 0) if row["kind"] == "refusal" else 0
            sums["uncapped"] += row["kind"] == "uncapped"
            if row["kind"] in ("charge", "correction"):
                sums["spent"] += row["usd"]
                sums["unpriced_calls"] += row["priced"] == 0
                for name in COUNTED:
                    sums[name] += row[name] or 0
                if row["estimated"]:
                    sums["estimated_calls"] += 1
                    sums["estimated"] += row["usd"]
                if row["kind"] == "correction" and (was := json.loads(row["data"]).get("estimate_nano")) is not None:
                    sums["estimated_calls"] -= 1
                    sums["estimated"] -= was
    return {key: sums for key, sums in found.items() if any(sums.values())}


def shown(totals):
    found = {}
    for total in totals:
        sums = {name: getattr(total, name) for name in NUMBERS}
        sums |= {"spent": total.spent.nano, "estimated": total.estimated.nano}
        if any(sums.values()):
            found[total.key] = sums
    return found


def ends(dice):
    """Draw an end of a time: none, a whole quarter hour, the very instant of a row, or anything."""
    passed = timedelta(minutes=dice.randrange(0, 800))
    return dice.choice(
        [None, timedelta(minutes=15 * dice.randrange(60)), passed, passed, passed + timedelta(seconds=1)]
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_report_of_any_time_is_the_sum_of_its_rows(tmp_path, seed):
    dice, desk = random.Random(seed), SqliteDesk(tmp_path)
    told = [(dice.choice(STEPS), dice.randrange(20), dice.choice("ab"), dice.randrange(6)) for _ in range(80)]
    try:
        play(desk, told)
        rows = [dict(row) for row in desk.query("SELECT * FROM rows")]
        with LedgerReader(desk.path) as read:
            for _ in range(20):
                agree(read, rows, *(None if passed is None else NOON + passed for passed in (ends(dice), ends(dice))))
    finally:
        desk.close()


def agree(read, rows, since, until):
    """Compare the program's report of a time with the slow way, by everything."""
    for by in GROUPS:
        zone = BERLIN if by == "day" else UTC
        found = read.totals(by, since=since, until=until, zone=str(zone))
        assert shown(found) == added_up(rows, by, since, until, zone), (by, since, until)
        assert read.totals(by, since=since, until=until, zone=str(zone), limit=1) == found[:1]
        if until is None:
            assert read.count(by, since=since, zone=str(zone)) == len(found), (by, since)
    of_task = [row for row in rows if row["task"] == "a"]
    assert shown(read.totals("model", since=since, until=until, task="a")) == added_up(of_task, "model", since, until)
    whole = sum(sums["spent"] for sums in added_up(rows, "task", since, until).values())
    assert read.total(since=since, until=until).spent.nano == whole


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def read(desk):
    with LedgerReader(desk.path) as reader:
        yield reader


def spent(totals):
    return {total.key: total.spent.exact() for total in totals}


def test_a_charge_long_after_its_hold_is_in_the_quarter_hour_of_the_hold(desk, read):
    desk.clock.pass_by(minutes=7)
    hold(desk, "c1", "5", WIDE)
    desk.clock.pass_by(hours=9)
    settle(desk, "c1", "2")
    at = NOON + timedelta(minutes=7)

    just = {"since": at, "until": at + timedelta(microseconds=1)}
    assert (read.total(**just).calls, read.total(**just).spent) == (1, money("2"))
    for since, until in ((at + timedelta(microseconds=1), None), (None, at)):
        assert (read.total(since=since, until=until).calls, read.total(since=since, until=until).spent) == (
            0,
            money("0"),
        )


def test_a_late_usage_takes_the_estimate_away_where_it_was(desk, read):
    hold(desk, "c1", "5", WIDE)
    desk.ledger.defer("c1", timedelta(minutes=1)).result(WAIT_S)
    desk.clock.pass_by(minutes=2)
    again(desk)  # c1 is over, and charged in full

    before = read.total()
    settle(desk, "c1", "0.5")
    after = read.total()

    assert (before.spent, before.estimated, before.estimated_calls) == (money("5"), money("5"), 1)
    assert (after.spent, after.estimated, after.estimated_calls, after.output_tokens) == (
        money("0.5"),
        money("0"),
        0,
        10,
    )


def test_days_are_those_of_the_zone(desk, read):
    desk.clock.now = datetime(2026, 10, 24, 21, 59, 59, tzinfo=UTC)  # 23:59:59 in Berlin
    for number in range(3):  # Berlin's 25th has 25 hours
        hold(desk, f"c{number}", "5", WIDE)
        settle(desk, f"c{number}", str(number + 1))
        desk.clock.pass_by(seconds=1, hours=25 * number)

    assert spent(read.totals("day", zone="Europe/Berlin")) == {"2026-10-24": "1", "2026-10-25": "2", "2026-10-26": "3"}
    assert spent(read.totals("day", zone="UTC")) == {"2026-10-24": "3", "2026-10-25": "3"}
    # Kathmandu is 5 hours and three quarters ahead.
    assert spent(read.totals("day", zone="Asia/Kathmandu")) == {"2026-10-25": "3", "2026-10-26": "3"}


def test_the_dearest_come_first_and_a_limit_leaves_the_others_out(desk, read):
    for task, dollars in (("a", "1"), ("b", "3"), ("c", "2")):
        hold(desk, task, "5", WIDE, task=task)
        settle(desk, task, dollars)

    assert list(spent(read.totals("task"))) == ["b", "c", "a"]
    assert read.totals("task", limit=2) == read.totals("task")[:2]
    assert list(spent(read.totals("task", limit=2))) == ["b", "c"]
    assert len(read.totals("day", limit=1)) == 1


def test_an_end_inside_rows_that_were_taken_out_counts_its_whole_quarter_hour(desk, read):
    for number in range(4):  # at 12:00, 12:10, 12:20 and 12:30
        hold(desk, f"c{number}", "5", WIDE)
        settle(desk, f"c{number}", "1")
        desk.clock.pass_by(minutes=10)
    desk.ledger.stop()
    prune(desk, "c2")
    desk.ledger = desk.open()

    def since(minute):
        return read.total(since=NOON + timedelta(minutes=minute)).spent.exact()

    def until(minute):
        return read.total(until=NOON + timedelta(minutes=minute)).spent.exact()

    assert read.total().spent == money("4")
    assert (since(5), since(10), since(15), since(21)) == ("4", "4", "2", "2")  # the 12:15 quarter begins before 12:20
    assert (since(30), since(31)) == ("1", "0")
    assert (until(1), until(14), until(20), until(30), until(31)) == ("2", "2", "3", "3", "4")
    inside = {"since": NOON + timedelta(minutes=2), "until": NOON + timedelta(minutes=3)}
    assert read.total(**inside).spent == money("2")
    assert read.totals("task", since=NOON + timedelta(minutes=5), until=NOON + timedelta(minutes=5)) == []


def prune(desk, first_kept):
    """Take out the rows before a call's, as `checkpoint` tells a reader."""
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as books:
        (number,) = books.execute("SELECT id FROM rows WHERE call = ? AND kind = 'hold'", (first_kept,)).fetchone()
        books.execute("DELETE FROM rows WHERE id < ?", (number,))
        books.execute("INSERT INTO checkpoint VALUES (1, ?, '{}')", (number - 1,))
