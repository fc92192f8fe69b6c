"""What a refusal says, under every mix of limits: a slow judge that knows the contract's words and no code of ours.

Amounts are few and small, so that many of them meet: what is spent and held and needed is just what a limit leaves.
"""

import itertools
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import nouns
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.budgets import Budget, Standing, violations
from lockpin_core.money import Money
from lockpin_core.refusals import budget_exceeded
from lockpin_core.windows import LIFETIME, Window, WindowSpan

NOW = datetime(2026, 11, 29, 12, 0, 0, 250_000, tzinfo=UTC)
STEP = 5 * 10**7  # nanodollars: all amounts are some of it
ENDS_S = (1, 60, 43_200)  # of windows, seconds from now


@dataclass(frozen=True)
class Limit:
    """One account of one budget, as integers; None: no such limit. A raise holds for the current window.

    What is reserved must stay free for others: to this call it is held, and will not come free.
    """

    name: str
    is_enforced: bool
    window: str  # "lifetime" | "day" | "rolling"
    ends_s: int | None
    usd: int | None
    usd_raise: int
    usd_spent: int
    usd_held: int
    tokens: int | None
    tokens_spent: int
    tokens_held: int
    usd_reserved: int
    tokens_reserved: int
    leaving: tuple = ()  # of a rolling one: (seconds from now, usd, tokens) of all that is spent

    def standing(self):
        end = None if self.ends_s is None else NOW + timedelta(seconds=self.ends_s)
        start = NOW - timedelta(hours=1) if self.window == "day" else None
        budget = Budget(
            self.name, "machine", Window(self.window, period_ms=3_600_000 if self.window == "rolling" else 0),
            None if self.usd is None else Money(self.usd), self.tokens, enforce=self.is_enforced,
        )  # fmt: skip
        limit = None if self.usd is None else Money(self.usd + self.usd_raise)
        span = LIFETIME if end is None else WindowSpan(start, end)
        return Standing(
            self.name, budget, "box", span, Money(self.usd_spent), Money(self.usd_held), self.tokens_spent,
            self.tokens_held, limit, self.tokens, Money(self.usd_reserved), self.tokens_reserved,
            tuple((NOW + timedelta(seconds=at), Money(usd), tokens) for at, usd, tokens in self.leaving),
        )  # fmt: skip


@st.composite
def limits(draw, name):
    few, kind = st.integers(0, 6), draw(st.sampled_from(("usd", "tokens", "both")))
    window = draw(st.sampled_from(("lifetime", "day", "rolling")))
    ends_s = None if window == "lifetime" else draw(st.sampled_from(ENDS_S))
    spent, leaving = (draw(few), draw(few)), ()
    if window == "rolling":
        leaving = tuple(draw(parts_of(*spent)))
        ends_s = leaving[0][0] if leaving else None
    return Limit(
        name, draw(st.sampled_from((True, True, False))), window, ends_s,
        None if kind == "tokens" else draw(st.integers(1, 8)) * STEP, draw(st.sampled_from((0, 0, 2))) * STEP,
        spent[0] * STEP, draw(few) * STEP,
        None if kind == "usd" else draw(st.integers(1, 8)) * 100, spent[1] * 100, draw(few) * 100,
        draw(st.sampled_from((0, 0, 1))) * STEP, draw(st.sampled_from((0, 0, 1))) * 100, leaving,
    )  # fmt: skip


@st.composite
def parts_of(draw, usd, tokens):
    """Let what was spent leave in parts, one after the other."""
    left, at, parts = [usd, tokens], 0, []
    while any(left):
        at += draw(st.integers(1, 100))
        part = [draw(st.integers(0, most)) for most in left]
        if any(part):
            parts.append((at, part[0] * STEP, part[1] * 100))
            left = [most - gone for most, gone in zip(left, part, strict=True)]
    return parts


@st.composite
def mixes(draw):
    return [draw(limits(f"b{number}")) for number in range(draw(st.integers(1, 4)))]


class Judge:
    """Reads the contract: "for every enforced limit spent + held + quote ≤ limit, in dollars and in tokens"."""

    def __init__(self, mix, usd, tokens):
        self.mix, self.usd, self.tokens = mix, usd, tokens

    def units(self, limit):
        """List (limit, of that a raise, spent, reserved, held, needed) of dollars and of tokens, where set."""
        found = {}
        if limit.usd is not None:
            most = limit.usd + limit.usd_raise
            found["usd"] = most, limit.usd_raise, limit.usd_spent, limit.usd_reserved, limit.usd_held, self.usd
        if limit.tokens is not None:
            found["tokens"] = (
                limit.tokens, 0, limit.tokens_spent, limit.tokens_reserved, limit.tokens_held, self.tokens,
            )  # fmt: skip
        return found

    def violated(self, limit):
        """Name the units in which the call does not fit; an amount of zero fits always."""
        if not limit.is_enforced:
            return []
        return [
            unit
            for unit, (most, _, spent, reserved, held, needed) in self.units(limit).items()
            if needed and spent + reserved + held + needed > most
        ]

    def is_transient(self, limit):
        """ "for every violated limit spent + needed ≤ limit" """
        found = [self.units(limit)[unit] for unit in self.violated(limit)]
        return all(spent + reserved + needed <= most for most, _, spent, reserved, _, needed in found)

    def short(self):
        return [limit for limit in self.mix if self.violated(limit)]

    def comes_before(self, one, other):
        """ "first: final before transient, then smallest remaining": in dollars, and where none is short of it in tokens."""
        if self.is_transient(one) != self.is_transient(other):
            return not self.is_transient(one)
        for unit in ("usd", "tokens"):
            short = [unit in self.violated(limit) for limit in (one, other)]
            if short[0] != short[1]:
                return short[0]
            left = [most - sum(gone) for most, _, *gone, _ in (self.units(x).get(unit, (0,) * 6) for x in (one, other))]
            if all(short) and left[0] != left[1]:
                return left[0] < left[1]
        return True

    def retry_after_s(self):
        """Give the seconds until the last of the final limits starts anew; 5 where none is final; None: never."""
        final = [limit for limit in self.short() if not self.is_transient(limit)]
        if not final:
            return 5
        if any(limit.ends_s is None for limit in final):
            return None
        for limit in final:
            whole = [
                (most - raised, reserved, needed) for most, raised, _, reserved, _, needed in self.units(limit).values()
            ]
            if any(needed and reserved + needed > most for most, reserved, needed in whole):
                return None  # larger than the whole limit
        return max(map(self.has_room_s, final))

    def has_room_s(self, limit):
        """Give the seconds until a window is over, or so much has left a rolling one that the call fits."""
        if limit.window != "rolling":
            return limit.ends_s
        for at, _, _ in limit.leaving:
            usd = limit.usd_spent - sum(part[1] for part in limit.leaving if part[0] <= at) + limit.usd_reserved
            tokens = limit.tokens_spent - sum(part[2] for part in limit.leaving if part[0] <= at)
            tokens += limit.tokens_reserved
            if (limit.usd is None or not self.usd or usd + self.usd <= limit.usd) and (
                limit.tokens is None or not self.tokens or tokens + self.tokens <= limit.tokens
            ):
                return at
        raise AssertionError("all of it leaves, and what is left fits the whole limit")


def refused(mix, usd, tokens):
    """Refuse a call, or give None where it fits."""
    quote = replace(nouns.quote(), most=Money(usd), tokens=tokens)
    short = violations([limit.standing() for limit in mix], quote)
    return budget_exceeded("t", quote, short, NOW) if short else None


@settings(max_examples=600)
@given(mixes(), st.integers(0, 9).map(lambda n: n * STEP), st.integers(0, 9).map(lambda n: n * 100))
def test_a_refusal_says_what_the_contract_says_under_every_mix_of_limits(mix, usd, tokens):
    judge, found = Judge(mix, usd, tokens), refused(mix, usd, tokens)

    assert (found is None) == (not judge.short())
    if found is None:
        return
    told = found.detail
    by_name = {limit.name: limit for limit in mix}
    listed = [by_name[one["limit"]] for one in told.get("violations", [told])]
    assert {limit.name for limit in listed} == {limit.name for limit in judge.short()}
    assert len(listed) == len(judge.short())
    assert all(judge.comes_before(one, other) for one, other in itertools.pairwise(listed))
    assert told["limit"] == listed[0].name
    assert told["transient"] is all(map(judge.is_transient, judge.short()))
    assert told.get("retry_after_s") == judge.retry_after_s()
    for one, limit in zip(told.get("violations", [told]), listed, strict=True):
        assert_figures(one, judge, limit)
    assert_words(found.message, judge, listed[0])


def assert_figures(told, judge, limit):
    """The figures of a limit are exact, and those of a unit that it does not limit are left out."""
    for unit, scale in (("usd", 10**9), ("tokens", 1)):
        figures = {
            name: told.get(f"{name}_{unit}")
            for name in ("budget", "limit", "spent", "in_flight", "needed", "remaining")
        }
        if unit not in judge.units(limit):
            assert set(figures.values()) == {None}
            continue
        most, _, spent, reserved, held, needed = judge.units(limit)[unit]
        exact = {"budget": most, "limit": most, "spent": spent, "in_flight": held + reserved, "needed": needed}
        exact["remaining"] = max(0, most - spent - held - reserved)
        assert figures == {name: Decimal(amount) / scale for name, amount in exact.items()}


def assert_words(message, judge, limit):
    """The text names a unit in which the call does not fit: one that waiting does not help, where there is one."""
    units, violated = judge.units(limit), judge.violated(limit)
    final = [unit for unit in violated if sum((units[unit][2], units[unit][3], units[unit][5])) > units[unit][0]]
    named = "tokens" if " token limit: " in message else "usd"
    assert named in (final or violated)
