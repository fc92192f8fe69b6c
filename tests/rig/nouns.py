"""Small whole nouns for unit tests: a call, its quote, a budget and how it stands; a test changes what it is about."""

from dataclasses import replace

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Call, Ceiling, Payers, Quote, Terms
from lockpin_core.money import Money
from lockpin_core.usage import Unit
from lockpin_core.windows import LIFETIME, Window

PAYERS = Payers("fix-login-bug", "box")


def quote(usd: str = "0.0214", *, prompt: int = 1000, output: int = 500) -> Quote:
    ceiling = Ceiling(prompt, output, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    return Quote(Money.parse(usd), prompt + output, ceiling)


def call(**change: object) -> Call:
    made = Call(
        id="c1", payers=PAYERS, provider="anthropic", host="api.anthropic.com", wire="anthropic_messages",
        model="m", asked_model="m", client="test/1", streamed=True, quote=quote("0.5"), terms=Terms(),
        output_limit=500, limit_set=False, billing="metered", price_date="2026-11-29", rates={},
    )  # fmt: skip
    return replace(made, **change)


def budget(name: str = "daily", scope: str = "machine", window: str = "day", **change: object) -> Budget:
    return replace(Budget(name, scope, Window(window), enforce=True), **change)


TASK = budget("task", "task", "lifetime", own=True)


def standing(
    rule: Budget, *, limit: str | None = None, spent: str = "0", held: str = "0", subject: str = "", span=LIFETIME,
    limit_tokens: int | None = None, spent_tokens: int = 0, held_tokens: int = 0,
) -> Standing:  # fmt: skip
    return Standing(
        "a", rule, subject or next(iter(rule.subjects(PAYERS)), ""), span, Money.parse(spent), Money.parse(held),
        spent_tokens, held_tokens, None if limit is None else Money.parse(limit), limit_tokens,
    )  # fmt: skip
