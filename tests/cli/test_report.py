import csv
import io
import json
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from lockpin_core.call import Payers, Refusal
from lockpin_core.clock import new_id, utc_now
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.protocol import CallNote
from lockpin_core.ledger.summaries import GROUPS
from lockpin_core.money import Money


def test_report_adds_up_by_task_while_the_ledger_is_in_use(lockpin, home, ledger):
    done = lockpin("report", "--format", "json")

    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(report) == ["since", "until", "by", "rows", "total", "held_usd", "ledger"]
    assert (report["since"], report["by"], report["ledger"]) == (None, "task", str(home.ledger))
    fix, doc = report["rows"]
    assert fix == {
        "key": "fix", "calls": 2, "refused": 0, "uncapped": 0, "estimated_calls": 1, "input_tokens": 130,
        "cache_read_tokens": 0, "cache_write_tokens": 0, "output_tokens": 20, "spent_usd": 0.03,
        "estimated_usd": 0.0086,
    }  # fmt: skip
    assert (doc["key"], doc["calls"], doc["refused"], doc["uncapped"], doc["spent_usd"]) == ("doc", 2, 1, 1, 0)
    assert report["total"]["calls"] == 4
    assert report["total"]["spent_usd"] == 0.03
    assert "key" not in report["total"]
    assert report["held_usd"] == 1.25


def test_amounts_in_json_are_exact_decimals(lockpin, ledger):
    text = lockpin("report", "--format", "json").stdout

    assert '"spent_usd":0.03,"estimated_usd":0.0086' in text
    assert '"held_usd":1.25' in text


def test_table_aligns_amounts_and_names_what_is_held_and_estimated(lockpin, ledger):
    lines = lockpin("report").stdout.splitlines()

    assert lines[0].split() == [
        *("TASK", "CALLS", "REFUSED", "UNCAPPED", "EST.", "CALLS", "INPUT", "CACHE", "READ", "CACHE", "WRITE"),
        *("OUTPUT", "SPENT", "EST.", "$"),
    ]
    assert lines[1].endswith("$0.0300  $0.0086")
    assert lines[2].endswith("$0.0000  $0.0000")
    assert lines[3].startswith("TOTAL")
    assert len({len(line) for line in lines[:4]}) == 1
    assert lines[4:] == ["held by 1 call in flight: $1.25", "estimated: 28.7% of what was spent"]  # 0.0086 of 0.03


def test_csv_has_the_fields_of_a_row(lockpin, ledger):
    rows = list(csv.DictReader(io.StringIO(lockpin("report", "--by", "model", "--output", "csv").stdout)))

    assert [(row["key"], row["calls"], row["spent_usd"]) for row in rows] == [
        ("claude-opus-4-5", "4", "0.03"),
        ("gpt-x", "0", "0"),
    ]


def test_jsonl_has_a_line_for_each_row(lockpin, ledger):
    rows = [json.loads(line) for line in lockpin("report", "--by", "tag", "--format", "jsonl").stdout.splitlines()]

    assert {row["key"]: row["calls"] for row in rows} == {None: 3, "run=7": 1, "team=web": 1}


def test_tags_may_add_up_to_more_than_the_total(lockpin, ledger):
    report = json.loads(lockpin("report", "--by", "tag", "--format", "json").stdout)

    assert sum(row["calls"] for row in report["rows"]) == 5
    assert report["total"]["calls"] == 4


@pytest.mark.parametrize("by", GROUPS)
def test_every_group_adds_up_to_the_same_spend(lockpin, ledger, by):
    report = json.loads(lockpin("report", "--by", by, "--format", "json").stdout)

    assert report["by"] == by
    assert report["total"]["spent_usd"] == 0.03


def test_since_leaves_out_what_came_before(lockpin, ledger):
    later = json.loads(lockpin("report", "--since", "2999-01-01", "--format", "json").stdout)
    both = json.loads(lockpin("report", "--since", "24h", "--format", "json").stdout)

    assert (later["since"], later["rows"], later["total"]["spent_usd"]) == ("2999-01-01T00:00:00Z", [], 0)
    assert both["total"]["spent_usd"] == 0.03


def test_missing_ledger_is_nothing_yet_and_is_not_made(lockpin, home):
    table, document = lockpin("report"), lockpin("report", "--format", "json")

    assert (table.returncode, table.stdout) == (0, f"no calls yet in {home.ledger}\n")
    assert json.loads(document.stdout)["total"]["spent_usd"] == 0
    assert not home.ledger.exists()


@pytest.mark.parametrize("before", [True, False])
def test_config_may_stand_before_and_after_the_command(lockpin, home, before):
    file = home.config(f"ledger: sqlite://{home.path}/elsewhere.sqlite3\n", "other.yaml")
    words = ["--config", str(file), "report"] if before else ["report", "--config", str(file)]

    assert lockpin(*words).stdout == f"no calls yet in {home.path}/elsewhere.sqlite3\n"


def test_config_of_the_folder_is_found(lockpin, home):
    home.config(f"ledger: sqlite://{home.path}/here.sqlite3\n")

    assert "here.sqlite3" in lockpin("report").stdout


def test_bad_config_names_file_and_line(lockpin, home):
    home.config("mode: solo\ndaily_usd: -5\n")

    done = lockpin("report")

    assert done.returncode == 1
    assert done.stderr.startswith('lockpin.yaml:2: daily_usd is "-5"')


@pytest.mark.parametrize("by", ["model", "client", "provider", "tag"])
def test_empty_key_is_a_dash_in_the_table(lockpin, ledger, by):
    ledger.refuse(CallNote("c7", Payers("", ""), "", "", "", "", "bad_request"), Refusal("bad_request", 400, "no"))
    ledger.stop()

    assert "-" in [line.split()[0] for line in lockpin("report", "--by", by).stdout.splitlines()]


def test_days_are_those_of_the_configured_zone(lockpin, home, ledger):
    zone = "Pacific/Kiritimati"  # 14 hours ahead
    home.config(f"ledger: sqlite://{home.ledger}\ntimezone: {zone}\n")
    before = datetime.now(ZoneInfo(zone)).date()

    report = json.loads(lockpin("report", "--by", "day", "--format", "json").stdout)

    days = {row["key"] for row in report["rows"]}
    assert days <= {before.isoformat(), datetime.now(ZoneInfo(zone)).date().isoformat()}
    assert report["total"]["spent_usd"] == 0.03


def test_limit_shows_the_dearest_and_the_total_of_all(lockpin, ledger):
    report = json.loads(lockpin("report", "--limit", "1", "--format", "json").stdout)
    lines = lockpin("report", "--limit", "1").stdout.splitlines()

    assert [row["key"] for row in report["rows"]] == ["fix"]
    assert report["total"]["calls"] == 4
    assert [line.split()[0] for line in lines[:3]] == ["TASK", "fix", "TOTAL"]
    assert lines[2].split()[1] == "4"
    assert lines[3] == "the dearest 1; 1 more row in the total, --limit shows more"
    assert not [line for line in lockpin("report", "--limit", "2").stdout.splitlines() if "more row" in line]


@pytest.mark.parametrize(("by", "more"), [("model", 1), ("tag", 2), ("client", 1), ("day", 0)])
def test_rows_beyond_the_limit_are_counted_by_any_key(lockpin, ledger, by, more):
    # Two models, two clients, one day; "team=web", "run=7" and no tag.
    shown = lockpin("report", "--by", by, "--limit", "1", "--since", "2d").stdout

    assert (f"; {more} more row" in shown) == (more > 0)


def test_corrected_call_counts_as_what_it_costs(lockpin, home, ledger):
    admin = SqliteAdmin(home.ledger, clock=utc_now, new_id=new_id)
    admin.correct("c2", Money.parse("0.0486"), reason="invoice", who="ada")

    fix = json.loads(lockpin("report", "--since", "1h", "--format", "json").stdout)["rows"][0]

    assert (fix["spent_usd"], fix["estimated_usd"], fix["estimated_calls"], fix["calls"]) == (0.07, 0, 0, 2)


def test_json_lines_and_csv_have_the_rows_alone(lockpin, ledger):
    lines = lockpin("report", "--format", "jsonl").stdout.splitlines()
    rows = list(csv.DictReader(io.StringIO(lockpin("report", "--format", "csv").stdout)))

    assert [json.loads(line)["key"] for line in lines] == ["fix", "doc"] == [row["key"] for row in rows]
