from collections.abc import Iterator
from pathlib import Path

import pytest

from lockpin_core.call import Payers, Refusal
from lockpin_core.clock import new_id, utc_now
from lockpin_core.ledger.protocol import CallNote
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.readers.finder import near

CALLS = (("01aa1", "fix", "claude-opus-4-5[1m]"), ("01aa2", "doc", "gpt-5"), ("02bb1", "doc", "gpt-5-mini"))


@pytest.fixture
def finder(tmp_path: Path) -> Iterator[LedgerReader]:
    books = SqliteLedger(tmp_path / "l.sqlite3", clock=utc_now, new_id=new_id)
    for call, task, model in CALLS:
        books.uncapped(CallNote(call, Payers(task, "box"), "openai", "api.openai.com", model, "x/1", "no_limit"))
    late = CallNote("03cc1", Payers("late", "box"), "openai", "api.openai.com", "m", "x/1", "bad_request")
    books.refuse(late, Refusal("bad_request", 400, "lockpin: no"))
    books.stop()
    with LedgerReader(tmp_path / "l.sqlite3") as found:
        yield found


@pytest.mark.parametrize(
    ("beginning", "task", "ids"),
    [
        ("01aa", None, ["01aa1", "01aa2"]),
        ("01aa", "doc", ["01aa2"]),
        ("0", None, ["01aa1", "01aa2", "02bb1", "03cc1"]),
        ("01aa1", None, ["01aa1"]),
        ("01aa11", None, []),
        ("%", None, []),
    ],
)
def test_calls_are_found_by_the_beginning_of_their_id(finder, beginning, task, ids):
    assert finder.ids(beginning, task=task) == ids


@pytest.mark.parametrize(
    ("model", "ids"),
    [
        ("gpt-5*", ["02bb1", "01aa2"]),
        ("gpt-5", ["01aa2"]),
        ("claude-opus-4-5[1m]", ["01aa1"]),  # a name, though it looks like a glob
        ("*", ["03cc1", "02bb1", "01aa2", "01aa1"]),
        ("GPT-5", []),
    ],
)
def test_calls_are_found_by_a_glob_newest_first(finder, model, ids):
    assert [call.id for call in finder.calls(model=model)] == ids


def test_calls_by_glob_are_narrowed_as_all_are(finder):
    assert [call.id for call in finder.calls(model="*", task="doc", limit=1)] == ["02bb1"]
    assert list(finder.calls(model="*", since=utc_now())) == []


def test_tasks_are_known_by_any_call(finder):
    assert finder.tasks() == ["doc", "fix", "late"]


def test_machines_are_known_by_their_accounts_alone(finder):
    assert finder.machines() == []


def test_near_names_come_first_and_else_a_few():
    many = [f"t{number}" for number in range(8)]

    assert near("fixx", ["doc", "fix"]) == "there is fix"
    assert near("zzz", ["doc", "fix", "doc"]) == "there are doc, fix"
    assert near("zzz", many) == "there are t0, t1, t2, t3, t4 and 3 more"
    assert near("zzz", []) == ""
