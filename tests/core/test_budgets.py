from dataclasses import replace
from datetime import UTC, datetime

import nouns
import pytest

from lockpin_core.budgets import account_id, violations
from lockpin_core.call import Payers
from lockpin_core.money import ZERO, Money
from lockpin_core.windows import LIFETIME, Window, WindowSpan

DAILY = nouns.budget()
SPAN = WindowSpan(datetime(2026, 10, 21, tzinfo=UTC), datetime(2026, 10, 22, tzinfo=UTC))


def usd(text: str) -> Money:
    return Money.parse(text)


def test_a_budget_applies_where_every_named_filter_has_a_match():
    rule = nouns.budget(models=("claude-opus-*", "gpt-6"), providers=("anthropic",))

    assert DAILY.applies(nouns.PAYERS, provider="any", model="")
    assert rule.applies(nouns.PAYERS, provider="anthropic", model="claude-opus-5-5")
    assert rule.applies(nouns.PAYERS, provider="anthropic", model="gpt-6")
    assert not rule.applies(nouns.PAYERS, provider="openai", model="gpt-6")
    assert not rule.applies(nouns.PAYERS, provider="anthropic", model="Claude-Opus-5-5")


ANN = Payers(
    "fix", "box", "k1", "ann", "core", ("ml", "ops"), "ring1", "site", (("env", "ci"), ("cost", "a=b")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "hers", "nobodys"),
    [
        ("task", ("fix",), ("fix",)),
        ("machine", ("box",), ("box",)),
        ("key", ("k1",), ()),
        ("user", ("ann",), ()),
        ("team", ("core",), ()),
        ("group", ("ml", "ops"), ()),
        ("ring", ("ring1",), ()),
        ("project", ("site",), ()),
        ("tag", ("cost=a=b", "env=ci"), ()),
        ("org", ("org",), ("org",)),
    ],
)
def test_a_scope_counts_for_whom_the_payers_have_of_it(scope, hers, nobodys):
    rule = nouns.budget(scope=scope, groups=("ops", "web", "ml") if scope == "group" else ())

    assert rule.subjects(ANN) == hers
    assert rule.applies(ANN, provider="any", model="any")
    assert rule.subjects(Payers("fix", "box")) == nobodys
    assert rule.applies(Payers("fix", "box"), provider="any", model="any") is bool(nobodys)


@pytest.mark.parametrize(
    ("filters", "is_hers"),
    [
        ({"users": ("bob", "ann")}, True),
        ({"users": ("bob",)}, False),
        ({"groups": ("web", "ml")}, True),
        ({"groups": ("web",)}, False),
        ({"rings": ("ring1",)}, True),
        ({"rings": ("ring10", "ring")}, False),
        ({"projects": ("site",)}, True),
        ({"projects": ("Site",)}, False),
        ({"tags": ("env=ci", "env=prod")}, True),
        ({"tags": ("env=prod",)}, False),
        ({"keys": ("k1",)}, True),
        ({"keys": ("k2",)}, False),
        ({"users": ("ann",), "rings": ("ring1",), "models": ("gpt-*",)}, True),
        ({"users": ("ann",), "rings": ("ring2",)}, False),
        ({"users": ("ann",), "models": ("claude-*",)}, False),
        ({"users": ("a*",)}, False),
    ],
)
def test_every_named_filter_must_match_and_inside_a_list_one_is_enough(filters, is_hers):
    rule = nouns.budget(scope="org", **filters)

    assert rule.applies(ANN, provider="openai", model="gpt-6") is is_hers
    if not {"models"} & filters.keys():
        assert not rule.applies(Payers("fix", "box"), provider="openai", model="gpt-6")


def test_a_budget_of_tags_may_name_the_tags_that_have_an_account():
    rule = nouns.budget(scope="tag", tags=("env=ci", "env=prod"))

    assert rule.subjects(ANN) == ("env=ci",)
    assert not rule.applies(replace(ANN, tags=(("cost", "a=b"),)), provider="openai", model="gpt-6")


def test_a_group_that_is_named_twice_has_one_account():
    assert nouns.budget(scope="group", groups=("ml",)).subjects(replace(ANN, groups=("ml", "ml"))) == ("ml",)


def test_a_tasks_own_budget_is_for_its_user_alone():
    of_nobody, of_ann = nouns.TASK, replace(nouns.TASK, users=("ann",))

    assert of_nobody.applies(Payers("fix", "box"), provider="openai", model=None)
    assert not of_nobody.applies(ANN, provider="openai", model=None)
    assert of_ann.applies(ANN, provider="openai", model=None)
    assert not of_ann.applies(replace(ANN, user="bob"), provider="openai", model=None)
    assert not of_ann.applies(Payers("fix", "box"), provider="openai", model=None)


@pytest.mark.parametrize(
    ("most", "fits", "transient"),
    [("0.6", True, True), ("0.600000001", False, True), ("0.8", False, True), ("0.800000001", False, False)],
)
def test_a_call_fits_when_spent_held_and_quote_are_within_the_limit(most, fits, transient):
    standing = nouns.standing(DAILY, limit="1", spent="0.2", held="0.2")

    assert standing.fits(usd(most), 0) is fits
    assert standing.is_transient(usd(most), 0) is transient


@pytest.mark.parametrize(("tokens", "fits", "transient"), [(60, True, True), (61, False, True), (81, False, False)])
def test_tokens_are_judged_like_dollars(tokens, fits, transient):
    standing = nouns.standing(DAILY, limit_tokens=100, spent_tokens=20, held_tokens=20)

    assert standing.fits(usd("99"), tokens) is fits
    assert standing.is_transient(usd("99"), tokens) is transient


def test_a_call_that_costs_nothing_fits_a_budget_that_is_used_up():
    standing = nouns.standing(DAILY, limit="1", spent="3", limit_tokens=1, spent_tokens=5)

    assert standing.fits(ZERO, 0)
    assert not standing.fits(Money(1), 0)
    assert not standing.fits(ZERO, 1)


def test_what_remains_may_be_negative_or_unlimited():
    assert nouns.standing(DAILY, limit="1", spent="2", held="1").remaining() == usd("-2")
    assert nouns.standing(DAILY).remaining() is None
    assert nouns.standing(DAILY).remaining_tokens() is None
    assert nouns.standing(DAILY, limit_tokens=9, spent_tokens=10, held_tokens=1).remaining_tokens() == -2


def test_violations_are_final_before_transient_then_by_what_is_left():
    quote = nouns.quote("0.5")
    transient = nouns.standing(nouns.budget("a"), limit="1", held="0.9")
    final, tighter = (
        nouns.standing(nouns.budget(name), limit="1", spent=spent) for name, spent in (("b", "0.8"), ("c", "1"))
    )
    tokens = nouns.standing(nouns.budget("d"), limit_tokens=100)
    fitting = nouns.standing(nouns.budget("e"), limit="1")
    warns = tighter._replace(budget=nouns.budget("f", enforce=False))

    assert violations([transient, fitting, tokens, warns, final, tighter], quote) == [tighter, final, tokens, transient]


def test_what_is_left_is_that_of_the_limit_which_a_call_does_not_fit():
    quote = nouns.quote("0.5", prompt=90, output=10)
    roomy = nouns.standing(nouns.budget("a"), limit="1", spent="0.6")
    few, fewer = (
        nouns.standing(nouns.budget(name), limit="9", spent=spent, limit_tokens=100, spent_tokens=tokens)
        for name, spent, tokens in (("b", "8.4", 10), ("c", "1", 20))
    )
    overrun = nouns.standing(nouns.budget("d"), limit="1", spent="2", limit_tokens=100, spent_tokens=30)

    assert violations([few, fewer, roomy], quote) == [roomy, fewer, few]
    assert violations([few, fewer, overrun], replace(quote, most=ZERO)) == [overrun, fewer, few]


def test_an_account_is_named_by_budget_scope_subject_and_window():
    ids = {
        account_id(rule, subject, span)
        for rule in (DAILY, nouns.budget("other"), nouns.budget(scope="task"))
        for subject in ("x", "y")
        for span in (LIFETIME, SPAN)
    }

    assert len(ids) == 12
    assert account_id(DAILY, "x", SPAN) == "daily\x1fmachine\x1fx\x1f2026-10-21T00:00:00Z"
    assert account_id(DAILY, "x", LIFETIME).endswith("\x1f")


def test_windows_of_one_budget_that_start_together_are_accounts_of_their_own():
    """1 February 2027 is a Monday: a day, a week and a month start with it."""
    start = datetime(2027, 2, 1, tzinfo=UTC)
    spans = [WindowSpan(start, datetime(2027, 2, day, tzinfo=UTC)) for day in (2, 8)]
    spans.append(WindowSpan(start, datetime(2027, 3, 1, tzinfo=UTC)))
    rules = [replace(DAILY, window=Window(kind)) for kind in ("day", "week", "month")]

    ids = [account_id(rule, "x", span) for rule, span in zip(rules, spans, strict=True)]

    assert [one.removeprefix("daily\x1fmachine\x1fx\x1f") for one in ids] == [
        "2027-02-01T00:00:00Z",
        "2027-02-01T00:00:00Z/2027-02-08T00:00:00Z",
        "2027-02-01T00:00:00Z/2027-03-01T00:00:00Z",
    ]


def test_a_rolling_budget_has_one_account_for_each_period():
    hours = [replace(DAILY, window=Window("rolling", period_ms=ms)) for ms in (3_600_000, 86_400_000)]

    assert [account_id(rule, "x", LIFETIME).rpartition("\x1f")[2] for rule in hours] == ["~3600000", "~86400000"]


def test_an_amount_of_zero_waits_for_nobody_and_is_never_in_the_way_for_good():
    over = nouns.standing(nouns.budget(), limit="1", spent="2", limit_tokens=10, spent_tokens=5, held_tokens=5)

    assert over.is_transient(Money(0), 5)
    assert not over.is_transient(Money(1), 5)
    assert not over.is_transient(Money(0), 6)
