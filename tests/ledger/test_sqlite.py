"""The contract on SQLite, and what only a file can do: reopen, break, fill up, be shared, be killed under."""

import concurrent.futures
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from lockpin_core.call import Void
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger.protocol import Held, Resolved
from lockpin_core.ledger.verify import verify
from lockpin_core.money import Money
from tests.ledger import desk as d
from tests.ledger.alerts_contract import AlertsContract
from tests.ledger.contract import ONE, LedgerContract, hold, seen, settle
from tests.ledger.desk import WAIT_S, SqliteDesk, call, charge, machine, note, refusal, rules
from tests.ledger.key_contract import KeyContract
from tests.ledger.reserve_contract import ReserveContract
from tests.ledger.scopes_contract import ScopesContract
from tests.ledger.waiting_contract import WaitingContract

SPENDER = Path(__file__).with_name("spender.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


class TestSqlite(LedgerContract):
    pass


class TestSqliteWaiting(WaitingContract):
    pass


class TestSqliteReserve(ReserveContract):
    pass


class TestSqliteKeys(KeyContract):
    pass


class TestSqliteScopes(ScopesContract):
    @pytest.fixture(autouse=True)
    def proved(self, desk):
        """After each of them the books are proved."""
        yield
        assert verify(desk.path).wrong is None


class TestSqliteAlerts(AlertsContract):
    @pytest.fixture(autouse=True)
    def proved(self, desk):
        """After each of them the books are proved."""
        yield
        assert verify(desk.path).wrong is None


def test_c08_books_are_the_same_after_a_reopen(desk):
    for n in range(30):
        hold(desk, f"c{n}", "0.03")
        if n % 3:
            settle(desk, f"c{n}", "0.01")
    before = desk.accounts()
    desk.ledger.stop()
    desk.ledger = desk.open()

    after = desk.accounts()

    assert d.nonzero(after) == desk.explained()
    assert {name: numbers[0] for name, numbers in after.items()} == {n: b[0] + b[1] for n, b in before.items()}
    assert seen(desk) == {"task": ("0.5", "0"), "daily": ("0.5", "0")}


def test_chains_are_whole_for_every_writer(desk):
    for n in range(5):
        hold(desk, f"c{n}", "0.03", task='ta"sk é', project="p", tags=(("k", "v"),))
        settle(desk, f"c{n}", "0.01", reason="no_usage", estimated=True)
    desk.ledger.refuse(note("r1", detail={"model": "x"}), refusal(limit=Money(5), left=[None, d.NOON]))
    desk.admin.task_new("t2", limit=Money(5), window="day", who="me")
    desk.close()

    ends = desk.chain_ends()
    assert sorted(seq for seq, _ in ends.values()) == [2, 15]


def test_rows_carry_every_fact_of_a_call(desk):
    held = call("c1", "0.3", key="k", user="u", team="x", groups=("g",), ring="r", project="p", tags=(("a", "b"),))
    desk.ledger.hold(held, ONE).result(WAIT_S)
    settle(desk, "c1", "0.2")

    first, last = desk.query("SELECT * FROM rows WHERE call = 'c1' ORDER BY id")

    for row in (first, last):
        facts = [row[name] for name in ("task", "key", "user", "team", "groups", "ring", "project", "tags", "machine")]
        assert facts == ["t", "k", "u", "x", '["g"]', "r", "p", '{"a":"b"}', "m"]
        assert (row["provider"], row["model"], row["client"]) == ("openai", "gpt-5.5", "claude-cli/2.1.197")
    assert (first["output_limit"], first["limit_set"], first["waited_ms"], first["degrade"]) == (
        4096,
        1,
        12,
        '["output"]',
    )
    counts = [last[f"{name}_tokens"] for name in ("input", "cache_read", "cache_write", "output")]
    assert counts == [5, 3, 2, 10]
    assert json.loads(last["data"])["balances"] == [[200_000_000, 0, 1_000_000_000, 20, 0, None]]


def test_the_database_itself_allows_one_hold_and_one_resolution(desk):
    hold(desk, "c1", "0.3")
    settle(desk, "c1", "0.3")
    desk.close()
    with closing(sqlite3.connect(desk.path)) as books:
        for kind in ("hold", "void"):
            with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
                books.execute(
                    "INSERT INTO rows (writer, seq, prev, hash, at, kind, call) VALUES ('x', 1, ?, ?, 1, ?, 'c1')",
                    (bytes(32), bytes(32), kind),
                )


def test_one_bad_operation_leaves_its_neighbours_alone(desk):
    gate, answers = threading.Event(), []
    desk.ledger.stop()
    desk.ledger = desk.open(deliver=lambda actions: (gate.wait(WAIT_S), [action() for action in actions]))
    answers.append(desk.ledger.hold(call("c0", "0.1"), ONE))
    # The writer is now busy delivering, or about to be; the next ones are one batch.
    answers += [desk.ledger.hold(call(f"c{n}", "0.1", tokens=-1 if n == 2 else 1), ONE) for n in range(1, 5)]
    gate.set()

    done = [answer.exception(WAIT_S) for answer in answers]

    assert [type(error) for error in done] == [type(None), type(None), AssertionError, type(None), type(None)]
    assert seen(desk)["daily"] == ("0", "0.4")
    assert desk.faults == []
    assert desk.chain_ends()


def test_answers_of_one_commit_are_delivered_at_once(desk):
    batches, gate = [], threading.Event()
    desk.ledger.stop()

    def deliver(actions):
        batches.append(len(actions))
        gate.wait(WAIT_S)
        for action in actions:
            action()

    desk.ledger = desk.open(deliver=deliver)
    answers = [desk.ledger.hold(call(f"c{n}", "0.01"), ONE) for n in range(20)]
    gate.set()
    concurrent.futures.wait(answers, WAIT_S)

    assert sum(batches) == 20
    assert len(batches) <= 2  # while the first was being delivered, all others came in


def test_a_hold_given_up_before_its_turn_is_not_taken(desk):
    gate = threading.Event()
    desk.ledger.stop()
    desk.ledger = desk.open(deliver=lambda actions: (gate.wait(WAIT_S), [action() for action in actions]))
    first = desk.ledger.hold(call("c1", "0.1"), ONE)
    while not first.running():
        pass
    second = desk.ledger.hold(call("c2", "0.1"), ONE)
    given_up = second.cancel()
    gate.set()
    first.result(WAIT_S)

    assert given_up
    assert [row.call for row in desk.rows("hold")] == ["c1"]


def test_file_and_folder_are_ours_alone(desk):
    hold(desk, "c1", "0.3")
    places = (desk.path.parent, desk.path, Path(f"{desk.path}-wal"))
    modes = [stat.S_IMODE(place.stat().st_mode) for place in places]
    assert modes == [0o700, 0o600, 0o600]
    assert [p.name for p in desk.path.parent.iterdir() if ".new-" in p.name] == []


def test_a_file_open_to_others_is_closed_to_them(desk):
    desk.close()
    desk.path.chmod(0o644)
    desk.ledger = desk.open()
    assert stat.S_IMODE(desk.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("replaced", [False, True])
def test_a_ledger_deleted_or_replaced_while_open_is_out_of_reach(desk, replaced):
    hold(desk, "c1", "0.3")
    away = desk.path.with_name("away")
    desk.path.rename(away)
    if replaced:
        desk.path.write_bytes(away.read_bytes())

    with pytest.raises(LedgerUnavailable):
        hold(desk, "c2", "0.3")
    later = desk.ledger.settle("c1", charge("0.2"))
    away.replace(desk.path)

    assert later.result(WAIT_S).first
    assert desk.faults == ["ledger_unavailable", ""]
    assert seen(desk)["daily"] == ("0.2", "0")


@pytest.mark.parametrize(("end", "part"), [("", "file"), ("-wal", "log"), ("-shm", "index")])
def test_a_file_made_read_only_while_open_is_written_no_more(desk, end, part):
    hold(desk, "c1", "0.3")
    place = Path(f"{desk.path}{end}")
    place.chmod(0o400)
    with pytest.raises(LedgerUnavailable, match=f"the ledger {part} was made read-only while in use: {place}"):
        hold(desk, "c2", "0.3")
    place.chmod(0o600)
    assert isinstance(hold(desk, "c3", "0.3"), Held)


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_deleted_log_or_its_index_is_noticed(desk, end):
    hold(desk, "c1", "0.3")
    log = Path(f"{desk.path}{end}")
    log.rename(log.with_name("away"))
    with pytest.raises(LedgerUnavailable):
        hold(desk, "c2", "0.3")
    log.with_name("away").rename(log)
    desk.close()
    assert desk.faults[:2] == ["ledger_unavailable", ""]


def test_what_waits_for_the_ledger_keeps_its_order(desk):
    hold(desk, "c1", "0.3")
    away = desk.path.with_name("away")
    desk.path.rename(away)
    first = desk.ledger.settle("c1", charge("0.2"))
    second = desk.ledger.void("c1", Void("not_sent"))
    desk.ledger.uncapped(note("u1"))
    with pytest.raises(LedgerUnavailable):
        hold(desk, "c2", "0.3")
    away.rename(desk.path)

    assert (first.result(WAIT_S).first, second.result(WAIT_S).first) == (True, False)
    desk.close()
    assert [row.call for row in desk.rows("uncapped")] == ["u1"]
    assert [row.call for row in desk.rows("hold")] == ["c1"]


def test_a_stopped_ledger_answers_that_it_is(desk):
    hold(desk, "c1", "0.3")
    desk.close()
    desk.close()
    with pytest.raises(LedgerUnavailable, match="closed"):
        hold(desk, "c2", "0.3")


def test_a_ledger_that_stays_away_is_given_up_at_the_stop(desk):
    hold(desk, "c1", "0.3")
    away = desk.path.with_name("away")
    desk.path.rename(away)
    late = desk.ledger.settle("c1", charge("0.2"))
    desk.close()
    away.rename(desk.path)

    with pytest.raises(LedgerUnavailable):
        late.result(WAIT_S)
    assert desk.query("SELECT call FROM open_holds")[0]["call"] == "c1"


def test_a_locked_ledger_is_waited_for(desk):
    hold(desk, "c1", "0.1")
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = desk.ledger.hold(call("c2", "0.1"), ONE)
        other.execute("ROLLBACK")
    assert isinstance(waiting.result(WAIT_S), Held)


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_durability_is_what_was_asked(tmp_path, durability):
    desk = SqliteDesk(tmp_path)
    desk.close()
    desk.ledger = desk.open(durability=durability)
    with closing(sqlite3.connect(desk.path)) as books:
        assert books.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert isinstance(hold(desk, "c1", "0.1"), Held)
    desk.close()


def test_an_unknown_durability_is_named(desk):
    with pytest.raises(LedgerError, match='"fast"; full or normal is allowed'):
        desk.open(durability="fast")


def spend(*arguments, **more):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, SPENDER, *map(str, arguments)], stdin=-1, stdout=-1, text=True, env=environment, **more
    )


def test_four_processes_share_one_limit(desk):
    workers = [spend("spend", desk.path, f"p{n}", 50) for n in range(4)]
    held = [json.loads(worker.communicate(timeout=60)[0]) for worker in workers]

    assert sum(held) == 25
    assert seen(desk, rules(machine("0.25")))["daily"] == ("0.25", "0")
    assert d.nonzero(desk.accounts()) == desk.explained()


def test_two_processes_may_make_the_ledger_at_once(tmp_path):
    path = tmp_path / "new" / "ledger.sqlite3"
    workers = [spend("spend", path, f"p{n}", 5) for n in range(4)]
    assert sum(json.loads(worker.communicate(timeout=60)[0]) for worker in workers) == 20


def test_a_killed_process_leaves_its_holds_on_the_books(desk):
    worker = spend("linger", desk.path, "p", 3)
    assert worker.stdout.readline() == "held\n"
    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=20)

    assert len(desk.query("SELECT call FROM open_holds")) == 3
    assert seen(desk, rules(machine("0.25")))["daily"] == ("0", "0.03")
    assert d.nonzero(desk.accounts()) == desk.explained()


def test_a_full_disk_refuses_holds_and_loses_nothing(tmp_path):
    worker = spend("fill", tmp_path / "ledger.sqlite3", "p", 1)
    told = json.loads(worker.communicate(timeout=60)[0])
    assert told == {
        "while_full": ["LedgerUnavailable", "LedgerUnavailable"],
        "settled_while_full": False,
        "settled_after": True,
        "hold_after": "Held",
        "faults": ["ledger_unavailable", ""],
        "calls": ["first", "later"],
        "spent_held": [["10000000", "10000000"]],
    }


def test_a_settle_answers_with_the_row_that_is_on_disk(desk):
    hold(desk, "c1", "0.3")
    resolved = settle(desk, "c1", "0.2")
    assert isinstance(resolved, Resolved)
    (row,) = desk.query("SELECT hash FROM rows WHERE kind = 'charge'")
    assert row["hash"].hex() == resolved.row_hash


def test_a_settle_by_another_process_knows_the_budget(desk):
    hold(desk, "c1", "0.9", rules(machine("1", alert_at=("0.5",))))
    other = desk.open()
    resolved = other.settle("c1", charge("0.6")).result(WAIT_S)
    other.stop()
    assert resolved.crossed == (("daily", "m", "0.5"),)
    assert resolved.standings[1].limit == Money.parse("1")


def test_recent_charges_of_another_process_are_seen(desk):
    other = desk.open()
    for n, ledger in enumerate((desk.ledger, other, desk.ledger)):
        ledger.hold(call(f"c{n}", "0.1"), ONE).result(WAIT_S)
        resolved = ledger.settle(f"c{n}", charge(f"0.0{n + 1}")).result(WAIT_S)
    other.stop()
    assert [amount.exact() for amount in resolved.recent] == ["0.03", "0.02", "0.01"]


def test_a_configurations_changes_say_which_it_is(desk):
    for budgets in (rules(machine("1")), rules(machine("2", name="other"))):
        desk.ledger.define(budgets, "/etc/lockpin.yaml").result(WAIT_S)
    desk.admin.budget_set(machine("3", name="mine"), who="ada")
    told = [
        json.loads(row["data"]) for row in desk.query("SELECT data FROM rows WHERE code LIKE 'budget_%' ORDER BY id")
    ]

    file = "/etc/lockpin.yaml"
    assert [(t["name"], t.get("origin"), t.get("who")) for t in told] == [
        ("task", file, None), ("daily", file, None), ("other", file, None), ("daily", file, None), ("mine", None, "ada"),
    ]  # fmt: skip
    assert verify(desk.path).wrong is None


def test_a_proxy_of_another_mode_is_turned_away_while_one_runs(desk):
    budgets = rules(machine("1"))
    desk.ledger.define(budgets, "team.yaml", "team").result(WAIT_S)
    other = desk.open()

    with pytest.raises(LedgerError, match="runs in mode team, and this one would in solo; stop it, or start with"):
        other.define(budgets, "solo.yaml", "solo").result(WAIT_S)
    other.define(budgets, "team-2.yaml", "team").result(WAIT_S)
    other.stop()

    desk.ledger.define(budgets, "solo.yaml", "solo").result(WAIT_S)  # nobody else runs


def test_a_changed_definition_is_an_event_and_re_arms(desk):
    hold(desk, "c1", "0.9")
    assert settle(desk, "c1", "0.9").crossed == (("daily", "m", "0.8"),)
    wider = rules(machine("2"))
    hold(desk, "c2", "1", wider)
    assert settle(desk, "c2", "0.8").crossed == (("daily", "m", "0.8"),)
    told = [json.loads(row["data"]) for row in desk.query("SELECT data FROM rows WHERE code = 'budget_defined'")]
    assert [(t["name"], t["limit_nano"]) for t in told] == [("task", None), ("daily", 10**9), ("daily", 2 * 10**9)]
