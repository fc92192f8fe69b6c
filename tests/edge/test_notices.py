"""What replies say of budgets: one line for each that is past an alert step, or that only warns and is used up."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import unquote

import nouns
import pytest
from lockpin_addons.callers import Caller
from lockpin_addons.notices import expiry_headers, settled_headers, warning_headers

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Charge, Share
from lockpin_core.ledger.protocol import Held, Resolved
from lockpin_core.money import Money
from lockpin_core.windows import LIFETIME, Window, WindowSpan

NOW = datetime(2026, 10, 21, 13, 30, tzinfo=UTC)
DAY = WindowSpan(datetime(2026, 10, 21, tzinfo=UTC), datetime(2026, 10, 22, tzinfo=UTC))
DEV = Budget("dev-daily", "machine", Window("day"), limit=Money.parse("25"), enforce=True, alert_at=("0.5", "0.8"))


def standing(budget: Budget, spent: str = "0", held: str = "0", tokens: int = 0, span: WindowSpan = DAY) -> Standing:
    amounts = (Money.parse(spent), Money.parse(held), tokens, 0)
    return Standing("a", budget, "box", span, *amounts, budget.limit, budget.limit_tokens)


def told(*standings: Standing) -> str | None:
    return warning_headers(standings).get("X-Lockpin-Budget")


@pytest.mark.parametrize(
    ("spent", "held", "line"),
    [
        ("12.4999", "12.5", None),  # held money is no spent money
        ("12.5", "0", "dev-daily; scope=machine; used=50%; state=alert; reset=2026-10-22T00:00:00Z"),
        ("20.9975", "0", "dev-daily; scope=machine; used=83%; state=alert; reset=2026-10-22T00:00:00Z"),
        ("24.9999", "0", "dev-daily; scope=machine; used=99%; state=alert; reset=2026-10-22T00:00:00Z"),
        ("25", "0", "dev-daily; scope=machine; used=100%; state=exceeded; reset=2026-10-22T00:00:00Z"),
        ("31", "0", "dev-daily; scope=machine; used=124%; state=exceeded; reset=2026-10-22T00:00:00Z"),
    ],
)
def test_a_budget_past_a_step_is_told_with_what_is_spent_alone(spent, held, line):
    assert told(standing(DEV, spent, held)) == line


def test_tokens_are_used_as_dollars_are():
    tokens = replace(DEV, limit=None, limit_tokens=1000)

    line = told(standing(tokens, tokens=834))

    assert line == "dev-daily; scope=machine; used=83%; state=alert; reset=2026-10-22T00:00:00Z"


def test_a_warning_budget_that_is_used_up_is_told_also_without_steps():
    silent = replace(DEV, enforce=False, alert_at=())

    assert told(standing(silent, "24.99")) is None
    assert told(standing(silent, "25")) == (
        "dev-daily; scope=machine; used=100%; state=exceeded; reset=2026-10-22T00:00:00Z"
    )
    assert told(standing(replace(silent, enforce=True), "25")) is None  # its next call is refused, and says so


def test_each_budget_has_its_line_and_one_that_nothing_resets_has_no_time():
    ever = replace(DEV, name="ever, and; a day", window=Window("lifetime"), limit=Money.parse("10"))

    line = told(standing(DEV, "13"), standing(ever, "9", span=LIFETIME), standing(replace(DEV, name="fresh")))

    assert line == (
        "dev-daily; scope=machine; used=52%; state=alert; reset=2026-10-22T00:00:00Z, "
        "ever%2C%20and%3B%20a%20day; scope=machine; used=90%; state=alert"
    )


def test_a_tasks_own_budget_has_a_header_of_its_own():
    own = replace(DEV, name="task", scope="task", own=True, alert_at=("0.75", "0.95"), limit=Money.parse("10"))

    assert warning_headers([standing(own, "9.6")]) == {"X-Lockpin-Task-Warning": "95"}


KEY = replace(DEV, name="ann's key", scope="key", limit=Money.parse("5"), alert_at=())


@pytest.mark.parametrize(
    ("spent", "held", "left"), [("1.25", "0", "3.75"), ("1.25", "0.5", "3.25"), ("5", "0", "0"), ("9", "0", "0")]
)
def test_what_a_key_has_left_under_its_own_limit_is_told(spent, held, left):
    assert warning_headers([standing(DEV), standing(KEY, spent, held)]) == {
        "X-Lockpin-Key-Remaining-Usd": left, "X-Lockpin-Key-Resets": "2026-10-22T00:00:00Z"
    }  # fmt: skip


def test_of_several_limits_of_a_key_the_tightest_is_told():
    ever = replace(KEY, name="ever", window=Window("lifetime"), limit=Money.parse("2"))

    assert warning_headers([standing(KEY), standing(ever, span=LIFETIME)]) == {"X-Lockpin-Key-Remaining-Usd": "2"}


def test_a_key_with_a_limit_in_tokens_has_those_left():
    both, tokens = replace(KEY, limit_tokens=1000), replace(KEY, name="ever", limit=None, limit_tokens=700)

    assert warning_headers([standing(DEV), standing(tokens, tokens=690, span=LIFETIME)]) == {
        "X-Lockpin-Key-Remaining-Tokens": "10"
    }
    assert warning_headers([standing(both, "1", tokens=600), standing(tokens, tokens=701, span=LIFETIME)]) == {
        "X-Lockpin-Key-Remaining-Usd": "4", "X-Lockpin-Key-Remaining-Tokens": "0",
        "X-Lockpin-Key-Resets": "2026-10-22T00:00:00Z",
    }  # fmt: skip


def test_a_budget_of_groups_says_of_which_group_its_line_is():
    squads = replace(DEV, name="squads", scope="group", groups=("search", "che;ck out"))

    line = told(*(standing(squads, "13")._replace(subject=group) for group in squads.groups))

    assert line == (
        "squads; scope=group; used=52%; state=alert; reset=2026-10-22T00:00:00Z; subject=search, "
        "squads; scope=group; used=52%; state=alert; reset=2026-10-22T00:00:00Z; subject=che%3Bck%20out"
    )


@pytest.mark.parametrize(
    ("name", "coded"),
    [
        ("日本", "%E6%97%A5%E6%9C%AC"), ("café", "caf%C3%A9"), ("100%", "100%25"), ('a "b"=c/d', 'a%20"b"=c/d'),
        ("a%2Cb", "a%252Cb"), ("k-7f3c9x2m1q", "k-7f3c9x2m1q"), ("\u00a0", "%C2%A0"),
    ],
)  # fmt: skip
def test_a_name_stands_there_so_that_decoding_percent_gives_it_back(name, coded):
    squads = replace(DEV, name=name, scope="group", groups=(name,))

    line = told(standing(squads, "13")._replace(subject=name))

    assert line is not None and unquote(coded) == name
    assert line.partition("; ")[0] == coded and line.endswith(f"; subject={coded}")


OWN = replace(DEV, name="task", scope="task", own=True, alert_at=())
SPENDS = ("X-Lockpin-Spent-Usd", "X-Lockpin-Remaining-Usd", "X-Lockpin-Remaining-Tokens", "X-Lockpin-Calls-Left")


def settled(payers, *standings):
    """Settle a call whose task has spent $9 over all, $1 with each call, and give the headers that speak of sums."""
    held = Held(nouns.call(payers=payers), NOW, standings)
    cost = Money.parse("1")
    resolved = Resolved(
        "c1",
        True,
        Charge(cost, {}, 7, "m", None),
        False,
        cost,
        NOW,
        "ab",
        standings,
        Money.parse("9"),
        recent=(cost,) * 9,
    )
    found = settled_headers(held, resolved)
    return {name: found[name] for name in SPENDS if name in found}


def test_a_task_without_callers_names_tells_all_that_it_has_spent():
    tokens = replace(DEV, limit=None, limit_tokens=1000)

    assert settled(nouns.PAYERS, standing(OWN, "9"), standing(tokens, tokens=400)) == {
        "X-Lockpin-Spent-Usd": "9", "X-Lockpin-Remaining-Usd": "16", "X-Lockpin-Remaining-Tokens": "600",
        "X-Lockpin-Calls-Left": "16",
    }  # fmt: skip


@pytest.mark.parametrize("who", [{"key": "k-1", "user": "ann"}, {"user": "ann"}])
def test_who_is_named_is_told_of_no_call_of_somebody_else_on_the_same_task(who):
    payers = replace(nouns.PAYERS, **who)

    assert settled(payers, standing(DEV, "4")) == {"X-Lockpin-Remaining-Usd": "21"}
    assert settled(payers, standing(OWN, "3"), standing(DEV, "4")) == {
        "X-Lockpin-Spent-Usd": "3", "X-Lockpin-Remaining-Usd": "21"
    }  # fmt: skip


def test_until_when_a_key_is_good_is_told():
    ends = datetime(2026, 12, 24, 1, 2, 3, tzinfo=UTC)

    assert (expiry_headers(None), expiry_headers(Caller("ann", "k-1"))) == ({}, {})
    assert expiry_headers(Caller("ann", ends=ends)) == {"X-Lockpin-Key-Expires": "2026-12-24T01:02:03Z"}


def written(*standings, **changed):
    """Settle a call on these accounts; give its receipt as the reply has it, and how long that is."""
    charge = Charge(Money(1), {}, 7, "m", None, **changed)
    resolved = Resolved("c1", True, charge, False, Money(1), NOW, "ab", standings, Money(1))
    line = settled_headers(Held(nouns.call(), NOW, standings), resolved)["X-Lockpin-Receipt"]
    return json.loads(line), len(line)


def test_a_receipt_in_a_reply_is_no_longer_than_a_client_can_read_and_says_what_is_left_out():
    short, _ = written(standing(DEV))
    tags = [standing(replace(DEV, name="日" * 128))._replace(subject=f"{n}=" + "日" * 128) for n in range(16)]

    found, size = written(*tags)

    assert "left_out" not in short and len(short["budgets"]) == 1
    assert size <= 8192 and found == short | {"budgets": [], "left_out": ["budgets"]}


def test_so_is_one_of_very_many_parts():
    parts = tuple(Share(f"model-{n}", {}, Money(1)) for n in range(500))
    short, _ = written(standing(DEV))

    found, size = written(standing(DEV), shares=parts)
    long_names, long_size = written(*[standing(DEV)] * 99, shares=(Share("m" * 9000, {}, Money(1)),))
    model = Charge(Money(1), {}, 7, "日" * 9000, None)
    line = settled_headers(
        Held(nouns.call(), NOW, ()), Resolved("c1", True, model, False, Money(1), NOW, "ab", (), Money(1))
    )["X-Lockpin-Receipt"]

    assert size <= 8192 and found == short | {"budgets": [], "shares": [], "left_out": ["budgets", "shares"]}
    assert long_size <= 8192 and long_names == found
    assert json.loads(line) == {name: short[name] for name in ("v", "id", "at", "decision", "charged_usd", "hash")} | {
        "left_out": [name for name in short if name not in ("v", "id", "at", "decision", "charged_usd", "hash")]
    }


def test_the_line_of_budgets_past_a_step_ends_with_how_many_more_there_are():
    line = told(*(standing(replace(DEV, name="日" * 128), "13") for _ in range(16)))

    assert line is not None and len(line) < 8192 + 30
    # Each is 128 letters of nine signs and 66 more, and two between: six of 1218 + 2 are 7320, seven 8540.
    entries = line.split(", ")
    assert (len(entries), entries[-1]) == (7, "*; left-out=10")
    assert told(*(standing(DEV, "13") for _ in range(16))).count("scope=machine") == 16
