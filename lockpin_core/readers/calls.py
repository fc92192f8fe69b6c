"""Receipts of calls that the ledger holds: the same object as in the reply's header. Pure over the reader's rows."""

from __future__ import annotations

from lockpin_core.budgets import Budget, Standing
from lockpin_core.clock import stamp
from lockpin_core.ledger.listing import DEFERRED, Balanced, CallRow, Correction
from lockpin_core.money import ZERO, Money
from lockpin_core.readers.figures import said
from lockpin_core.receipt import ReceiptFacts, receipt
from lockpin_core.windows import LIFETIME, Window

FIELDS = (
    *("v", "id", "at", "decision", "code", "task", "key", "user", "provider", "model", "model_served"),
    *("held_usd", "charged_usd", "estimated", "estimate_reason", "failed", "over_hold", "usage", "rates"),
    *("price_date", "tier", "billing", "output_limit", "degrade", "waited_ms", "budgets", "hash"),
)


def receipt_of(call: CallRow) -> dict[str, object]:
    """Build a call's receipt; that of a call in flight has no charge yet. `at` is the instant of the decision.

    One whose cost was corrected has `corrections` too, oldest first.
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
        )
    )  # fmt: skip
    return built | {"corrections": [_correction(each) for each in call.corrections]} if call.corrections else built


def charged(call: CallRow) -> Money | None:
    """Say what a call costs by now; None: in flight, or never held. A void is a zero."""
    return ZERO if call.state == "void" else call.charged


def summary(call: CallRow) -> str:
    """Say in one line what became of a call; "(est.)" marks an estimate."""
    what = f"{call.id} {stamp(call.at)} {call.provider}/{call.model} task {call.payers.task}"
    return f"{what}: {_ending(call)}"


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
            return f"{charge}, {'over what was ' if call.over_hold else ''}{held}"
    times = f" {call.count} times" if call.count > 1 else ""
    return f"{call.decision}{times} ({call.code})"


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
