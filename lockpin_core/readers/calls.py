"""Receipts of calls that the ledger holds: the same object as in the reply's header. Pure over the reader's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Share
from lockpin_core.clock import stamp
from lockpin_core.ledger.listing import DEFERRED, Balanced, CallRow, Correction
from lockpin_core.ledger.shares import amounts_of
from lockpin_core.money import ZERO, Money
from lockpin_core.readers.figures import said
from lockpin_core.receipt import ReceiptFacts, receipt
from lockpin_core.windows import LIFETIME, Window

_OWN = "task"  # a task's own budget, which a refusal by it does not name
_AMOUNTS = ("budget", "spent", "in_flight", "needed", "remaining")
_IN_THE_WAY = ("limit", "scope", "subject", "period", "resets_at", *(f"{a}_usd" for a in _AMOUNTS))
_IN_THE_WAY += tuple(f"{a}_tokens" for a in _AMOUNTS)

_MORE_TOKENS = "more tokens than held"

FIELDS = (
    *("v", "id", "at", "decision", "code", "task", "key", "user", "provider", "model", "model_served"),
    *("held_usd", "charged_usd", "estimated", "estimate_reason", "failed", "over_hold", "usage", "rates"),
    *("price_date", "tier", "billing", "output_limit", "degrade", "waited_ms", "budgets", "hash"),
)
# What a receipt has only where there is something to say; in a table of cells each has its column all the same.
SOMETIMES = ("attempt", "of", "first_call", "instead_of", "shares", "corrections", "drift", "refusal")


def receipt_of(call: CallRow) -> dict[str, object]:
    """Build a call's receipt; that of a call in flight has no charge yet. `at` is the instant of the decision.

    One whose cost was corrected has `corrections` too, oldest first; one that departs from its task's first calls has
    `drift`, in what; one that did not fit, what it needed and what was
    in its way, as `refusal`.
    """
    built = receipt(
        ReceiptFacts(
            call.id, call.at, call.decision, call.payers.task, call.provider, call.model,
            code=call.code, key=call.payers.key, user=call.payers.user, model_served=call.model_served,
            held=call.held, charged=charged(call), estimated=call.estimated,
            estimate_reason=call.reason if call.state == "charged" else None, failed=call.failed, usage=call.usage,
            rates=call.rates, price_date=call.price_date, tier=call.tier, billing=call.billing,
            output_limit=call.output_limit, degrade=call.degrade, waited_ms=call.waited_ms,
            budgets=[_standing(balance) for balance in call.balances], hash=call.hash, over_hold=call.over_hold,
            shares=shares_now(call), attempt=call.attempt, instead_of=call.instead_of,
        )
    )  # fmt: skip
    if call.corrections:
        built["corrections"] = [_correction(each) for each in call.corrections]
    if call.drift:
        built["drift"] = list(call.drift)
    if limits := in_the_way(call):
        built["refusal"] = {"transient": call.detail.get("transient"), "limits": limits}
    return built


def in_the_way(call: CallRow) -> list[dict[str, object]]:
    """Give the limits that a refused call did not fit, the first that was named first, with what it needed.

    Rows of an earlier version, and of calls that were refused for something else, have none.
    """
    if call.code != "budget_exceeded" or not call.detail.keys() & {"needed_usd", "needed_tokens"}:
        return []
    return [
        {"limit": _OWN, **{key: _exact(key, value) for key, value in figures.items() if key in _IN_THE_WAY}}
        for figures in call.detail.get("violations") or [call.detail]
    ]


def _exact(key: str, value: object) -> object:
    return Money.parse(str(value)).exact() if key.endswith("_usd") else value


def needed(call: CallRow) -> str:
    """Say what a refused call needed and what each limit in its way had left; "": it was refused for something else."""
    limits = in_the_way(call)
    words: list[str] = []
    for unit, what in (("usd", _usd), ("tokens", _tokens)):
        short = [figures for figures in limits if _is_short(figures, unit)]
        if short:
            left = ", ".join(f"{figures['limit']} has {what(figures, 'remaining')} left" for figures in short)
            words.append(f"needed {what(short[0], 'needed')}, {left}")
    return "; ".join(words)


def _is_short(figures: Mapping[str, Any], unit: str) -> bool:
    keys = (f"needed_{unit}", f"remaining_{unit}")
    return all(key in figures for key in keys) and Decimal(figures[keys[0]]) > Decimal(figures[keys[1]])


def _usd(figures: Mapping[str, Any], what: str) -> str:
    return said(Money.parse(figures[f"{what}_usd"]))


def _tokens(figures: Mapping[str, Any], what: str) -> str:
    return f"{figures[f'{what}_tokens']:,} tokens"


def charged(call: CallRow) -> Money | None:
    """Say what a call costs by now; None: in flight, or never held. A void is a zero."""
    return ZERO if call.state == "void" else call.charged


def shares_now(call: CallRow) -> Sequence[Share]:
    """Give what the models of a call come to by now: what a person has corrected is shared out as the charge was."""
    cost = charged(call)
    if cost is None:
        return ()
    amounts = amounts_of(call.shares, cost.nano)
    return [share._replace(amount=Money(nano)) for share, nano in zip(call.shares, amounts, strict=True)]


def summary(call: CallRow) -> str:
    """Say in one line what became of a call; "(est.)" marks an estimate."""
    what = f"{call.id} {stamp(call.at)} {call.provider}/{call.model} task {call.payers.task}"
    tried = f", attempt {call.attempt.number} of {call.attempt.of}" if call.attempt.number > 1 else ""
    tried += f", in place of {call.instead_of}" if call.instead_of else ""
    changed = f", drift: {', '.join(call.drift)}" if call.drift else ""
    return f"{what}: {_ending(call)}{tried}{changed}"


def _ending(call: CallRow) -> str:
    held = f"held {said(call.held)}" if call.held is not None else ""
    match call.state:
        case "open":
            return f"{'cost comes later' if call.reason == DEFERRED else 'in flight'}, {held}"
        case "void":
            return f"cost nothing ({call.reason}), {held}"
        case "charged" if call.charged is not None:
            notes = [f"(est.) {call.reason}"] if call.estimated else []
            notes += [f"({code})" for code in dict.fromkeys(each.code for each in call.corrections)]
            charge = " ".join([f"charged {said(call.charged)}", *notes])
            if over_words(call) == _MORE_TOKENS:
                return f"{charge}, {held}, {_MORE_TOKENS}"
            return f"{charge}, {'over what was ' if call.over_hold else ''}{held}"
    times = f" {call.count:,} times" if call.count > 1 else ""
    why = needed(call)
    return f"{call.decision}{times} ({call.code}){f': {why}' if why else ''}"


def over_words(call: CallRow) -> str:
    """Say of what a call came to more than was held for it; "": of nothing."""
    if not call.over_hold:
        return ""
    is_within_usd = call.charged is not None and call.held is not None and call.charged <= call.held
    return _MORE_TOKENS if is_within_usd else "over hold"


def _correction(made: Correction) -> dict[str, object]:
    told = {"code": made.code, "reason": made.reason, "who": made.who}
    return {"at": stamp(made.at), "usd": made.amount.exact(), **told}


def _standing(balance: Balanced) -> Standing:
    """Give an account as it stood then; its window is no part of a receipt."""
    return Standing(
        account="", budget=Budget(balance.budget, balance.scope, Window("lifetime")), subject=balance.subject,
        span=LIFETIME, spent=balance.spent, held=balance.held, spent_tokens=balance.spent_tokens,
        held_tokens=balance.held_tokens, limit=balance.limit, limit_tokens=balance.limit_tokens,
    )  # fmt: skip
