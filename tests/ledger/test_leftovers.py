"""Several writers on one ledger: dead ones are settled, living ones are left alone, and their definitions agree."""

import json
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger import schema
from lockpin_core.ledger.liveness import Liveness
from lockpin_core.ledger.protocol import Held
from lockpin_core.ledger.verify import verify
from lockpin_core.ledger.writer import KEPT_MAX
from tests.ledger import desk as d
from tests.ledger.contract import ONE, hold, seen, settle
from tests.ledger.desk import WAIT_S, SqliteDesk, call, charge, machine, money, rules


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()
    assert made.chain_ends()
    assert d.nonzero(made.accounts()) == made.explained()


def die(ledger):
    """Let a ledger be as after a kill: nothing settled, its lock free."""
    ledger._writer._liveness = None  # its thread is still there, and must not act
    ledger._liveness.leave()


def strange_writer(desk, *calls, deferred=()):
    """Hold calls under a writer that never comes back."""
    other = desk.open()
    for name in (*calls, *deferred):
        assert isinstance(other.hold(call(name, "0.1"), ONE).result(WAIT_S), Held)
    for name in deferred:
        other.defer(name, timedelta(hours=1)).result(WAIT_S)
    die(other)
    return other


def charges(desk):
    query = "SELECT call, reason, usd, estimated, writer FROM rows WHERE kind = 'charge' ORDER BY id"
    return [tuple(row) for row in desk.query(query)]


def test_the_holds_of_a_dead_writer_are_charged_in_full_by_another(desk):
    strange_writer(desk, "c1", "c2")
    assert seen(desk)["daily"] == ("0", "0.2")

    desk.look_after()

    assert seen(desk)["daily"] == ("0.2", "0")
    ours = desk.ledger.writer_id
    assert charges(desk) == [(name, "lockpin_stopped", 10**8, 1, ours) for name in ("c1", "c2")]
    assert desk.query("SELECT * FROM open_holds") == []


def test_a_start_settles_what_was_left_before_it_answers(desk):
    strange_writer(desk, "c1")
    new = desk.open()
    short = new.hold(call("c2", "0.95"), ONE).result(WAIT_S)
    assert [s.spent for s in short.violations] == [money("0.1")]
    new.stop()


def test_the_holds_of_a_living_writer_are_its_own(desk):
    other = desk.open()
    other.hold(call("c1", "0.1"), ONE).result(WAIT_S)
    desk.look_after()
    assert seen(desk)["daily"] == ("0", "0.1")
    assert other.settle("c1", charge("0.02")).result(WAIT_S).first
    other.stop()


def test_deferred_holds_of_a_dead_writer_are_adopted_and_expire(desk):
    dead = strange_writer(desk, "c1", deferred=("late", "never"))
    desk.look_after()
    assert seen(desk)["daily"] == ("0.1", "0.2")
    (event,) = desk.query("SELECT data FROM rows WHERE code = 'hold_adopted'")
    assert json.loads(event["data"]) == {"calls": ["late", "never"], "writer": dead.writer_id}

    assert settle(desk, "late", "0.03").first
    desk.clock.pass_by(hours=1)
    desk.look_after()

    assert seen(desk)["daily"] == ("0.23", "0")
    assert charges(desk)[-1][:2] == ("never", "expired")


def test_a_stopped_writer_leaves_its_deferred_holds_to_others(desk):
    other = desk.open()
    for name in ("c1", "later"):
        other.hold(call(name, "0.1"), ONE).result(WAIT_S)
    other.defer("later", timedelta(hours=1)).result(WAIT_S)
    other.stop()
    assert seen(desk)["daily"] == ("0.1", "0.1")
    desk.look_after()
    assert [row["writer"] for row in desk.query("SELECT writer FROM open_holds")] == [desk.ledger.writer_id]


def test_a_lock_that_was_removed_is_made_again_and_holds_wait_for_that(desk):
    hold(desk, "c1", "0.1")
    lock = desk.path.with_name(desk.path.name + ".writers") / desk.ledger.writer_id
    lock.unlink()
    with pytest.raises(LedgerUnavailable, match="lock"):
        hold(desk, "c2", "0.1")
    assert isinstance(hold(desk, "c3", "0.1"), Held)
    assert lock.exists()
    assert Liveness(desk.path).is_alive(desk.ledger.writer_id)


def test_two_running_proxies_must_agree_on_their_budgets(desk):
    desk.ledger.define(rules(machine("1")), "one.yaml").result(WAIT_S)
    other = desk.open()
    with pytest.raises(LedgerError, match=r'budget "daily": limit_usd is \$1 there and \$2 here; there: one.yaml'):
        other.define(rules(machine("2")), "two.yaml").result(WAIT_S)
    with pytest.raises(LedgerError, match='budget "more" is not there'):
        other.define(rules(machine("1"), machine("1", name="more")), "two.yaml").result(WAIT_S)
    with pytest.raises(LedgerError, match='budget "daily" is not here'):
        other.define(rules(), "two.yaml").result(WAIT_S)
    other.define(rules(machine("1")), "two.yaml").result(WAIT_S)
    other.stop()


def test_processes_of_one_configuration_follow_its_changes(desk):
    desk.ledger.define(ONE, "one.yaml").result(WAIT_S)
    other = desk.open()
    other.define(ONE, "one.yaml").result(WAIT_S)
    other.define(rules(machine("0.05")), "one.yaml").result(WAIT_S)
    assert not isinstance(hold(desk, "c1", "0.1"), Held), "the limit of the file as it is now counts for all"
    other.stop()


def test_a_stopped_proxys_budgets_bind_nobody(desk):
    other = desk.open()
    other.define(rules(machine("2")), "two.yaml").result(WAIT_S)
    other.stop()
    desk.ledger.define(ONE, "one.yaml").result(WAIT_S)
    assert [(s.budget.name, s.budget.limit) for s in desk.admin.budgets()] == [("daily", money("1")), ("task", None)]


def test_budgets_gone_from_the_configuration_are_out_of_force_and_events(desk):
    desk.ledger.define(rules(machine("1"), machine("2", name="more")), "one.yaml").result(WAIT_S)
    desk.ledger.define(ONE, "one.yaml").result(WAIT_S)
    (event,) = desk.query("SELECT data FROM rows WHERE code = 'budget_removed'")
    assert json.loads(event["data"]) == {"name": "more", "loosens": True, "origin": "one.yaml"}
    assert [s.budget.name for s in hold(desk, "c1", "0.1").standings] == ["task", "daily"]


def test_a_newer_schema_under_our_feet_stops_us(desk):
    hold(desk, "c1", "0.1")
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(LedgerUnavailable, match=f"version {schema.VERSION + 1} by a newer Lockpin: restart"):
        hold(desk, "c2", "0.1")
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute(f"PRAGMA user_version = {schema.VERSION}")
    assert isinstance(hold(desk, "c3", "0.1"), Held)


def full(desk):
    """Let no transaction begin any more."""
    blocker = sqlite3.connect(desk.path, isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    desk.ledger._writer._connection.execute("PRAGMA busy_timeout = 1")
    return blocker


def test_a_call_under_no_limit_goes_while_the_ledger_is_away_and_is_written_later(desk):
    free = rules(machine("1", enforce=False))
    hold(desk, "c0", "0.1", free)
    with closing(full(desk)):
        held = hold(desk, "c1", "5", free)
        assert (held.degraded, held.standings) == (True, ())
        settling = desk.ledger.settle("c1", charge("4"))
        assert not settling.done()
        assert seen(desk, free)["daily"] == ("0", "0.1"), "the books can be read all the while"
    assert settling.result(WAIT_S).first
    assert seen(desk, free)["daily"] == ("4", "0.1")
    (row,) = desk.query("SELECT data FROM rows WHERE kind = 'hold' AND call = 'c1'")
    assert json.loads(row["data"])["unchecked"] is True


@pytest.mark.parametrize("why", ["config", "task", "command", "closed"])
def test_a_call_under_any_limit_is_refused_while_the_ledger_is_away(desk, why):
    free = rules(machine("1", enforce=False))
    hold(desk, "c0", "0.1", free)
    if why == "task":
        desk.admin.task_new("t", limit=money("9"), window="lifetime", who="ann")
    elif why == "closed":
        desk.admin.task_close("t", who="ann")
    elif why == "command":
        desk.admin.budget_set(machine("9", name="cap"), who="ann")
    with closing(full(desk)), pytest.raises(LedgerUnavailable):
        hold(desk, "c1", "0.1", ONE if why == "config" else free)
    assert desk.query("SELECT * FROM rows WHERE call = 'c1'") == []


def test_a_call_that_was_begun_before_a_reload_brings_nothing_back(desk):
    old, new = rules(machine("5")), rules(machine("0.05"))
    desk.ledger.define(old, "one.yaml").result(WAIT_S)
    desk.ledger.define(new, "one.yaml").result(WAIT_S)
    assert not isinstance(hold(desk, "c1", "0.1", old), Held)
    assert [s.budget.limit for s in desk.admin.budgets()] == [money("0.05"), None]


def test_a_ledger_that_is_gone_is_no_evidence_that_there_is_no_limit(desk):
    hold(desk, "c1", "1")
    settle(desk, "c1", "1")
    aside = desk.path.with_name("aside")
    desk.path.rename(aside)
    for n in range(3):
        with pytest.raises(LedgerUnavailable, match="deleted while in use"):
            hold(desk, f"d{n}", "0.1")
    aside.rename(desk.path)


def test_a_limit_that_only_this_process_knows_counts_too(desk):
    hold(desk, "c0", "0.1", rules(machine("9", enforce=False)))
    with closing(full(desk)), pytest.raises(LedgerUnavailable):
        hold(desk, "c1", "0.1", rules(machine("9", enforce=True)))


def test_no_new_ledger_is_made_beside_what_is_left_of_another(desk):
    hold(desk, "c0", "0.1")
    aside = desk.path.with_name("aside")
    desk.path.rename(aside)
    with pytest.raises(LedgerError, match=r"is gone, but .* put the ledger back, or remove these too"):
        desk.admin.task_new("t", limit=money("1"), window="lifetime", who="ann")
    aside.rename(desk.path)
    assert isinstance(hold(desk, "c1", "0.1"), Held)


def test_a_damaged_file_is_not_started_on(tmp_path):
    desk = SqliteDesk(tmp_path)
    for n in range(60):
        hold(desk, f"c{n}", "0.01")
    desk.close()
    content = bytearray(desk.path.read_bytes())
    content[4096 * 3 : 4096 * 4] = bytes(4096)
    desk.path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"is damaged: .*; put a backup in its place"):
        desk.open()


def test_no_page_of_the_file_may_be_rubbish_at_a_start(tmp_path):
    desk = SqliteDesk(tmp_path)
    for n in range(20):
        hold(desk, f"c{n}", "0.01")
    desk.close()
    sound = desk.path.read_bytes()
    pages = len(sound) // 4096
    assert pages > 20
    for page in range(pages):
        desk.path.write_bytes(sound[: page * 4096] + b"\xa5" * 4096 + sound[(page + 1) * 4096 :])
        with pytest.raises(LedgerError):
            desk.open()
    desk.path.write_bytes(sound)
    desk.open()


def test_a_value_that_was_changed_in_a_sound_file_is_for_verify_to_find(tmp_path):
    desk = SqliteDesk(tmp_path)
    hold(desk, "c1", "0.01")
    desk.close()
    content = desk.path.read_bytes()
    assert content.count(b"claude-cli/2.1.197") > 1
    desk.path.write_bytes(content.replace(b"claude-cli/2.1.197", b"claude-cli/2.1.198"))

    desk.open()
    desk.close()

    assert verify(desk.path).wrong is not None


def test_a_removed_lock_is_made_again_without_a_call(desk):
    lock = desk.path.with_name(desk.path.name + ".writers") / desk.ledger.writer_id
    hold(desk, "c1", "0.1")
    lock.unlink()
    desk.look_after()
    assert lock.exists()
    assert isinstance(hold(desk, "c2", "0.1"), Held)


def test_one_hold_that_cannot_be_charged_keeps_no_other_from_its_end(desk):
    strange_writer(desk, "c1", "c2", "c3")
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute("UPDATE open_holds SET accounts = '[\"no such account\"]' WHERE call = 'c2'")
        books.commit()
    desk.look_after()
    assert [call for call, *_ in charges(desk)] == ["c1", "c3"]
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute(
            "UPDATE open_holds SET accounts = (SELECT accounts FROM rows WHERE call = 'c2') WHERE call = 'c2'"
        )
        books.commit()
    desk.look_after()
    assert [call for call, *_ in charges(desk)] == ["c1", "c3", "c2"]


def test_a_cancel_stays_behind_its_hold_when_the_ledger_comes_back(desk):
    free = rules(machine("1", enforce=False))
    hold(desk, "c0", "0.1", free)
    with closing(full(desk)):
        holds = []
        for n in range(5):
            holds.append(desk.ledger.hold(call(f"c{n + 1}", "0.1"), free))
            desk.ledger.cancel(f"c{n + 1}")
        assert all(answer.result(WAIT_S).degraded for answer in holds)
    again = desk.ledger.hold(call("last", "0.1"), free)
    desk.ledger.cancel("last")
    again.result(WAIT_S)
    assert isinstance(hold(desk, "c9", "0.1", free), Held)
    assert [row["call"] for row in desk.query("SELECT call FROM open_holds ORDER BY call")] == ["c0", "c9"]


def test_only_so_many_holds_wait_for_the_ledger(desk, tmp_path):
    free = rules(machine("1", enforce=False))
    hold(desk, "c0", "0.1", free)
    with closing(full(desk)):
        answers = [desk.ledger.hold(call(f"d{n}", "0.001"), free) for n in range(KEPT_MAX + 300)]
        went = sum(answer.exception(WAIT_S) is None for answer in answers)
    assert went == KEPT_MAX
    assert settle(desk, "d0", "0.001").first  # it stands behind all that waits
    assert desk.query("SELECT count(*) FROM rows WHERE kind = 'hold' AND call LIKE 'd%'")[0][0] == KEPT_MAX


def test_what_a_stop_could_not_write_is_counted(tmp_path):
    desk = SqliteDesk(tmp_path)
    free = rules(machine("1", enforce=False))
    hold(desk, "c0", "0.1", free)
    blocker = full(desk)
    for n in range(3):
        hold(desk, f"d{n}", "0.1", free)
    assert desk.ledger.stop() == 3
    blocker.close()


def test_each_reason_for_being_away_is_told_once(tmp_path):
    desk = SqliteDesk(tmp_path)
    told = []
    desk.ledger.stop()
    desk.ledger = desk.open(fault=lambda code, reason: told.append((code, reason.partition(" while")[0])))
    hold(desk, "c0", "0.1")
    aside = desk.path.with_name("aside")
    desk.path.rename(aside)
    for n in range(3):
        with pytest.raises(LedgerUnavailable):
            hold(desk, f"d{n}", "0.1")
    desk.path.write_bytes(aside.read_bytes())
    for n in range(3):
        with pytest.raises(LedgerUnavailable):
            hold(desk, f"e{n}", "0.1")
    desk.path.unlink()
    aside.rename(desk.path)
    hold(desk, "c1", "0.1")
    assert told == [
        ("ledger_unavailable", "the ledger file was deleted"), ("ledger_unavailable", "the ledger file was replaced"),
        ("", ""),
    ]  # fmt: skip
    desk.close()


def test_what_is_refused_among_what_waits_takes_no_settlement_with_it(desk):
    free = rules(machine("1", enforce=False))
    desk.ledger.define(free, "one.yaml").result(WAIT_S)
    hold(desk, "c0", "0.1", free)
    desk.admin.budget_set(machine("9", name="cap", enforce=False), who="ann")
    with closing(full(desk)):
        assert hold(desk, "h1", "0.5", free).degraded
        settling = desk.ledger.settle("h1", charge("0.01"))
        for _ in range(3):
            refused = desk.ledger.define(rules(machine("1", name="cap")), "one.yaml")
            with pytest.raises((LedgerError, LedgerUnavailable)):
                refused.result(WAIT_S)
    assert settling.result(WAIT_S).charge.amount == money("0.01")
    assert seen(desk, free)["daily"] == ("0.01", "0.1")


def test_a_limit_that_came_after_a_degraded_call_is_no_fault_of_its_hold(desk):
    free = rules(machine("1", enforce=False))
    hold(desk, "c0", "0.1", free)
    with closing(full(desk)):
        hold(desk, "h1", "0.5", free)
        early = desk.ledger.settle("h1", charge("0.01"))
    early.result(WAIT_S)
    desk.admin.budget_set(machine("9", name="cap"), who="ann")
    assert isinstance(hold(desk, "c1", "0.1", free), Held)
    assert verify(desk.path).wrong is None
    (row,) = desk.query("SELECT id, data FROM rows WHERE kind = 'hold' AND call = 'h1'")
    assert 0 < json.loads(row["data"])["after_row"] < row["id"]
