import json
import sqlite3
from contextlib import closing

import pytest

from lockpin_core.call import Void
from lockpin_core.errors import CommandError, LedgerError, LedgerUnavailable
from lockpin_core.ledger.reader import LedgerReader
from tests.ledger.contract import ONE, hold, settle
from tests.ledger.desk import NOON, WAIT_S, SqliteDesk, call, charge, machine, money, note, refusal, rules


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def read(desk):
    with LedgerReader(desk.path) as reader:
        yield reader


def fill(desk):
    wide = rules(machine("100"))
    for n, (task, dollars, more) in enumerate(
        [("a", "1", {}), ("b", "2", {"project": "p", "tags": (("env", "ci"), ("x", "y"))}), ("a", "4", {"host": "m2"})]
    ):
        hold(desk, f"c{n}", "5", wide, task=task, **more)
        settle(desk, f"c{n}", dollars, estimated=n == 1, reason="no_usage" if n == 1 else None)
        desk.clock.pass_by(hours=8)
    hold(desk, "c3", "5", wide, task="b", model="claude-opus-5", provider="anthropic")
    desk.ledger.void("c3", Void("not_sent", failed=True)).result(WAIT_S)
    hold(desk, "c4", "6", wide, task="b")
    for n in range(120):
        desk.ledger.refuse(note(f"r{n}", task="a", detail={"fits": 5}), refusal(limit=money("1.5")))
    desk.ledger.uncapped(note("u1", code="no_limit", task="a", path="/v1/x", wire="w", streamed=True))
    desk.ledger.stop()
    desk.ledger = desk.open()


def test_a_call_is_its_hold_and_its_resolution(desk, read):
    fill(desk)

    found = read.call("c1")

    assert (found.decision, found.state, found.at) == ("allowed", "charged", NOON.replace(hour=20))
    assert (found.held, found.charged, found.tokens) == (money("5"), money("2"), 20)
    assert (found.estimated, found.reason, found.model_served) == (True, "no_usage", "gpt-5.5-2026-09-01")
    assert (found.payers.project, found.payers.tags) == ("p", (("env", "ci"), ("x", "y")))
    assert found.usage == charge("2").usage
    assert (found.rates, found.price_date) == ({"input": "1.25", "output": "10"}, "2026-10-01")
    assert [(b.budget, b.subject, b.spent.exact(), b.limit and b.limit.exact()) for b in found.balances] == [
        ("task", "b", "2", None),
        ("daily", "m", "3", "100"),
    ]
    (row,) = desk.query("SELECT hash FROM rows WHERE call = 'c1' AND kind = 'charge'")
    assert found.hash == row["hash"].hex()


def test_states_of_calls(desk, read):
    fill(desk)
    hold(desk, "c5", "1", rules())
    assert [read.call(name).state for name in ("c3", "c4", "c5", "r1", "u1")] == [
        "void",
        "charged",
        "open",
        "none",
        "none",
    ]
    assert (read.call("c3").charged, read.call("c3").failed, read.call("c3").reason) == (None, True, "not_sent")
    assert (read.call("c4").charged, read.call("c4").reason) == (money("6"), "lockpin_stopped")
    assert (read.call("u1").code, read.call("u1").path, read.call("u1").wire) == ("no_limit", "/v1/x", "w")
    assert read.call("none") is None
    assert read.call("r100").count == 20
    assert read.call("r1").detail == {"status": 402, "fits": 5, "limit": "1.5"}
    assert json.dumps(read.call("r1").detail)


def test_last_is_the_newest_of_its_task(desk, read):
    fill(desk)
    assert read.call("last", task="b").id == "c4"
    hold(desk, "c9", "1", rules(), task="z")
    assert read.call("last").id == "c9"
    assert read.call("last", task="nobody") is None
    assert read.call("c4", task="a") is None


def test_calls_are_listed_newest_first_and_filtered(desk, read):
    fill(desk)
    shown = [row.id for row in read.calls() if row.decision == "allowed"]
    assert shown == ["c4", "c3", "c2", "c1", "c0"]
    assert [row.id for row in read.calls(model="claude-opus-5")] == ["c3"]
    assert [row.id for row in read.calls(model="gpt-5.5-2026-09-01")] == ["c2", "c1", "c0"]
    assert [row.id for row in read.calls(until=NOON.replace(hour=20))] == ["c0"]
    assert [row.id for row in read.calls(since=NOON.replace(hour=20), until=NOON.replace(day=22, hour=4))] == ["c1"]
    assert [row.id for row in read.calls(task="b", limit=2)] == ["c4", "c3"]


def test_totals_by_task(desk, read):
    fill(desk)

    b, a = read.totals("task")

    assert (b.key, b.calls, b.refused, b.uncapped, b.estimated_calls) == ("b", 3, 0, 0, 2)
    assert (b.spent, b.estimated) == (money("8"), money("8"))
    assert (a.key, a.calls, a.refused, a.uncapped, a.estimated_calls) == ("a", 2, 120, 1, 0)
    assert (a.spent, a.input_tokens, a.cache_read_tokens, a.cache_write_tokens, a.output_tokens) == (
        money("5"),
        10,
        6,
        4,
        20,
    )


def test_totals_by_other_keys(desk, read):
    fill(desk)
    spent = {
        by: {t.key: t.spent.exact() for t in read.totals(by)} for by in ("day", "model", "provider", "project", "tag")
    }
    assert spent["day"] == {"2026-10-21": "3", "2026-10-22": "10"}
    assert spent["model"] == {"gpt-5.5": "13", "claude-opus-5": "0"}
    assert spent["provider"] == {"openai": "13", "anthropic": "0"}
    assert spent["project"] == {None: "11", "p": "2"}
    assert spent["tag"] == {None: "11", "env=ci": "2", "x=y": "2"}
    assert [t.key for t in read.totals("key")] == [None]
    with pytest.raises(CommandError, match='a report by "colour" is not known; task, day'):
        read.totals("colour")


def test_a_total_counts_calls_by_the_instant_of_their_hold(desk, read):
    hold(desk, "c1", "0.5")
    desk.clock.pass_by(days=1)
    settle(desk, "c1", "0.25")
    today = desk.clock().replace(hour=0)
    assert (read.total(until=today).calls, read.total(until=today).spent) == (1, money("0.25"))
    assert (read.total(since=today).calls, read.total(since=today).spent) == (0, money("0"))


def test_an_empty_ledger_adds_up_to_nothing(desk, read):
    assert (read.total().calls, read.total().spent, read.totals("task"), list(read.calls())) == (0, money("0"), [], [])
    assert (read.open_holds(), read.budgets(), read.task_terms()) == ([], [], {})


def test_open_holds_standings_and_definitions(desk, read):
    hold(desk, "c1", "0.5")
    assert [(o.call, o.task, o.held, o.tokens, o.background) for o in read.open_holds()] == [
        ("c1", "t", money("0.5"), 100, False)
    ]
    assert [(s.budget.name, s.held) for s in read.standings(ONE, now=NOON)] == [
        ("task", money("0.5")),
        ("daily", money("0.5")),
    ]
    assert [b.name for b in read.budgets()] == ["daily", "task"]
    assert read.budgets()[0] == ONE.budgets[0]
    assert read.standings(ONE, call("x", "0", task="new", host="new").payers, now=NOON)[1].limit == money("1")
    desk.admin.task_new("t", limit=money("3"), window="day", who="x")
    assert (read.task_terms()["t"].limit_nano, read.task_terms()["t"].window) == (3 * 10**9, "day")


def test_a_missing_ledger_is_said_to_be(tmp_path):
    with pytest.raises(LedgerError):
        LedgerReader(tmp_path / "none")


def test_a_reader_cannot_write(desk, read):
    assert read._connection.execute("SELECT count(*) FROM rows").fetchone()[0] == 0
    with pytest.raises(Exception, match="readonly"):
        read._connection.execute("DELETE FROM rows")


def test_tasks_are_shown_as_the_commands_side_shows_them(desk):
    fill(desk)
    desk.admin.task_new("early", limit=money("3"), window="week", who="ada")

    with LedgerReader(desk.path) as reader:
        found = reader.task_infos(now=desk.clock())

    assert found == desk.admin.tasks()
    assert {each.name for each in found} > {"early"}


def test_tasks_before_a_proxy_has_run_are_shown_with_their_terms(desk):
    desk.admin.task_new("early", limit=money("3"), window="week", who="ada")

    with LedgerReader(desk.path) as reader:
        (found,) = reader.task_infos(now=desk.clock())

    assert (found.name, found.window, found.limit, found.spent, found.closed) == (
        *("early", "week", money("3"), money("0"), False),
    )


def test_sums_that_pass_64_bits_are_one_clear_line(desk):
    fill(desk)
    desk.ledger.stop()
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as books:
        books.execute("UPDATE totals SET spent_nano = 9223372036854775807")

    with LedgerReader(desk.path) as reader, pytest.raises(LedgerUnavailable) as caught:
        reader.total()

    assert str(caught.value) == (
        "the ledger cannot be read: its amounts add up to more than 9.2 billion dollars, which no sum can hold"
    )
