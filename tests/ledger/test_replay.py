import hashlib
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from lockpin_core.clock import micros
from lockpin_core.ledger.accounts import TaskTerms
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.definitions import definition_of
from lockpin_core.ledger.expected import Wrong
from lockpin_core.ledger.replay import Replay
from lockpin_core.windows import Window
from tests.ledger import everything
from tests.ledger.desk import LIFETIME, NOON, OWN, SqliteDesk, machine

VERSION_1 = Path(__file__).resolve().parent.parent / "data" / "ledger" / "version-1.sql"
HOUR = 3600 * 10**6
AT = micros(NOON)
TASK, DAILY = "task\x1ftask\x1ft\x1f", "daily\x1fmachine\x1fm\x1f2026-10-21T00:00:00Z"
NEXT_DAY = "daily\x1fmachine\x1fm\x1f2026-10-22T00:00:00Z"
ROLLING = "rolling\x1fmachine\x1fm\x1f~86400000"
USD = 10**9
FACTS = {"task": "t", "machine": "m", "provider": "openai", "model": "gpt-5.5"}


class Scribe:
    """Writes rows whose chains are right, whatever they say."""

    def __init__(self, *budgets):
        self.rows, self.at, self.ends = [], AT, {}
        for budget in (OWN, *budgets):
            self.define(budget)

    def write(self, kind, *, writer="w", **columns):
        seq, prev = self.ends.get(writer, (0, bytes(32)))
        content = {"kind": kind, "at": self.at, "writer": writer, "seq": seq + 1, **columns}
        content = {name: value for name, value in content.items() if value is not None}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(prev + text.encode()).digest()
        self.ends[writer] = (seq + 1, digest)
        self.rows.append({"id": len(self.rows) + 1, "prev": prev, "hash": digest, **content})

    def event(self, code, *, task=None, writer="w", **data):
        self.write("event", code=code, task=task, data=encode(data), writer=writer)

    def define(self, budget, **more):
        self.event("budget_defined", name=budget.name, **definition_of(budget), **more)

    def hold(self, call, usd, *accounts, tokens=100, **more):
        names = encode(list(accounts or (TASK, DAILY)))
        self.write("hold", call=call, usd=usd, tokens=tokens, accounts=names, **{**FACTS, **more})

    def charge(self, call, usd, *accounts, tokens=20, kind="charge", held_at=None, **more):
        told = {**FACTS, "held_at": AT if held_at is None else held_at}
        names = encode(list(accounts or (TASK, DAILY)))
        self.write(kind, call=call, usd=usd, tokens=tokens, accounts=names, **{**told, **more})

    def shrink(self, call, usd, *accounts, tokens=40, **more):
        self.charge(call, usd, *accounts, tokens=tokens, kind="shrink", **more)

    def replayed(self):
        replay = Replay()
        for row in self.rows:
            replay.apply(row)
        return replay


@pytest.fixture
def scribe():
    return Scribe(machine("1"))


def wrong(scribe):
    """Replay until the last row, which must be the one that is wrong."""
    replay = Replay()
    for row in scribe.rows[:-1]:
        replay.apply(row)
    with pytest.raises(Wrong) as caught:
        replay.apply(scribe.rows[-1])
    assert caught.value.row == len(scribe.rows)
    return caught.value.words


def spent_and_held(replay, account):
    return replay.accounts[account].numbers()[:4]


def test_hold_and_charge_are_on_all_their_accounts(scribe):
    scribe.hold("a", 300)
    scribe.hold("b", 500)
    scribe.charge("a", 250)

    replay = scribe.replayed()

    assert spent_and_held(replay, TASK) == spent_and_held(replay, DAILY) == (250, 500, 20, 100)
    assert replay.tasks["t"].spent_nano == 250
    assert list(replay.open) == ["b"]
    assert (replay.row, replay.at, replay.calls, replay.over_hold) == (5, AT, 2, 0)
    assert replay.ends == {"w": scribe.ends["w"]}


def test_columns_may_come_in_any_order_and_with_those_that_are_null(scribe):
    scribe.hold("a", 300)
    replay = Replay()

    for row in scribe.rows:
        replay.apply(dict(reversed([*row.items(), ("aaa", None), ("zzz", None)])))

    assert replay.row == 3


def test_void_takes_the_hold_off_and_costs_nothing(scribe):
    scribe.hold("a", 300)
    scribe.charge("a", 0, tokens=0, kind="void")

    replay = scribe.replayed()

    assert spent_and_held(replay, DAILY) == (0, 0, 0, 0)
    assert replay.open == {}


def test_shrink_takes_the_same_off_the_hold_and_its_accounts(scribe):
    scribe.hold("a", USD)
    scribe.shrink("a", 600)
    scribe.hold("b", 600)  # fits only now

    replay = scribe.replayed()

    assert spent_and_held(replay, DAILY) == (0, USD, 0, 160)
    assert (replay.open["a"].usd, replay.open["a"].tokens) == (USD - 600, 60)


def test_correction_is_booked_in_the_window_of_the_hold(scribe):
    scribe.hold("a", 300)
    scribe.charge("a", 250)
    scribe.at += 24 * HOUR
    scribe.charge("a", -50, tokens=-5, kind="correction", code="corrected")

    replay = scribe.replayed()

    assert spent_and_held(replay, DAILY) == (200, 0, 15, 0)
    assert replay.tasks["t"].spent_nano == 200


def test_charge_leaves_a_rolling_window_after_its_period():
    scribe = Scribe(machine("1", name="rolling", window=Window("rolling", period_ms=86_400_000)))
    scribe.hold("a", USD, TASK, ROLLING)
    scribe.at += HOUR
    scribe.charge("a", USD, TASK, ROLLING)
    scribe.at = AT + 24 * HOUR - 1
    scribe.hold("b", 1, TASK, ROLLING)

    assert "passes the limit" in wrong(scribe)

    scribe.rows.pop()
    scribe.ends["w"] = (scribe.rows[-1]["seq"], scribe.rows[-1]["hash"])
    scribe.at = AT + 24 * HOUR  # noon is a half hour's end, a forty-eighth of the period
    scribe.hold("b", USD, TASK, ROLLING)
    assert spent_and_held(scribe.replayed(), ROLLING) == (0, USD, 0, 100)


def test_charge_that_would_have_left_a_rolling_window_is_on_no_step():
    scribe = Scribe(machine("1", name="rolling", window=Window("rolling", period_ms=86_400_000)))
    scribe.hold("a", USD, TASK, ROLLING)
    scribe.at += 24 * HOUR
    scribe.charge("a", USD, TASK, ROLLING)

    replay = scribe.replayed()

    assert spent_and_held(replay, ROLLING) == (0, 0, 0, 0)
    assert replay.accounts[ROLLING].steps == {}
    assert replay.tasks["t"].spent_nano == USD


def test_raise_and_reset_make_room(scribe):
    scribe.hold("a", USD)
    scribe.charge("a", USD)
    scribe.event("budget_raised", who="ada", budget="daily", subject="m", account=DAILY, by_nano=500)
    scribe.hold("b", 500)
    scribe.event("budget_reset", who="ada", account=DAILY, spent_nano=USD, spent_tokens=20)
    scribe.hold("c", USD)

    replay = scribe.replayed()

    assert spent_and_held(replay, DAILY) == (0, USD + 500, 0, 200)
    assert replay.accounts[DAILY].balance.raised_nano == 500


def test_account_that_is_opened_counts_what_was_there(scribe):
    late = "late\x1fmachine\x1fm\x1f"
    scribe.hold("a", 300)
    scribe.define(machine("1", name="late", window=LIFETIME))
    scribe.hold("b", 70)
    scribe.charge("b", 70, tokens=7)
    sums = {"spent_nano": 70, "held_nano": 300, "spent_tokens": 7, "held_tokens": 100}
    scribe.event("account_opened", account=late, calls=["a"], **sums)
    scribe.charge("a", 250, TASK, DAILY, late)

    assert spent_and_held(scribe.replayed(), late) == (320, 0, 27, 0)


def test_deferred_hold_goes_on_under_the_writer_that_adopts_it(scribe):
    scribe.hold("a", 300)
    scribe.event("hold_deferred", call="a", until=AT + HOUR)
    scribe.write("event", writer="v", code="hold_adopted", data=encode({"calls": ["a"], "writer": "w"}))

    held = scribe.replayed().open["a"]

    assert (held.writer, held.until) == ("v", AT + HOUR)


@pytest.mark.parametrize(
    ("told", "raised"), [({"loosens": False}, 500), ({"loosens": False, "account": TASK}, 0), ({}, 0)]
)
def test_limit_of_a_task_takes_its_raises_back_where_it_says_so(scribe, told, raised):
    """Version 1 said neither the account nor `loosens`, and took them back with every limit."""
    scribe.event("budget_raised", account=TASK, by_nano=500)
    scribe.event("task_new", task="t", who="ada", limit_nano=700, window="lifetime", reopened=False, **told)
    scribe.hold("a", 700)

    replay = scribe.replayed()

    assert replay.accounts[TASK].balance.raised_nano == raised
    assert replay.tasks["t"].terms == TaskTerms("lifetime", 700, None, closed=False)
    assert replay.tasks["t"].created == AT


def balances(*accounts):
    """Write what a resolution says of its accounts: spent, held, limit, and the same in tokens."""
    return encode({"balances": accounts})


def test_raise_that_was_taken_back_leaves_no_rolling_window():
    scribe = Scribe()
    own = "task\x1ftask\x1ft\x1f~86400000"
    terms = {"task": "t", "limit_nano": 700, "window": "rolling:86400000", "reopened": False, "loosens": False}
    scribe.event("task_new", **terms)
    scribe.event("budget_raised", account=own, by_nano=500, leaves_at=AT + 24 * HOUR, loosens=True)
    scribe.hold("a", 1200, own)
    scribe.charge("a", 400, own, over_hold=0, data=balances([400, 0, 1200, 20, 0, None]))
    scribe.event("task_new", **terms, account=own)
    scribe.hold("b", 300, own)
    scribe.at += 24 * HOUR
    scribe.hold("c", 400, own)

    assert scribe.replayed().accounts[own].numbers() == (0, 700, 0, 200, 0, 0, 0)


@pytest.mark.parametrize(("raised", "right"), [(500, True), (499, False)])
def test_raises_that_are_forgotten_are_all_that_there_were(scribe, raised, right):
    scribe.event("budget_raised", account=DAILY, by_nano=500)
    scribe.event("raises_forgotten", account=DAILY, raised_nano=raised)

    if right:
        assert scribe.replayed().accounts[DAILY].balance.raised_nano == 0
    else:
        assert "is not what that was raised by" in wrong(scribe)


def test_raise_counts_in_a_rolling_window_for_a_period():
    scribe = Scribe()
    own = "task\x1ftask\x1ft\x1f~86400000"
    scribe.event("task_new", task="t", limit_nano=700, window="rolling:86400000", reopened=False, loosens=False)
    scribe.event("budget_raised", account=own, by_nano=500, leaves_at=AT + 24 * HOUR, loosens=True)
    scribe.at += 24 * HOUR - 1
    scribe.hold("a", 701, own)
    nothing = balances([0, 0, 1200, 0, 0, None])
    scribe.charge("a", 0, own, tokens=0, kind="void", held_at=scribe.at, data=nothing)
    scribe.at += 1
    scribe.hold("b", 701, own)

    assert "$0.0000007 with $0 spent and $0 held" in wrong(scribe)


def test_more_than_is_held_cannot_be_taken_off(scribe):
    """Rows alone cannot come to that; a state that was changed can."""
    scribe.hold("a", 300)
    scribe.charge("a", 250)
    replay = Replay()
    for row in scribe.rows[:-1]:
        replay.apply(row)
    state = json.loads(encode(replay.state()))
    state["accounts"][DAILY]["numbers"][1] = 299

    with pytest.raises(
        Wrong, match='it takes more off budget "daily" of machine "m" in 2026-10-21T00:00:00Z than that'
    ):
        Replay.of(state).apply(scribe.rows[-1])


def test_removed_budget_judges_no_hold(scribe):
    scribe.hold("a", USD)
    scribe.event("budget_removed", name="daily")
    scribe.hold("b", USD)

    assert spent_and_held(scribe.replayed(), DAILY) == (0, 2 * USD, 0, 200)


def test_unchecked_hold_is_not_judged(scribe):
    scribe.hold("a", 2 * USD, data='{"unchecked":true}')

    assert spent_and_held(scribe.replayed(), DAILY)[1] == 2 * USD


def test_amount_of_zero_always_fits(scribe):
    scribe.hold("a", USD)
    scribe.charge("a", 2 * USD)
    scribe.hold("b", 0)

    replay = scribe.replayed()

    assert replay.over_hold == 1
    assert replay.over_limit() == [DAILY]


def test_hold_that_passes_a_limit_is_wrong(scribe):
    scribe.hold("a", USD)
    scribe.hold("b", 1)

    assert wrong(scribe) == (
        'its hold of $0.000000001 and 100 tokens passes the limit of budget "daily" of machine "m" in '
        "2026-10-21T00:00:00Z: $1 with $0 spent and $1 held"
    )


def test_hold_that_passes_a_limit_of_tokens_is_wrong():
    scribe = Scribe(machine(None, limit_tokens=150))
    scribe.hold("a", USD)
    scribe.hold("b", USD, tokens=51)

    assert "150 tokens with 0 spent and 100 held" in wrong(scribe)


def test_hold_that_passes_the_task_s_own_limit_is_wrong(scribe):
    scribe.event("task_new", task="t", limit_nano=700, window="lifetime", reopened=False, loosens=False)
    scribe.hold("a", 701)

    assert 'budget "task" of task "t": $0.0000007' in wrong(scribe)


def test_hold_outside_its_window_is_wrong(scribe):
    scribe.hold("a", 1, TASK, NEXT_DAY)

    assert wrong(scribe) == 'it is outside the window of budget "daily" of machine "m" in 2026-10-22T00:00:00Z'


def test_hold_on_an_account_that_the_budget_has_not_now_is_wrong(scribe):
    scribe.hold("a", 1, TASK, "daily\x1fmachine\x1fm\x1f")

    assert "the window in force is another" in wrong(scribe)


def test_hold_on_an_account_that_nobody_has_defined_is_wrong(scribe):
    scribe.hold("a", 1, TASK, "absent\x1fmachine\x1fm\x1f")

    assert 'budget "absent", which nobody has defined' in wrong(scribe)


@pytest.mark.parametrize("account", ["daily\x1fmachine\x1fn\x1f2026-10-21T00:00:00Z", "task\x1ftask\x1fu\x1f"])
def test_hold_on_another_s_account_is_wrong(scribe, account):
    scribe.hold("a", 1, account)

    assert wrong(scribe).endswith("is not its own")


def test_hold_of_a_closed_task_is_wrong(scribe):
    scribe.event("task_new", task="t", limit_nano=None, window="lifetime", reopened=False, loosens=False)
    scribe.event("task_closed", task="t", who="ada")
    scribe.hold("a", 1)

    assert wrong(scribe) == 'its task "t" was closed'


def test_second_hold_of_an_open_call_is_wrong(scribe):
    scribe.hold("a", 1)
    scribe.hold("a", 1)

    assert wrong(scribe) == "its call has an open hold already"


@pytest.mark.parametrize("kind", ["charge", "void"])
def test_second_resolution_is_wrong(scribe, kind):
    scribe.hold("a", 1)
    scribe.charge("a", 1)
    scribe.charge("a", 0, tokens=0, kind=kind)

    assert wrong(scribe) == "its call has no open hold"


@pytest.mark.parametrize(
    ("accounts", "told", "words"),
    [
        ((TASK,), {}, "it is on other accounts than its hold"),
        ((TASK, DAILY, ROLLING), {}, "it is on other accounts than its hold"),
        ((TASK, ROLLING), {}, "it is on other accounts than its hold"),
        ((), {"held_at": AT - 1}, "its hold was taken at 2026-10-21T12:00:00Z, which is not what it says"),
        ((), {"held_at": None}, "its hold was taken at 2026-10-21T12:00:00Z, which is not what it says"),
        ((), {"task": "u"}, 'its task is "u", and its hold was of "t"'),
        ((), {"machine": "n"}, 'its machine is "n", and its hold was of "m"'),
        ((), {"model": "gpt-4"}, 'its model is "gpt-4", and its hold was of "gpt-5.5"'),
        ((), {"client": "x"}, 'its client is "x", and its hold was of "None"'),
        ((), {"usd": -1}, "it costs $-0.000000001 and 20 tokens"),
        ((), {"kind": "void"}, "it costs $0.000000001 and 20 tokens"),
    ],
)
def test_resolution_that_is_not_of_its_hold_is_wrong(scribe, accounts, told, words):
    scribe.hold("a", 300)
    columns = {"usd": 1, "tokens": 20, **FACTS, "held_at": AT, "kind": "charge", **told}
    scribe.write(call="a", accounts=encode(list(accounts or (TASK, DAILY))), **columns)

    assert wrong(scribe) == words


@pytest.mark.parametrize("accounts", [[DAILY, TASK], [TASK, DAILY]])
def test_accounts_of_a_resolution_may_be_in_any_order(scribe, accounts):
    scribe.hold("a", 300)
    scribe.charge("a", 250, *accounts)

    assert scribe.replayed().open == {}


@pytest.mark.parametrize(("usd", "tokens"), [(301, 0), (0, 101), (-1, 0), (0, -1), (0, 0)])
def test_shrink_below_nothing_or_by_nothing_is_wrong(scribe, usd, tokens):
    scribe.hold("a", 300)
    scribe.shrink("a", usd, tokens=tokens)

    assert "off a hold of $0.0000003 and 100 tokens" in wrong(scribe)


@pytest.mark.parametrize(
    ("accounts", "told", "words"),
    [
        ((TASK,), {}, "it is on other accounts than its hold"),
        ((), {"held_at": AT - 1}, "its hold was taken at 2026-10-21T12:00:00Z, which is not what it says"),
        ((), {"task": "u"}, 'its task is "u", and its hold was of "t"'),
    ],
)
def test_shrink_that_is_not_of_its_hold_is_wrong(scribe, accounts, told, words):
    scribe.hold("a", 300)
    scribe.shrink("a", 100, *accounts, **told)

    assert wrong(scribe) == words


def test_shrink_of_a_call_that_has_ended_is_wrong(scribe):
    scribe.hold("a", 300)
    scribe.charge("a", 250)
    scribe.shrink("a", 10)

    assert wrong(scribe) == "its call has no open hold"


def test_over_hold_is_judged_by_what_was_held_last(scribe):
    scribe.define(machine("2"), source="config", loosens=True)
    scribe.hold("a", 300)
    scribe.shrink("a", 100)
    scribe.charge("a", 250, over_hold=0, data=encode({"balances": []}))

    assert wrong(scribe) == "it says that it was not above its hold"


def test_correction_of_an_open_call_is_wrong(scribe):
    scribe.hold("a", 300)
    scribe.charge("a", 1, kind="correction")

    assert wrong(scribe) == "its call has not ended yet"


def test_time_that_steps_back_is_wrong(scribe):
    scribe.at -= 1
    scribe.hold("a", 300)

    assert wrong(scribe) == "its time is before that of row 2, 2026-10-21T12:00:00Z"


def test_kind_that_nobody_writes_is_wrong(scribe):
    scribe.write("gift", call="a")

    assert wrong(scribe) == 'its kind is "gift", which no version writes'


@pytest.mark.parametrize(
    "data",
    [
        {"account": DAILY, "calls": ["a"], "spent_nano": 0, "held_nano": 299, "spent_tokens": 0, "held_tokens": 100},
        {"account": DAILY, "calls": [], "spent_nano": 0, "held_nano": 0, "spent_tokens": 0, "held_tokens": 0},
        {"account": DAILY, "calls": ["b"], "spent_nano": 0, "held_nano": 300, "spent_tokens": 0, "held_tokens": 100},
    ],
)
def test_account_opened_with_other_holds_than_are_open_is_wrong(scribe, data):
    scribe.hold("a", 300, TASK)
    scribe.event("account_opened", **data)

    assert "is not what its open calls hold" in wrong(scribe)


def test_account_that_is_opened_twice_is_wrong(scribe):
    scribe.hold("a", 300)
    scribe.event("account_opened", account=DAILY, calls=[], spent_nano=1, held_nano=0, spent_tokens=0, held_tokens=0)

    assert wrong(scribe).endswith("was opened before")


class Remembered:
    """Earlier rows as a test has them."""

    def __init__(self, *spends):
        self.rows = spends

    def resolution(self, call, held_at, told, row):
        return None

    def spends(self, whose, since, now):
        return self.rows if (whose.scope, whose.subject) == ("machine", "m") else ()


@pytest.mark.parametrize(("spent", "right"), [(70, True), (69, False), (100, False)])
def test_account_begins_with_what_its_window_has_seen(scribe, spent, right):
    """Only what the budget applies to, and only in its window: 30 are another provider's, 9 of the day before."""
    opened = "some\x1fmachine\x1fm\x1f2026-10-21T00:00:00Z"
    scribe.hold("a", 106)
    scribe.charge("a", 106)
    scribe.define(machine("1", name="some", providers=("openai",)))
    sums = {"spent_nano": spent, "held_nano": 0, "spent_tokens": 7, "held_tokens": 0}
    scribe.event("account_opened", account=opened, calls=[], **sums)
    who = ("t", *[None] * 7, "m")
    earlier = [
        (*who, "openai", "m", 70, 7, AT), (*who, "anthropic", "m", 30, 3, AT),
        (*who, "openai", "m", 9, 1, AT - 13 * HOUR),
    ]  # fmt: skip
    replay = Replay(Remembered(*earlier))
    for row in scribe.rows[:-1]:
        replay.apply(row)

    if right:
        replay.apply(scribe.rows[-1])
    else:
        with pytest.raises(Wrong, match="the rows before say"):
            replay.apply(scribe.rows[-1])


def test_correction_of_a_call_that_is_not_there_is_wrong(scribe):
    scribe.charge("a", 1, kind="correction")
    replay = Replay(Remembered())
    for row in scribe.rows[:-1]:
        replay.apply(row)

    with pytest.raises(Wrong, match="no call of that id and instant has ended before it"):
        replay.apply(scribe.rows[-1])


@pytest.mark.parametrize(
    "columns",
    [
        {"kind": "hold", "call": "a"},
        {"kind": "hold", "call": "a", "usd": "much", "tokens": 1, "accounts": "[]", "task": "t"},
        {"kind": "hold", "call": "a", "usd": 1, "tokens": 1, "accounts": "no list", "task": "t"},
        {"kind": "hold", "call": "a", "usd": 1, "tokens": 1, "accounts": '["a","a"]', "task": "t"},
        {"kind": "hold", "call": "a", "usd": 1, "tokens": 1, "accounts": '["no account"]', "task": "t"},
        {"kind": "hold", "call": "a", "usd": 1, "tokens": 1, "accounts": '["a\\u001fb\\u001fc\\u001fd"]', "task": "t"},
        {"kind": "event"},
        {"kind": "event", "code": "task_new", "task": "t", "data": "[]"},
        {"kind": "event", "code": "task_closed", "task": "nobody", "data": "{}"},
        {"kind": "event", "code": "budget_removed", "data": '{"name":"absent"}'},
        {"kind": "event", "code": "hold_deferred", "data": '{"call":"absent","until":1}'},
        {"kind": "event", "code": "budget_reset", "data": f'{{"account":{json.dumps(DAILY)}}}'},
        {"kind": "refusal", "count": "many"},
    ],
)
def test_row_that_says_what_no_ledger_writes_is_wrong_and_no_error_of_ours(scribe, columns):
    scribe.write(**columns)

    assert wrong(scribe)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("prev", None, "its content is not what was written: the hash differs"),
        ("prev", "text", "its content is not what was written: the hash differs"),
        ("prev", bytes(32), "its content is not what was written: the hash differs"),
        ("hash", None, "its content is not what was written: the hash differs"),
        ("usd", 1.5, "its content is not what was written: the hash differs"),
        ("usd", b"300", "its content is not what was written: the hash differs"),
        ("model", "gpt-5.\udcff", "its content is not what was written: the hash differs"),
    ],
)
def test_value_of_another_kind_is_wrong_and_no_error_of_ours(scribe, column, value, words):
    scribe.hold("a", 300)
    scribe.rows[-1][column] = value

    assert wrong(scribe) == words


def test_missing_row_and_row_of_an_earlier_number_are_told_apart(scribe):
    scribe.hold("a", 300)
    replay = Replay()
    replay.apply(scribe.rows[0])

    with pytest.raises(Wrong, match=r"^row 2: it is missing; row 3 comes after row 1$"):
        replay.apply(scribe.rows[2])
    with pytest.raises(Wrong, match=r"^row 1: no row of that number can come after row 1$"):
        replay.apply(scribe.rows[0])


def test_row_that_its_writer_s_chain_lacks_is_missed(scribe):
    scribe.hold("a", 300)
    scribe.hold("b", 300)
    del scribe.rows[2]
    scribe.rows[2]["id"] = 3

    assert wrong(scribe) == "rows of its writer w are missing before it: its seq is 4 after 2"


def test_chain_that_goes_on_from_another_row_is_wrong(scribe):
    scribe.hold("a", 300)
    scribe.ends["w"] = (3, bytes(32))
    scribe.hold("b", 300)

    assert wrong(scribe) == "it does not follow the row before it of its writer w: that row's hash differs"


def everything_rows(tmp_path):
    desk = SqliteDesk(tmp_path)
    everything.fill(desk)
    rows = [dict(row) for row in desk.query("SELECT * FROM rows ORDER BY id")]
    desk.close()
    return rows


def test_replay_goes_on_from_its_state_at_any_row(tmp_path):
    rows = everything_rows(tmp_path)
    whole = Replay()
    states = []
    for row in rows:
        states.append(encode(whole.state()))
        whole.apply(row)

    for cut, state in enumerate(states):
        later = Replay.of(json.loads(state))
        for row in rows[cut:]:
            later.apply(row)
        assert later.state() == whole.state(), cut


def test_state_of_an_earlier_version_is_read(tmp_path):
    """It says less: of accounts not what they have counted, of open calls four facts, of limits not their rows."""
    rows = everything_rows(tmp_path)
    whole = Replay()
    for row in rows:
        whole.apply(row)
    for cut in range(0, len(rows), 3):
        replay = Replay()
        for row in rows[:cut]:
            replay.apply(row)
        state = json.loads(encode(replay.state()))
        del state["is_new"]
        state["version"] = 1
        for account in state["accounts"].values():
            del account["counted"]
        state["tasks"] = {name: told[:6] for name, told in state["tasks"].items()}
        state["definitions"] = {name: told[:4] for name, told in state["definitions"].items()}
        for call, told in state["open"].items():
            at, usd, tokens, accounts, writer, until = told[:6]
            four = [told[7 + place] for place in (0, 8, 9, 11)]  # task, machine, provider, model
            state["open"][call] = [at, usd, tokens, accounts, writer, *four, until]
        later = Replay.of(state)

        for row in rows[cut:]:
            later.apply(row)

        assert {name: tally.numbers() for name, tally in later.accounts.items()} == {
            name: tally.numbers() for name, tally in whole.accounts.items()
        }, cut


@pytest.mark.parametrize("state", [{}, {"version": 2}, [], {"version": 1, "row": 1}])
def test_state_that_is_none_is_an_error(state):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Replay.of(state)


def test_rows_of_version_1_are_right():
    with closing(sqlite3.connect(":memory:")) as books:
        books.executescript(VERSION_1.read_text("utf-8"))
        books.row_factory = sqlite3.Row
        replay = Replay()
        for row in books.execute("SELECT * FROM rows ORDER BY id"):
            replay.apply(dict(row))
        numbers = "spent_nano, held_nano, spent_tokens, held_tokens, raised_nano, raised_tokens, 0"
        stored = {row[0]: tuple(row[1:]) for row in books.execute(f"SELECT id, {numbers} FROM accounts")}

    assert {name: account.numbers() for name, account in replay.accounts.items()} == stored
    assert list(replay.open) == ["call-8"]
    assert replay.tasks["fix-login"].terms == TaskTerms("day", 2 * USD, None, closed=True)


def test_nothing_stays_of_calls_that_are_resolved(scribe):
    sizes = []
    for n in range(2000):
        scribe.hold(f"c{n:05}", 1)
        scribe.charge(f"c{n:05}", 0, tokens=0, kind="void")
    replay = Replay()
    for row in scribe.rows:
        replay.apply(row)
        if replay.row in (100, 4000):
            sizes.append(len(encode(replay.state())))

    assert sizes[1] - sizes[0] < 20  # numbers with more digits


def test_week_in_rows_is_the_week_of_the_zone():
    berlin = Window("week", "Europe/Berlin")
    start = NOON - timedelta(days=2, hours=14)  # Monday 2026-10-19 00:00 there; summer time ends on the 25th
    account = "weekly\x1fmachine\x1fm\x1f2026-10-18T22:00:00Z/2026-10-25T23:00:00Z"
    scribe = Scribe(machine("1", name="weekly", window=berlin))
    scribe.at = micros(start) + 7 * 24 * HOUR + HOUR - 1
    scribe.hold("a", 1, TASK, account)

    assert spent_and_held(scribe.replayed(), account)[1] == 1

    scribe.at += 1
    scribe.hold("b", 1, TASK, account)
    assert "it is outside the window" in wrong(scribe)
