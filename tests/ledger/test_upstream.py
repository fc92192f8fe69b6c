"""Replies by their provider's id, on both ledgers; and on one file between processes."""

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lockpin_core.call import Ceiling, Terms, Void
from lockpin_core.errors import LedgerError
from lockpin_core.ledger import upstream
from lockpin_core.ledger.protocol import Held, Link
from lockpin_core.ledger.prune import plan, prune
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.verify import verify
from lockpin_core.usage import Unit
from tests.ledger.contract import ONE, hold, seen, settle
from tests.ledger.desk import LIFETIME, NOON, WAIT_S, MemoryDesk, SqliteDesk, call, charge, machine, money, rules
from tests.ledger.poller import ACCOUNT, link

ROOT = Path(__file__).resolve().parent.parent.parent
OTHER = bytes(16)
DAY = timedelta(hours=24)
CEILING = Ceiling(
    700, 300, frozenset({Unit.INPUT, Unit.CACHE_READ}), frozenset({Unit.OUTPUT}), {Unit.WEB_SEARCH: 3}, 7, 2**270 - 1,
    500, 220,
)  # fmt: skip
RICH = replace(
    call("c1", "0.5", tokens=1000, key="k", user="ann", team="red", groups=("a", "b"), ring="1", project="p",
         tags=(("branch", "main"), ("repo", "x"))),
    quote=replace(call("c1", "0.5", tokens=1000).quote, ceiling=CEILING),
    terms=Terms("flex", "fast", "eu"), asked_model="gpt-5.5-latest", billing="subscription", streamed=False,
)  # fmt: skip


@pytest.fixture(params=["memory", "sqlite"])
def desk(request, tmp_path):
    made = MemoryDesk() if request.param == "memory" else SqliteDesk(tmp_path)
    yield made
    made.close()
    if request.param == "sqlite":
        assert verify(made.path).wrong is None


@pytest.fixture
def file(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()
    assert verify(made.path).wrong is None


def chain(desk, upstream_id, account=ACCOUNT, provider="openai"):
    found = desk.ledger.chain(provider, account, upstream_id).result(WAIT_S)
    return None if found is None else found.tokens


def deferred(desk, upstream_id, account=ACCOUNT, provider="openai"):
    return desk.ledger.deferred(provider, account, upstream_id).result(WAIT_S)


def defer(desk, call_id, upstream_id, dollars="0.5", *, account=ACCOUNT, hold_for=DAY, **more):
    assert isinstance(hold(desk, call_id, dollars, **more), Held)
    desk.ledger.defer(call_id, hold_for, Link("openai", account, upstream_id)).result(WAIT_S)


def settle_as(desk, call_id, upstream_id, dollars, tokens=None, **more):
    return desk.ledger.settle(call_id, charge(dollars, **more), link(upstream_id, tokens)).result(WAIT_S)


def expire(desk, after=DAY):
    desk.clock.now += after
    desk.look_after()


def waiting(desk, upstream_id, account=ACCOUNT):
    """Give the call that waits under an id, and whether its time was over."""
    found = deferred(desk, upstream_id, account)
    return None if found is None else (found.call.id, found.resolved)


def test_a_settled_reply_says_what_its_chain_holds(desk):
    hold(desk, "c1", "0.5")
    settle_as(desk, "c1", "resp_1", "0.2", 1200)

    assert chain(desk, "resp_1") == 1200
    assert chain(desk, "resp_2") is None
    assert deferred(desk, "resp_1") is None


def test_an_id_is_one_of_its_account_and_its_provider(desk):
    defer(desk, "c1", "resp_1", "0.3")
    defer(desk, "c2", "resp_1", "0.3", account=OTHER)
    settle_as(desk, "c1", "resp_1", "0.2", 1200)

    assert chain(desk, "resp_1") == 1200
    assert chain(desk, "resp_1", account=OTHER) is None
    assert chain(desk, "resp_1", account=bytes([255] * 16)) is None
    assert chain(desk, "resp_1", provider="xai") is None
    assert (waiting(desk, "resp_1"), waiting(desk, "resp_1", OTHER)) == (None, ("c2", False))
    assert deferred(desk, "resp_1", OTHER, provider="xai") is None


def test_tokens_are_known_from_the_settlement_on_and_stay_known(desk):
    defer(desk, "c1", "resp_1")
    assert chain(desk, "resp_1") is None

    settle_as(desk, "c1", "resp_1", "0.2", 900)
    settle_as(desk, "c1", "resp_1", "0.2")  # another poll, of which less was read

    assert chain(desk, "resp_1") == 900


def test_an_id_that_names_two_calls_has_the_larger_chain_or_none(desk):
    for call_id, tokens in (("c1", 900), ("c2", 300)):
        hold(desk, call_id, "0.1")
        settle_as(desk, call_id, "resp_1", "0.1", tokens)
    assert chain(desk, "resp_1") == 900

    hold(desk, "c3", "0.1")
    settle_as(desk, "c3", "resp_1", "0.1")
    assert chain(desk, "resp_1") is None

    hold(desk, "c4", "0.1")
    settle_as(desk, "c4", "resp_1", "0.1", 5000)
    assert chain(desk, "resp_1") is None


def test_a_deferred_call_is_found_as_it_was_held(desk):
    assert isinstance(desk.ledger.hold(RICH, ONE).result(WAIT_S), Held)
    desk.clock.pass_by(minutes=5)
    desk.ledger.defer("c1", DAY, link("resp_1"), CEILING).result(WAIT_S)

    found = deferred(desk, "resp_1")

    assert (found.call, found.at, found.resolved) == (RICH, NOON, False)


def test_the_call_that_was_deferred_last_is_meant_by_an_id(desk):
    defer(desk, "c1", "resp_1", "0.3")
    defer(desk, "c2", "resp_1", "0.3")
    assert waiting(desk, "resp_1") == ("c2", False)


def test_a_call_in_flight_does_not_wait_for_usage(desk):
    hold(desk, "c1", "0.5")
    assert deferred(desk, "resp_1") is None


@pytest.mark.parametrize("estimated", [False, True])
def test_usage_settles_a_deferred_call_once(desk, estimated):
    defer(desk, "c1", "resp_1")

    found = deferred(desk, "resp_1")
    first = settle_as(desk, found.call.id, "resp_1", "0.2", estimated=estimated)
    again = settle_as(desk, found.call.id, "resp_1", "0.4")

    assert (first.first, again.first, again.charge.amount) == (True, False, money("0.2"))
    assert seen(desk)["daily"] == ("0.2", "0")
    assert deferred(desk, "resp_1") is None


def test_a_deferred_call_that_cost_nothing_waits_no_more(desk):
    defer(desk, "c1", "resp_1")
    desk.ledger.void("c1", Void("cancelled")).result(WAIT_S)
    assert deferred(desk, "resp_1") is None


@pytest.mark.parametrize(("dollars", "over"), [("0.2", False), ("0.7", True)])
def test_usage_after_the_time_is_over_books_the_difference(desk, dollars, over):
    ever = rules(machine("1", window=LIFETIME))
    assert isinstance(desk.ledger.hold(RICH, ever).result(WAIT_S), Held)
    desk.ledger.defer("c1", DAY, link("resp_1"), CEILING).result(WAIT_S)
    expire(desk)
    assert seen(desk, ever)["daily"] == ("0.5", "0")

    found = deferred(desk, "resp_1")
    assert (found.call, found.at, found.resolved) == (RICH, NOON, True)
    late = settle_as(desk, found.call.id, "resp_1", dollars, 900)

    assert (late.first, late.over_hold, late.charge.amount) == (False, over, money(dollars))
    assert seen(desk, ever)["daily"] == (dollars, "0")
    assert (deferred(desk, "resp_1"), chain(desk, "resp_1")) == (None, 900)


def test_a_call_that_was_shrunk_is_found_with_what_was_held_last(desk):
    defer(desk, "c1", "resp_1", tokens=1000)
    assert desk.ledger.shrink("c1", money("0.3"), 400).result(WAIT_S)
    quote = deferred(desk, "resp_1").call.quote
    assert (quote.most, quote.tokens) == (money("0.3"), 400)

    expire(desk)
    found = deferred(desk, "resp_1")

    assert found.resolved
    assert (found.call.quote.most, found.call.quote.tokens) == (money("0.3"), 400)
    assert settle_as(desk, "c1", "resp_1", "0.2").charge.amount == money("0.2")
    assert deferred(desk, "resp_1") is None


def test_an_estimate_after_the_time_is_over_changes_nothing(desk):
    defer(desk, "c1", "resp_1")
    expire(desk)
    settle_as(desk, "c1", "resp_1", "0.2", estimated=True)
    assert waiting(desk, "resp_1") == ("c1", True)
    assert seen(desk)["task"] == ("0.5", "0")


def test_what_a_person_said_after_the_time_was_over_stands(desk):
    defer(desk, "c1", "resp_1")
    expire(desk)
    desk.admin.correct("c1", money("0.1"), reason="as billed", who="ann")
    assert deferred(desk, "resp_1") is None


def test_a_hold_that_no_limit_applied_to_is_found_as_well(desk):
    assert isinstance(hold(desk, "c1", "0.5", rules()), Held)
    desk.ledger.defer("c1", DAY, link("resp_1")).result(WAIT_S)
    assert waiting(desk, "resp_1") == ("c1", False)


@pytest.mark.parametrize("strange", ["", "resp_é", "resp_\ud800", "x" * 1025])
def test_what_a_provider_calls_its_reply_never_keeps_it_from_being_charged(desk, strange):
    hold(desk, "c1", "0.3")
    hold(desk, "c2", "0.3")

    assert settle_as(desk, "c1", strange, "0.2", 5).first
    assert chain(desk, strange) is None
    desk.ledger.defer("c2", DAY, link(strange)).result(WAIT_S)

    assert deferred(desk, strange) is None
    assert seen(desk)["daily"] == ("0.2", "0.3")


@pytest.mark.parametrize("tokens", [-1, 2**63])
def test_tokens_that_cannot_be_are_not_known(desk, tokens):
    hold(desk, "c1", "0.3")
    assert settle_as(desk, "c1", "resp_1", "0.2", tokens).first
    assert chain(desk, "resp_1") is None


def test_the_longest_id_and_the_largest_number_are_known(desk):
    hold(desk, "c1", "0.3")
    settle_as(desk, "c1", "x" * 1024, "0.2", 2**62)
    assert chain(desk, "x" * 1024) == 2**62


def test_a_reply_of_no_call_is_not_known(desk):
    with pytest.raises(LedgerError, match="c9"):
        settle_as(desk, "c9", "resp_1", "0.2", 5)
    with pytest.raises(LedgerError, match="c9"):
        desk.ledger.defer("c9", DAY, link("resp_2")).result(WAIT_S)
    assert (chain(desk, "resp_1"), deferred(desk, "resp_2")) == (None, None)


def test_without_a_ceiling_neither_side_has_more_tokens_than_the_quote(file):
    defer(file, "c1", "resp_1", tokens=1000)
    ceiling = deferred(file, "resp_1").call.quote.ceiling
    assert (ceiling.prompt, ceiling.output, ceiling.fees) == (1000, 1000, {})


def test_a_ceiling_that_was_written_without_a_sum_of_names_is_read(file):
    hold(file, "c1", "0.3")
    file.ledger.defer("c1", DAY, link("resp_1"), CEILING).result(WAIT_S)
    with closing(sqlite3.connect(file.path)) as db, db:
        db.execute("UPDATE upstream_ids SET ceiling = json_remove(ceiling, '$.name_sum')")

    assert deferred(file, "resp_1").call.quote.ceiling == replace(CEILING, name_sum=0)


def test_a_ceiling_is_one_of_its_call(file):
    hold(file, "c1", "0.3")
    for ceiling in (CEILING, None):  # told once, it is known
        file.ledger.defer("c1", DAY, link("resp_1"), ceiling).result(WAIT_S)
    assert deferred(file, "resp_1").call.quote.ceiling == CEILING

    defer(file, "c2", "resp_1", "0.3", tokens=50)
    assert deferred(file, "resp_1").call.quote.ceiling.prompt == 50


def test_what_shares_a_commit_is_seen_in_order(file):
    turns = []
    other = file.open(soon=lambda action: turns.append(action) or True)
    held = other.hold(call("c1", "0.5"), ONE)
    other.defer("c1", DAY, link("resp_1"))
    other.shrink("c1", money("0.3"), 40)
    found = other.deferred("openai", ACCOUNT, "resp_1")
    other.settle("c1", charge("0.2"), link("resp_1", 70))
    tokens, gone = other.chain("openai", ACCOUNT, "resp_1"), other.deferred("openai", ACCOUNT, "resp_1")
    while turns:
        turns.pop(0)()

    assert isinstance(held.result(WAIT_S), Held)
    assert (found.result(WAIT_S).call.id, found.result(WAIT_S).call.quote.most) == ("c1", money("0.3"))
    assert (tokens.result(WAIT_S).tokens, gone.result(WAIT_S)) == (70, None)
    other.stop()


def test_a_restart_forgets_nothing(file):
    defer(file, "c1", "resp_1")
    hold(file, "c2", "0.1")
    settle_as(file, "c2", "resp_2", "0.1", 44)

    file.ledger.stop()
    file.ledger = file.open()

    assert (waiting(file, "resp_1"), chain(file, "resp_2")) == (("c1", False), 44)
    expire(file)
    file.crash()
    assert waiting(file, "resp_1") == ("c1", True)


def test_another_proxy_settles_what_this_one_deferred(file):
    other = file.open()
    defer(file, "c1", "resp_1")

    found = other.deferred("openai", ACCOUNT, "resp_1").result(WAIT_S)
    assert other.settle(found.call.id, charge("0.2"), link("resp_1", 44)).result(WAIT_S).first
    other.stop()

    assert (chain(file, "resp_1"), deferred(file, "resp_1")) == (44, None)
    assert seen(file)["daily"] == ("0.2", "0")
    assert not settle(file, "c1", "0.4").first


def test_links_can_be_read_while_nothing_can_be_written(file):
    defer(file, "c1", "resp_1")
    hold(file, "c2", "0.1")
    settle_as(file, "c2", "resp_2", "0.1", 44)
    file.ledger._writer._connection.execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(file.path, isolation_level=None)) as books:
        books.execute("BEGIN IMMEDIATE")
        assert (waiting(file, "resp_1"), chain(file, "resp_2")) == (("c1", False), 44)
        books.execute("ROLLBACK")


def test_a_deferred_call_is_listed_as_one_whose_cost_comes_later(file):
    defer(file, "c1", "resp_1")
    with LedgerReader(file.path) as reader:
        found = reader.call("c1")
    assert (found.state, found.reason, found.held, found.charged) == ("open", "deferred", money("0.5"), None)


def test_no_question_reads_a_whole_table(file):
    with closing(sqlite3.connect(file.path)) as books:
        for sql in (upstream._CHAIN, upstream._DEFERRED):
            steps = [row[3] for row in books.execute(f"EXPLAIN QUERY PLAN {sql}", ("openai", ACCOUNT, "resp_1"))]
            assert steps
            assert not [step for step in steps if step.startswith("SCAN") and "CONSTANT" not in step], steps


@contextmanager
def process(file, what, name):
    command = [sys.executable, "-P", "-m", "tests.ledger.poller", what, str(file.path), name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    with subprocess.Popen(command, **pipes) as made:
        try:
            assert made.stdout.readline().strip() in ("deferred", "ready")
            yield made
        finally:
            made.kill()


def test_a_killed_process_leaves_its_deferred_call_to_a_later_poll(file):
    with process(file, "defer", "c1") as dead:
        dead.send_signal(signal.SIGKILL)
        dead.wait(WAIT_S)

    assert waiting(file, "resp_c1") == ("c1", False)  # before anybody has noticed
    file.look_after()
    assert seen(file)["daily"] == ("0.1", "0.1")  # what was open is charged, what comes later is adopted

    found = deferred(file, "resp_c1")
    assert settle_as(file, found.call.id, "resp_c1", "0.02", 7).first
    assert seen(file)["daily"] == ("0.12", "0")
    assert chain(file, "resp_c1") == 7


def test_a_poll_of_another_process_may_come_before_the_death_is_noticed(file):
    with process(file, "defer", "c1") as dead:
        dead.send_signal(signal.SIGKILL)
        dead.wait(WAIT_S)
    assert settle_as(file, "c1", "resp_c1", "0.02", 7).first
    file.look_after()
    assert seen(file)["daily"] == ("0.12", "0")


def test_polls_of_several_processes_at_once_settle_once(file):
    names = [f"c{n}" for n in range(3)]
    for name in names:
        defer(file, name, f"resp_{name}", "0.1")
    for name in names:
        with process(file, "poll", name) as one, process(file, "poll", name) as two:
            for each in (one, two):
                each.stdin.write("go\n")
                each.stdin.flush()
            told = [json.loads(each.stdout.readline()) for each in (one, two)]
        assert sum(bool(each["first"]) for each in told) == 1, told
    assert seen(file)["daily"] == ("0.09", "0")
    assert [chain(file, f"resp_{name}") for name in names] == [900] * 3


def links(file):
    return [tuple(row) for row in file.query("SELECT id, call FROM upstream_ids ORDER BY id")]


def take_out(file):
    return prune(file.path, plan(file.path, file.clock()), clock=file.clock, new_id=file.new_id, who="ada")


def test_pruning_drops_links_of_more_than_30_days_but_none_of_an_open_call(file):
    hold(file, "old", "0.1")
    settle_as(file, "old", "resp_old", "0.1", 5)
    file.clock.pass_by(days=100)
    for call_id in ("last", "young"):
        hold(file, call_id, "0.1")
        settle_as(file, call_id, f"resp_{call_id}", "0.1", 5)
        file.clock.pass_by(days=29 if call_id == "last" else 0, hours=25)
    defer(file, "open", "resp_open", "0.1", hold_for=timedelta(days=400))
    file.clock.pass_by(days=28)

    assert take_out(file) > 0

    assert links(file) == [("resp_open", "open"), ("resp_young", "young")]
    assert (chain(file, "resp_old"), chain(file, "resp_young")) == (None, 5)
    file.clock.pass_by(days=100)
    hold(file, "new", "0.1")
    take_out(file)
    assert (links(file), waiting(file, "resp_open")) == ([("resp_open", "open")], ("open", False))


def test_many_old_links_go_slice_by_slice(file):
    old = upstream.SLICE * 2 + 1
    with closing(sqlite3.connect(file.path, isolation_level=None)) as books:
        books.execute("BEGIN")
        row = "INSERT INTO upstream_ids (provider, account_hash, id, call, tokens, at) VALUES (?, ?, ?, 'x', 1, ?)"
        books.executemany(row, [("openai", ACCOUNT, f"r{n}", 5 if n < old else 10) for n in range(old + 7)])
        books.execute("COMMIT")
        commits = []
        books.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)

        assert upstream.forget_old(books, 10) == old

    assert len(commits) == 3
    assert len(links(file)) == 7
