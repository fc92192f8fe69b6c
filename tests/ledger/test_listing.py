import re
from datetime import timedelta

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.call import Quote, Void
from lockpin_core.ledger.protocol import Wait
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.refusals import budget_exceeded
from lockpin_core.usage import Unit
from tests.ledger.contract import hold, settle
from tests.ledger.desk import (
    CEILING,
    DAY,
    LIFETIME,
    NOON,
    WAIT_S,
    SqliteDesk,
    call,
    charge,
    machine,
    money,
    note,
    refusal,
    rules,
)

WIDE = rules(machine("1000"))


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def read(desk):
    with LedgerReader(desk.path) as reader:
        yield reader


def again(desk):
    """Stop and start: what is deferred and over is charged, once the new one has answered."""
    desk.ledger.stop()
    desk.ledger = desk.open()
    desk.ledger.look(call("none", "0").payers, "openai", "m", WIDE).result(WAIT_S)


def test_a_call_shows_what_is_held_of_it_and_at_its_end_what_was_held_last(desk, read):
    hold(desk, "c1", "5", WIDE, tokens=100)
    hold(desk, "c2", "4", WIDE, tokens=100)
    desk.ledger.shrink("c1", money("3"), 80).result(WAIT_S)
    desk.ledger.shrink("c1", money("2.5"), 80).result(WAIT_S)
    (last,) = desk.query("SELECT max(id), hash FROM rows WHERE kind = 'shrink'")

    found = read.call("c1")
    assert (found.state, found.held, found.held_tokens, found.hash) == ("open", money("2.5"), 80, last["hash"].hex())
    assert [(o.call, o.held, o.tokens) for o in read.open_holds()] == [
        ("c1", money("2.5"), 80),
        ("c2", money("4"), 100),
    ]

    resolved = settle(desk, "c1", "1")
    desk.admin.correct("c1", money("0.5"), reason="invoice", who="ada")

    ended = read.call("c1")
    assert (ended.held, ended.held_tokens, ended.charged) == (resolved.held, 80, money("0.5"))
    assert len(ended.corrections) == 1
    assert read.call("c2").held == money("4")


def test_a_call_that_waited_says_for_how_long(desk, read):
    hold(desk, "c1", "600", WIDE)
    desk.ledger.hold(call("c2", "600"), WIDE, None, Wait(timedelta(seconds=30)))
    desk.look_after()
    desk.clock.pass_by(seconds=5)
    settle(desk, "c1", "1")
    desk.look_after()
    assert read.call("c2").waited_ms == 5_012


def test_a_corrected_call_costs_what_it_was_corrected_to(desk, read):
    hold(desk, "c1", "5", WIDE)
    settle(desk, "c1", "2", estimated=True, reason="no_usage")
    desk.admin.correct("c1", money("0.75"), reason="invoice", who="ada")
    desk.admin.correct("c1", money("3"), reason="invoice", who="ada")

    found = read.call("c1")

    assert (found.state, found.charged, found.tokens, found.estimated, found.reason) == (
        *("charged", money("3"), 20, False, "no_usage"),
    )
    assert found.usage == charge("2").usage
    assert [(each.amount, each.code, each.reason, each.who) for each in found.corrections] == [
        (money("-1.25"), "corrected", "invoice", "ada"),
        (money("2.25"), "corrected", "invoice", "ada"),
    ]
    (last,) = desk.query("SELECT hash FROM rows WHERE kind = 'correction' ORDER BY id DESC LIMIT 1")
    assert found.hash == last["hash"].hex()


def test_a_void_that_was_corrected_is_charged(desk, read):
    hold(desk, "c1", "5", WIDE)
    desk.ledger.void("c1", Void("not_sent")).result(WAIT_S)
    desk.admin.correct("c1", money("0.5"), reason="it was billed", who="ada")

    assert (read.call("c1").state, read.call("c1").charged, read.call("c1").reason) == ("charged", money("0.5"), None)


def test_usage_that_came_late_is_the_calls_usage_and_no_estimate(desk, read):
    hold(desk, "c1", "5", WIDE)
    desk.ledger.defer("c1", timedelta(minutes=1)).result(WAIT_S)
    desk.clock.pass_by(minutes=2)
    again(desk)
    expired = read.call("c1")
    settle(desk, "c1", "0.5")

    found = read.call("c1")

    assert (expired.charged, expired.estimated, expired.reason, expired.usage) == (money("5"), True, "expired", {})
    assert (found.charged, found.estimated, found.reason, *(each.code for each in found.corrections)) == (
        *(money("0.5"), False, None, "late_usage"),
    )
    assert (found.usage[Unit.OUTPUT], found.tokens, found.model_served) == (10, 20, "gpt-5.5-2026-09-01")
    assert [row.id for row in read.calls(model="gpt-5.5-2026*")] == ["c1"]


def test_a_deferred_call_is_open_and_says_so(desk, read):
    hold(desk, "c1", "5", WIDE)
    hold(desk, "c2", "5", WIDE)
    desk.ledger.defer("c1", timedelta(hours=1)).result(WAIT_S)

    assert [(row.id, row.state, row.reason) for row in read.calls()] == [
        ("c2", "open", None),
        ("c1", "open", "deferred"),
    ]


def test_a_refused_call_shows_the_accounts_that_stood_in_its_way(desk, read):
    own = Budget("task", "task", LIFETIME, money("1"), own=True)
    daily = machine("3", limit_tokens=500)
    tokens = Budget("few", "machine", DAY, limit_tokens=10)
    held = hold(desk, "c1", "0.4", rules(daily, tokens, own=own))
    short = [standing for standing in held.standings if standing.budget.name != "few"]
    few = [standing for standing in held.standings if standing.budget.name == "few"]
    quote = Quote(money("9"), 100, CEILING)
    for name, standings in (("r1", short[:1]), ("r2", [*short, *few]), ("r3", few)):
        desk.ledger.refuse(note(name), budget_exceeded("t", quote, standings, NOON))
    desk.ledger.refuse(note("r4", code="bad_request"), refusal("bad_request"))
    again(desk)

    def balances(name):
        return [(b.budget, b.scope, b.subject, b.spent, b.held, b.limit) for b in read.call(name).balances]

    of_task = ("task", "task", "t", money("0"), money("0.4"), money("1"))
    assert balances("r1") == [of_task]
    assert balances("r2") == [of_task, ("daily", "machine", "m", money("0"), money("0.4"), money("3"))]
    assert (balances("r3"), balances("r4")) == ([], [])
    assert [(b.held_tokens, b.limit_tokens) for b in read.call("r2").balances] == [(0, None), (100, 500)]


def test_calls_of_one_instant_are_newest_first_of_all_kinds(desk, read):
    hold(desk, "c1", "1", WIDE)
    desk.ledger.uncapped(note("u1", code="no_limit"))
    desk.ledger.refuse(note("r1"), refusal())
    again(desk)
    hold(desk, "c2", "1", WIDE)
    desk.clock.pass_by(hours=1)
    hold(desk, "c3", "1", WIDE)

    everything = [row.id for row in read.calls()]
    assert (everything[:2], everything[-1], sorted(everything)) == (["c3", "c2"], "c1", ["c1", "c2", "c3", "r1", "u1"])
    assert [row.id for row in read.calls(task="t")] == everything
    assert [row.id for row in read.calls(since=NOON + timedelta(seconds=1))] == ["c3"]
    assert [row.id for row in read.calls(until=NOON + timedelta(seconds=1), task="t", limit=1)] == ["c2"]


def test_more_calls_than_are_read_at_once_stay_in_order(desk, read):
    for number in range(450):
        desk.ledger.uncapped(note(f"u{number:03}", code="no_limit", task="ab"[number % 2]))
    again(desk)

    assert [row.id for row in read.calls()] == [f"u{number:03}" for number in reversed(range(450))]
    assert [row.id for row in read.calls(model="gpt-5.?", limit=401)][-1] == "u049"
    assert [row.id for row in read.calls(model="gpt-5.[!5]")] == []


def test_a_list_is_of_one_instant(desk, read):
    for number in range(3):
        hold(desk, f"c{number}", "1", WIDE)
    listed = read.calls()

    first = next(listed)
    settle(desk, "c0", "1")

    assert (first.id, [(row.id, row.state) for row in listed]) == ("c2", [("c1", "open"), ("c0", "open")])
    assert read.call("c0").state == "charged"


def test_reading_goes_on_after_a_list_that_was_left(desk, read):
    hold(desk, "c1", "1", WIDE)
    hold(desk, "c2", "1", WIDE)
    for _ in read.calls():
        break

    assert (read.total().calls, len(list(read.calls()))) == (2, 2)


@pytest.mark.parametrize(
    "ask",
    [
        lambda read: list(read.calls(limit=5)),
        lambda read: list(read.calls(since=NOON, task="t", limit=5)),
        lambda read: list(read.calls(model="gpt-*", limit=5)),
        lambda read: read.call("c1", task="t"),
        lambda read: read.ids("c1"),
        lambda read: read.tasks(),
        lambda read: read.totals("task", since=NOON + timedelta(minutes=1), until=NOON + timedelta(minutes=47)),
        lambda read: read.totals("day", since=NOON + timedelta(minutes=1), task="t"),
        lambda read: read.total(until=NOON + timedelta(minutes=1)),
    ],
)
def test_nothing_that_people_ask_reads_all_rows(desk, read, ask):
    hold(desk, "c1", "5", WIDE)
    settle(desk, "c1", "2")
    asked = []
    read._connection.set_trace_callback(asked.append)
    ask(read)
    read._connection.set_trace_callback(None)

    steps = [
        step["detail"]
        for sql in asked
        if sql.lstrip().startswith(("SELECT", "WITH"))
        for step in read._connection.execute(f"EXPLAIN QUERY PLAN {sql}")
    ]
    assert steps
    assert [step for step in steps if re.match(r"SCAN (rows|held|f|r|s)\b|.*AUTOMATIC", step)] == []


@pytest.mark.parametrize(
    ("payer", "found"),
    [
        (("user", "ann"), ["c2", "c0"]),
        (("user", "an"), []),
        (("team", "web"), ["c0"]),
        (("key", "k-1"), ["c0"]),
        (("group", "ml"), ["c2", "c0"]),
        (("group", "m"), []),
        (("ring", "r1"), ["c2"]),
        (("project", "p"), ["c1"]),
        (("tag", "env=ci"), ["c1"]),
        (("tag", "env=c"), []),
        (("machine", "m"), ["r0", "c2", "c1", "c0"]),
        (("org", "org"), ["r0", "c2", "c1", "c0"]),
        (("task", "other"), ["c2"]),
    ],
)
def test_calls_of_one_payer_are_found_by_its_whole_name(desk, read, payer, found):
    hold(desk, "c0", "1", WIDE, user="ann", team="web", key="k-1", groups=("ml", "ops"))
    hold(desk, "c1", "1", WIDE, project="p", tags=(("env", "ci"), ("env2", "cia")))
    hold(desk, "c2", "1", WIDE, user="ann", groups=("ml",), ring="r1", task="other")
    desk.ledger.refuse(note("r0"), refusal())
    desk.look_after()

    assert [one.id for one in read.calls(payer=payer)] == found
    both = [one.id for one in read.calls(payer=payer, task="t", model="gpt-5*")]
    assert both == [call_id for call_id in found if call_id != "c2"]
