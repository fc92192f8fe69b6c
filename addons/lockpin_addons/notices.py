"""What Lockpin says in headers of a reply (SPEC §9). Values are ours alone: no client text goes into a header."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from urllib.parse import quote

from mitmproxy import http

from lockpin_addons.callers import Caller
from lockpin_core.budgets import Standing
from lockpin_core.ledger.accounts import passed_steps
from lockpin_core.ledger.protocol import Held, Resolved
from lockpin_core.money import ZERO, Money
from lockpin_core.receipt import ReceiptFacts, receipt
from lockpin_core.refusals import stamp

MIN_CALLS_FOR_FORECAST = 3
WAITED = "X-Lockpin-Waited-Ms"
SKIPPED = "X-Lockpin-Fallback-Skipped"  # on a reply once for each model
MAX_VALUE_BYTES = 8 * 1024  # of what grows with the number of accounts: common clients read no line of 64 KB
_AS_THEY_ARE = "".join(char for char in map(chr, range(0x21, 0x7F)) if char not in ";,%")
_encode = json.JSONEncoder(separators=(",", ":")).encode  # a receipt's amounts are text already


def held_headers(held: Held, loop: str | None = None) -> dict[str, str]:
    """Say what is known before the reply comes: for streams and for the rest. `loop`: of which the call is the next."""
    call = held.call
    headers = {"X-Lockpin-Call": call.id}
    if call.limit_set and call.output_limit is not None:
        headers["X-Lockpin-Output-Limit"] = str(call.output_limit)
    if call.degrade:
        headers["X-Lockpin-Degrade"] = ", ".join(call.degrade)
    if call.waited_ms:
        headers[WAITED] = str(call.waited_ms)
    if held.degraded:
        headers["X-Lockpin-Degraded"] = "ledger"
    if loop is not None:
        headers["X-Lockpin-Loop"] = loop
    return headers | warning_headers(held.standings)


def settled_headers(held: Held, resolved: Resolved) -> dict[str, str]:
    """Say what a non-streaming call cost and what is left."""
    cost = resolved.charge.amount if resolved.charge is not None else ZERO
    headers = {
        "X-Lockpin-Cost-Usd": cost.exact(),
        "X-Lockpin-Receipt": _line(receipt(_facts(held, resolved))),
        **_task_spent(held, resolved),
    }
    left = _smallest_left(resolved.standings)
    if left is not None:
        headers["X-Lockpin-Remaining-Usd"] = left.exact()
        if not _is_of_somebody(held) and len(resolved.recent) >= MIN_CALLS_FOR_FORECAST:
            typical = int(statistics.median_high(amount.nano for amount in resolved.recent))
            if typical:
                headers["X-Lockpin-Calls-Left"] = str(left.nano // typical)
    tokens = [
        count for one in resolved.standings if one.budget.enforce and (count := one.remaining_tokens()) is not None
    ]
    if tokens:
        headers["X-Lockpin-Remaining-Tokens"] = str(max(min(tokens), 0))
    return headers | warning_headers(resolved.standings)


def _line(told: Mapping[str, object]) -> str:
    """Write a receipt so that every client can read it: of a long one `left_out` says what the ledger's has besides."""
    line, left_out = _encode(told), []
    for name in ("budgets", "shares"):
        if len(line) > MAX_VALUE_BYTES and told.get(name):
            left_out.append(name)
            line = _encode({**told, **{name: [] for name in left_out}, "left_out": left_out})
    if len(line) > MAX_VALUE_BYTES:  # names of models as long as a request may have them
        kept = ("v", "id", "at", "decision", "charged_usd", "hash")
        line = _encode({**{name: told[name] for name in kept}, "left_out": [name for name in told if name not in kept]})
    return line


def _is_of_somebody(held: Held) -> bool:
    """Say whether a key or a token says who calls, as in team mode: then a task's calls may be those of several."""
    return bool(held.call.payers.key or held.call.payers.user)


def _task_spent(held: Held, resolved: Resolved) -> dict[str, str]:
    """Say what the task has spent: of somebody's, what is on its own account, which is its user's alone."""
    if not _is_of_somebody(held):
        return {"X-Lockpin-Spent-Usd": resolved.task_spent.exact()}
    own = next((one for one in resolved.standings if one.budget.own), None)
    return {} if own is None else {"X-Lockpin-Spent-Usd": own.spent.exact()}


def put(headers: http.Headers, values: Mapping[str, str]) -> None:
    """Set headers of ours, all in one go; ones of the same name, whoever set them, are replaced."""
    if not values:
        return
    added = {name.lower().encode(): (name.encode(), value.encode()) for name, value in values.items()}
    kept = (field for field in headers.fields if field[0].lower() not in added)
    headers.fields = (*kept, *added.values())


def _facts(held: Held, resolved: Resolved) -> ReceiptFacts:
    call, charge = held.call, resolved.charge
    return ReceiptFacts(
        call.id, held.at, "allowed", call.payers.task, call.provider, call.model,
        key=call.payers.key, user=call.payers.user,
        model_served=charge.model_served if charge else None,
        held=resolved.held,
        charged=charge.amount if charge else ZERO,
        estimated=charge.estimated if charge else False,
        estimate_reason=charge.reason if charge else None,
        failed=charge.failed if charge else False,
        over_hold=resolved.over_hold,
        usage=charge.usage if charge else None,
        rates=call.rates, price_date=call.price_date,
        tier=charge.tier if charge else call.terms.tier,
        billing=call.billing, output_limit=call.output_limit,
        degrade=call.degrade, waited_ms=call.waited_ms,
        budgets=resolved.standings, hash=resolved.row_hash, attempt=call.attempt, instead_of=call.instead_of,
        shares=charge.shares if charge else (),
    )  # fmt: skip


def _smallest_left(standings: Sequence[Standing]) -> Money | None:
    lefts = [s.remaining() for s in standings if s.budget.enforce]
    known = [left for left in lefts if left is not None]
    return max(min(known), ZERO) if known else None


def expiry_headers(caller: Caller | None) -> dict[str, str]:
    """Say until when the caller's key is good; nothing where that has no end, or nobody is asked for one."""
    return {} if caller is None or caller.ends is None else {"X-Lockpin-Key-Expires": stamp(caller.ends)}


def warning_headers(standings: Sequence[Standing]) -> dict[str, str]:
    """Say which alert steps the task and other budgets have passed, and how much the caller's key has left."""
    headers = _key_headers(standings)
    lines = [line for line in map(_budget_line, standings) if line]
    if lines:
        headers["X-Lockpin-Budget"] = _joined(lines)
    for standing in standings:
        if standing.budget.own and (step := _step_passed(standing)) is not None:
            headers["X-Lockpin-Task-Warning"] = step
    return headers


def _joined(lines: Sequence[str]) -> str:
    """Put lines into one value, as many as there is room for; the last says how many are left out."""
    ends = accumulate(len(line) + 2 for line in lines)
    shown = sum(end <= MAX_VALUE_BYTES for end in ends)
    more = [f"*; left-out={len(lines) - shown}"] if shown < len(lines) else []
    return ", ".join([*lines[:shown], *more])


def _key_headers(standings: Sequence[Standing]) -> dict[str, str]:
    """Say what is left under the key's own limit, the tightest where it has several, and when that starts anew: that
    of the dollars, where both are limited.
    """
    own = [one for one in standings if one.budget.scope == "key"]
    usd = [(left, one.span.end) for one in own if (left := one.remaining()) is not None]
    tokens = [(count, one.span.end) for one in own if (count := one.remaining_tokens()) is not None]
    headers, ends = {}, []
    if usd:
        left, end = min(usd, key=lambda pair: pair[0])
        headers["X-Lockpin-Key-Remaining-Usd"] = max(left, ZERO).exact()
        ends.append(end)
    if tokens:
        count, end = min(tokens, key=lambda pair: pair[0])
        headers["X-Lockpin-Key-Remaining-Tokens"] = str(max(count, 0))
        ends.append(end)
    if ends and ends[0] is not None:
        headers["X-Lockpin-Key-Resets"] = stamp(ends[0])
    return headers


def _budget_line(standing: Standing) -> str | None:
    """Name a budget past an alert step, or one that only warns and is used up."""
    used, budget = _used(standing), standing.budget
    is_told = _step_passed(standing) is not None or (used >= 1 and not budget.enforce)
    if budget.own or not is_told:
        return None
    name = _plain(budget.name)
    state = "exceeded" if used >= 1 else "alert"
    reset = f"; reset={stamp(standing.span.end)}" if standing.span.end is not None else ""
    # Somebody may be in several; the names are those of the budget's own definition.
    whose = f"; subject={_plain(standing.subject)}" if budget.scope == "group" else ""
    return f"{name}; scope={budget.scope}; used={int(used * 100)}%; state={state}{reset}{whose}"


def _plain(name: str) -> str:
    """Give a name as it may stand in a header: what is not printable ASCII or would end it, as its UTF-8 in percent."""
    return quote(name, safe=_AS_THEY_ARE)


def _step_passed(standing: Standing) -> str | None:
    """Give the highest alert step, in whole percent, that spent has reached."""
    steps = standing.budget.alert_at
    if standing.limit != ZERO and standing.limit_tokens != 0:
        steps = passed_steps(standing, steps)
    return f"{int(max(map(Decimal, steps)) * 100)}" if steps else None


def _used(standing: Standing) -> Decimal:
    shares = [Decimal(0)]
    if standing.limit is not None:
        shares.append(Decimal(standing.spent.nano) / standing.limit.nano if standing.limit.nano else Decimal(1))
    if standing.limit_tokens is not None:
        tokens = standing.limit_tokens
        shares.append(Decimal(standing.spent_tokens) / tokens if tokens else Decimal(1))
    return max(shares)
