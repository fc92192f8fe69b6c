import json
from datetime import UTC, datetime

import pytest

from lockpin_core.ledger.definitions import definition_of
from lockpin_core.ledger.reader import Event, LedgerReader
from lockpin_core.readers.events import FIELDS, record, words
from lockpin_core.windows import Window
from tests.ledger import everything
from tests.ledger.desk import SqliteDesk, machine

AT = datetime(2026, 10, 21, 12, 30, 5, 999, tzinfo=UTC)
DAY_US = 86_400 * 10**6
CALENDAR = "daily\x1fmachine\x1fhost\x1f2026-10-21T00:00:00Z/2026-10-22T01:00:00Z"
ROLLING = "any\x1ftask\x1ffix\x1f~86400000"
SPENT = {"spent_nano": 10**9, "held_nano": 0, "spent_tokens": 1200, "held_tokens": 0}


def told(code, task=None, **data):
    return words(Event(AT, code, task, data))


def test_record_has_its_fields_and_an_instant_to_the_second():
    found = record(Event(AT, "task_closed", "fix", {"who": "ada"}))

    assert tuple(found) == FIELDS
    assert found == {
        "at": "2026-10-21T12:30:05Z", "who": "ada", "code": "task_closed", "what": 'task "fix" is closed',
        "loosens": False, "task": "fix", "data": {"who": "ada"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "data", "said"),
    [
        ("budget_removed", {"name": "a"}, 'budget "a" is out of force'),
        ("drift", {"call": "c9", "kind": "model", "was": ["a", "b"], "now": "c"},
         'task "fix" has changed: call c9 was of c, and the first ones were of a, b'),
        ("drift", {"call": "c9", "kind": "cost", "was": {"model": "a", "median_nano": 10**8}, "now": 4 * 10**8},
         'task "fix" has changed: call c9 cost $0.40, and the first ones of a cost $0.10'),
        ("drift", {"call": "c9", "kind": "cache", "was": "80%", "now": "0%"},
         'task "fix" has changed: call c9 and those before it had 0% of their prompts from the cache, the first ones 80%'),
        ("drift", {"call": "c9", "kind": "system", "was": "aa", "now": "bb"},
         'task "fix" has changed: call c9 had another system prompt than the first ones'),
        ("drift", {"call": "c9", "kind": "tools", "was": "aa", "now": "bb"},
         'task "fix" has changed: call c9 had another set of tools than the first ones'),
        ("loop_found", {"what": "same_tool_call", "repeats": 20, "tools": ["ls", "cat"]},
         'task "fix" goes round in a circle: the same tool call with the same result 20 times in a row (ls, cat)'),
        ("loop_found", {"what": "near_repeats", "repeats": 40, "tools": ["find"]},
         'task "fix" goes round in a circle: nearly the same tool call, which gives nothing, 40 times in a row (find)'),
        ("loop_found", {"what": "same_request", "repeats": 20, "tools": []},
         'task "fix" goes round in a circle: the same request 20 times in a row'),
        ("key_created", {"key": "k1", "user": "ann@corp.com", "expires": None}, "key k1 of ann@corp.com is made"),
        ("key_created", {"key": "k1", "user": "ann@corp.com", "expires": DAY_US},
         "key k1 of ann@corp.com is made, until 1970-01-02T00:00:00Z"),
        ("key_rotated", {"key": "k1", "until": DAY_US, "expires": None},
         "key k1 has another secret; the one before ends at 1970-01-02T00:00:00Z"),
        ("key_rotated", {"key": "k1", "until": 0, "expires": DAY_US},
         "key k1 has another secret, and is good until 1970-01-02T00:00:00Z; the one before ends at 1970-01-01T00:00:00Z"),
        ("key_revoked", {"key": "k1"}, "key k1 is revoked"),
        ("budget_raised", {"by_nano": 5 * 10**9, "account": CALENDAR},
         "limit raised by $5.00: daily of machine:host, window from 2026-10-21T00:00:00Z"),
        ("budget_raised", {"by_nano": 5 * 10**9, "account": ROLLING, "leaves_at": DAY_US},
         "limit raised by $5.00 until 1970-01-02T00:00:00Z: any of task:fix"),
        ("question_asked", {"question": "41", "kind": "approval", "model": "m", "needed_nano": 5 * 10**8,
                            "short_nano": 10**8},
         'question 41 about a call of task "fix" to m: $0.50, short by $0.10'),
        ("question_asked", {"question": "41", "kind": "loop", "model": "m", "needed_nano": 0, "short_nano": 0},
         'question 41 about a call of task "fix" to m: a loop'),
        ("question_answered", {"question": "41", "answer": "once"}, 'question 41 is answered "once"'),
        ("question_answered", {"question": "41", "answer": "raise", "by_nano": 10**9},
         'question 41 is answered "raise" by $1.00'),
        ("allowed_once", {"question": "41", "call": "c1", "by_nano": 10**8, "account": ROLLING},
         "limit raised by $0.10 for call c1, by the answer to question 41: any of task:fix"),
        ("allowance_passed_on", {"call": "c1", "to": "c2", "by_nano": 10**8, "account": ROLLING},
         "what call c1 was allowed, $0.10, is its next attempt's, call c2"),
        ("allowance_ended", {"call": "c1", "by_nano": 10**8, "account": ROLLING},
         "$0.10 of what call c1 was allowed and has not used is taken back: any of task:fix"),
        ("raises_forgotten", {"raised_nano": 5 * 10**8, "account": ROLLING},
         "raises of $0.50 taken back: any of task:fix"),
        ("budget_reset", {"account": ROLLING, **SPENT},
         "spent counts anew, $1.00 and 1,200 tokens taken off: any of task:fix"),
        ("threshold_passed", {"account": CALENDAR, **SPENT, "step": "0.8", "limit_nano": 12 * 10**8, "limit_tokens": None},
         "80% is spent, $1.00 of $1.20: daily of machine:host, window from 2026-10-21T00:00:00Z"),
        ("threshold_passed", {"account": ROLLING, **SPENT, "step": "0.125", "limit_nano": None, "limit_tokens": 9600},
         "12.5% is spent, 1,200 of 9,600 tokens: any of task:fix"),
        ("limit_refused", {"account": ROLLING, **SPENT, "held_nano": 5 * 10**8, "limit_nano": 2 * 10**9,
                           "limit_tokens": 9600},
         "a call did not fit, $1.00 of $2.00 and 1,200 of 9,600 tokens, $0.50 held: any of task:fix"),
        ("task_new", {"limit_nano": 10**9, "window": "rolling:86400000", "reopened": True},
         'task "fix" has a budget of $1.00, rolling 24h; it was closed and is open again'),
        ("task_new", {"limit_nano": None, "window": "day"}, 'task "fix" has no budget of its own, day'),
        ("prune_begun", {"rows_to": 4000}, "rows up to 4,000 are taken out"),
        ("account_opened", {"account": ROLLING, **SPENT}, "begins with $1.00 spent and $0.00 held: any of task:fix"),
        ("account_caught_up", {"account": ROLLING, **SPENT},
         "counts $1.00 spent and $0.00 held that it had missed: any of task:fix"),
        ("hold_deferred", {"call": "c1", "until": DAY_US},
         "the cost of call c1 comes later, until 1970-01-02T00:00:00Z"),
        ("hold_adopted", {"calls": ["c1"]}, "1 deferred call of a proxy that has ended go on"),
        ("some_day_new", {}, "some day new"),
    ],
)  # fmt: skip
def test_each_event_in_words(code, data, said):
    assert told(code, "fix", **data) == said


def test_definition_in_words_says_where_it_comes_from_and_whether_it_only_warns():
    budget = machine("25", window=Window("day", "Asia/Kolkata", 570), enforce=False)

    assert told("budget_defined", name="daily", **definition_of(budget), source="config") == (
        'budget "daily" is in force: machine, day at 09:30 Asia/Kolkata, limit $25.00, it only warns, '
        "from a proxy's configuration"
    )
    origin = "/etc/lockpin.yaml with lockpin_daily_usd=9"
    assert told("budget_defined", name="daily", **definition_of(budget), source="config", origin=origin).endswith(
        "it only warns, from /etc/lockpin.yaml with lockpin_daily_usd=9"
    )
    assert told("budget_removed", name="daily", origin="/etc/lockpin.yaml") == (
        'budget "daily" is out of force, it is no more in /etc/lockpin.yaml'
    )


def test_all_that_a_full_ledger_noted_has_words_and_is_listed_oldest_first(tmp_path):
    desk = SqliteDesk(tmp_path)
    everything.fill(desk)
    rows = desk.query("SELECT at, code, data FROM rows WHERE kind = 'event' ORDER BY id")

    with LedgerReader(desk.path) as reader:
        found = list(reader.events())
        late = list(reader.events(since=found[-1].at))

    assert [(each.code, each.data) for each in found] == [(row["code"], json.loads(row["data"])) for row in rows]
    assert all(words(each) for each in found)
    assert late == [each for each in found if each.at == found[-1].at]
    assert len({each.code for each in found}) >= 6
    desk.close()
