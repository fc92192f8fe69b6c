"""The receipt: one JSON object for a call, the same in the reply's header as from the ledger. A view, no record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lockpin_core.budgets import Standing
from lockpin_core.call import FIRST_ATTEMPT, Attempt, Call, Share
from lockpin_core.money import Money
from lockpin_core.usage import Usage

VERSION = 1


@dataclass(frozen=True, slots=True)
class ReceiptFacts:
    """What a receipt shows; None: not known or not yet."""

    id: str
    at: datetime
    decision: str  # "allowed" | "refused" | "uncapped"
    task: str
    provider: str
    model: str
    code: str | None = None
    key: str | None = None
    user: str | None = None
    model_served: str | None = None
    held: Money | None = None
    charged: Money | None = None
    estimated: bool = False
    estimate_reason: str | None = None
    failed: bool = False
    usage: Usage | None = None
    rates: Mapping[str, str] | None = None
    price_date: str | None = None
    tier: str | None = None
    billing: str | None = None
    output_limit: int | None = None
    degrade: Sequence[str] = ()
    waited_ms: int = 0
    budgets: Sequence[Standing] = ()
    hash: str | None = None
    over_hold: bool = False  # it cost more than was held for it
    attempt: Attempt = FIRST_ATTEMPT
    instead_of: str | None = None  # provider/model that was asked for, where another one served
    shares: Sequence[Share] = ()  # what `charged` is made of, where several prompts or models are in it


def receipt(facts: ReceiptFacts) -> dict[str, object]:
    """Build SPEC §13's object; amounts are exact decimal text. `shares` is there only where there are some, and so is
    which attempt it was, and in place of which model: of a call that was sent once as it came nothing is said.
    """
    tried = {} if facts.attempt == FIRST_ATTEMPT else _attempt(facts.attempt)
    if facts.instead_of is not None:
        tried["instead_of"] = facts.instead_of
    shares = {"shares": list(map(_share, facts.shares))} if facts.shares else {}
    return {
        "v": VERSION,
        "id": facts.id,
        "at": facts.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "decision": facts.decision,
        "code": facts.code,
        "task": facts.task,
        "key": facts.key,
        "user": facts.user,
        "provider": facts.provider,
        "model": facts.model,
        "model_served": facts.model_served,
        "held_usd": _usd(facts.held),
        "charged_usd": _usd(facts.charged),
        "estimated": facts.estimated,
        "estimate_reason": facts.estimate_reason,
        "failed": facts.failed,
        "over_hold": facts.over_hold,
        "usage": {str(unit): count for unit, count in (facts.usage or {}).items()},
        **shares,
        "rates": dict(facts.rates or {}),
        "price_date": facts.price_date,
        "tier": facts.tier,
        "billing": facts.billing,
        "output_limit": facts.output_limit,
        "degrade": list(facts.degrade),
        "waited_ms": facts.waited_ms,
        **tried,
        "budgets": [_budget(standing) for standing in facts.budgets],
        "hash": facts.hash,
    }


def refused_detail(told: Mapping[str, object], call: Call | None) -> dict[str, object]:
    """Give what the row of a refusal keeps of its receipt, so that both say the same, and of what the call asked for.

    `call`: as it was last tried; None: it was refused before it was priced.
    """
    detail = {"at": told["at"]} | ({"budgets": told["budgets"]} if told["budgets"] else {})
    if call is None:
        return detail
    most, terms = call.quote.ceiling, call.terms
    fees = {str(unit): count for unit, count in most.fees.items()}
    asked = {
        "usd": call.quote.most.exact(), "tokens": call.quote.tokens, "prompt": most.prompt,
        "requests": most.requests if most.requests > 1 else None, "others": call.quote.others() or None,
        "refills": most.refills or None, "window": most.window or None, "fees": fees,
        "tier": terms.tier, "speed": terms.speed, "geo": terms.geo, "output_limit": call.output_limit,
        "price_date": call.price_date,
    }  # fmt: skip
    return {**detail, "asked": {name: value for name, value in asked.items() if value not in (None, {})}}


def _usd(amount: Money | None) -> str | None:
    return None if amount is None else amount.exact()


def _attempt(attempt: Attempt) -> dict[str, object]:
    return {"attempt": attempt.number, "of": attempt.of, "first_call": attempt.first}


def _share(share: Share) -> dict[str, object]:
    usage = {str(unit): count for unit, count in share.usage.items()}
    return {"model": share.model, "prompts": share.prompts, "charged_usd": share.amount.exact(), "usage": usage}


def _budget(standing: Standing) -> dict[str, object]:
    """Tell how an account stands; tokens only where they are limited."""
    dollars: dict[str, object] = {
        "name": standing.budget.name,
        "subject": standing.subject,
        "spent_usd": standing.spent.exact(),
        "held_usd": standing.held.exact(),
        "limit_usd": _usd(standing.limit),
    }
    if standing.limit_tokens is None:
        return dollars
    tokens = {"spent_tokens": standing.spent_tokens, "held_tokens": standing.held_tokens}
    return {**dollars, **tokens, "limit_tokens": standing.limit_tokens}
