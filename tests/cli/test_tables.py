import io
import json
import re
from datetime import UTC, datetime

import pytest
from rich.console import Console

from lockpin_cli.layout import fit
from lockpin_cli.output import Column, View
from lockpin_cli.tables import table_of
from lockpin_core.clock import new_id
from lockpin_core.config_budgets import own_budget
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from tests.ledger.desk import call

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def drawn(view: View, width: int) -> list[str]:
    console = Console(width=width, force_terminal=False, record=True, file=io.StringIO())
    console.print(table_of(fit(view, width)))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_numbers_stand_right_and_sums_below_a_rule():
    view = View(
        [Column("TASK"), Column("SPENT", right=True)], [["fix", "$0.5"], ["doc", "$12.5"]], (), (), foot=["T", "$13"]
    )

    assert drawn(view, 40) == ["TASK  SPENT", "─" * 11, "fix    $0.5", "doc   $12.5", "─" * 11, "T       $13"]


def test_texts_fold_at_spaces_where_room_is_short_and_numbers_never():
    view = View([Column("WHAT"), Column("SPENT", right=True)], [["a b c d", "$1,000,000.00"]], (), ())

    lines = drawn(view, 20)

    assert lines[2].endswith("$1,000,000.00")
    assert [line.split()[0] for line in lines[2:]] == ["a", "d"]


@pytest.mark.parametrize("columns", [20, 60, 200])
def test_terminal_of_any_width_shows_whole_amounts_and_ids(terminal, ledger, columns):
    shown = ESCAPES.sub("", terminal("calls", columns=columns))

    for whole in ("$0.0214", "$1.25", "claude-opus-4-5", "unknown_model", "CHARGED"):
        assert whole in shown


COMMANDS = [
    ["report"], ["calls"], ["budget", "status"], ["task", "list"], ["whatif", "--task-budget", "0.5"],
    ["whatif", "--model", "claude-opus-4-5=claude-sonnet-5-5"], ["ledger", "events"],
    ["prices", "list", "--model", "claude-*-4-5"], ["prices", "show", "anthropic/claude-opus-4-5"], ["prices", "diff"],
    ["prices", "check"],
]  # fmt: skip
DOLLARS = re.compile(r"-?\$[0-9.,]+|[0-9]+[.,][0-9.,]+")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_table_fits_the_terminal_and_its_amounts_are_those_of_the_pipe(terminal, lockpin, home, ledger, words):
    home.config("pricing:\n  gpt-5.4: {input_per_mtok: 3, output_per_mtok: 14}\n")
    whole = lockpin(*words).stdout

    for more in ({}, {"NO_COLOR": "1"}):
        shown = ESCAPES.sub("", terminal(*words, columns=80, **more))
        table = [line for line in shown.splitlines() if ";" not in line and "prices checked" not in line]
        wide = ESCAPES.sub("", terminal(*words, columns=200, **more))
        assert all(len(line) <= 80 for line in table if "terminal" not in line and "assumed" not in line), shown
        assert set(DOLLARS.findall(shown)) <= set(DOLLARS.findall(whole))
        assert "no room for" not in wide


def test_columns_that_are_left_out_are_named_and_the_least_needed_goes_first(terminal, ledger):
    shown = ESCAPES.sub("", terminal("report", columns=70))

    assert "\nno room for UNCAPPED, EST. CALLS; a wider terminal, or --format csv, shows all\n" in shown
    assert "SPENT" in shown
    assert "OUTPUT" in shown


def test_terminal_gets_colours_and_a_pipe_none(terminal, lockpin, ledger):
    shown = terminal("calls")

    assert "\x1b[31m" in shown  # a refused call is red
    assert "\x1b[1m" in shown
    assert "\x1b" not in lockpin("calls", TERM="xterm-256color").stdout


@pytest.mark.parametrize("more", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_terminal_without_colours_gets_the_lines_of_a_pipe(terminal, lockpin, ledger, more):
    assert terminal("report", columns=110, **more) == lockpin("report").stdout


def test_escapes_of_a_name_do_not_reach_the_terminal():
    view = View([Column("TASK")], [["a\x1b[31mb [bold]c[/bold]"]], (), ())

    assert drawn(view, 60)[2] == "a\\x1b[31mb [bold]c[/bold]"


def test_used_up_budget_is_red_and_one_past_its_alert_step_yellow(terminal, lockpin, ledger):
    lockpin("task", "new", "fix", "--budget", "0.03")
    assert "\x1b[31m" in terminal("budget", "status", "--key", "task:fix")
    lockpin("task", "new", "fix", "--budget", "0.04")
    assert "\x1b[33m" in terminal("budget", "status", "--key", "task:fix")


def test_narrow_list_of_calls_has_short_ids_that_every_command_takes_and_keeps_the_task(terminal, lockpin, home):
    now = datetime(2026, 10, 21, 12, 30, tzinfo=UTC)
    first = new_id()
    ids = [first, first[:11] + "z" * 15, "7zzzzzzzzzzzzzzzzzzzzzzzzz"]  # the first two differ from the twelfth on
    assert first[11] != "z"
    books = SqliteLedger(home.ledger, clock=lambda: now, new_id=new_id)
    for call_id in ids:
        asked = call(call_id, "0.5", task="fix-the-login-bug", model="claude-opus-4-5-20251101")
        books.hold(asked, Rules((), own_budget(None, ("0.8",), "UTC"))).result(10)
    books.stop()

    for more in ({}, {"NO_COLOR": "1"}):
        shown = ESCAPES.sub("", terminal("calls", columns=60, **more)).splitlines()
        assert all(len(line) <= 60 for line in shown if "terminal" not in line), shown
        for call_id in ids:
            assert len([line for line in shown if f"{call_id[:12]} " in line]) == 1
            assert json.loads(lockpin("receipt", call_id[:12]).stdout)["id"] == call_id
        text = "".join(shown)
        assert "fix-the" in text
        assert "no room for AT, DECISION, TOKENS;" in shown[-1]

    wider = ESCAPES.sub("", terminal("calls", columns=116))
    assert f"10-21 12:30  {ids[2][:12]}  fix-the-login-bug" in wider


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_price_list_breaks_at_no_width_a_terminal_has(terminal, columns):
    shown = ESCAPES.sub("", terminal("prices", "list", columns=columns)).splitlines()

    table = [line for line in shown if ";" not in line]  # the sentences below it may
    assert all(len(line) <= columns for line in table), max(table, key=len)
