"""The words and figures of refusals (SPEC §8). Pure; a wire puts them into its own error shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from lockpin_core import windows
from lockpin_core.budgets import Standing
from lockpin_core.call import Quote, Refusal
from lockpin_core.clock import stamp as stamp
from lockpin_core.money import ZERO, Money

STATUS = {
    "budget_exceeded": 402,
    "task_closed": 402,
    "unknown_model": 400,
    "unpriced_tool": 400,
    "bad_request": 400,
    "key_required": 401,
    "key_unknown": 401,
    "key_expired": 401,
    "identity_conflict": 400,
    "uncapped_call": 403,
    "spend_rate_exceeded": 429,
    "loop_stopped": 429,
    "too_large": 413,
    "ledger_unavailable": 503,
    "keys_unavailable": 503,
    "reserve_failed": 503,
    "handler_panic": 500,
}
# Of requests of which nobody knows who sends them; anybody can send any number of those.
STRANGERS = frozenset({"key_required", "key_unknown", "key_expired", "identity_conflict", "keys_unavailable"})
_NAMED = 5  # limits besides the first that a text names
RETRY_S = 5  # where waiting can help and nothing says how long


def refusal(code: str, words: str, detail: Mapping[str, object] | None = None, *, status: int | None = None) -> Refusal:
    """Make a refusal that is not about an amount; `status` where it is not the usual one of its code."""
    status = STATUS[code] if status is None else status
    return Refusal(code, status, f"lockpin: {words}", detail or {}, RETRY_S if status == 503 else None)


def budget_exceeded(
    task: str, quote: Quote, short: Sequence[Standing], now: datetime, fits: Mapping[str, object] | None = None,
    *, without_tools: Money | None = None, kept_whole: bool = False,
) -> Refusal:  # fmt: skip
    """Refuse a call whose worst case does not fit; `short` is ordered: its first is the one that is named.

    `without_tools`: what it would need if the provider ran none of its tools, where that is less. `kept_whole`: its
    sender wanted it refused rather than made smaller.
    """
    first = short[0]
    transient = all(standing.is_transient(quote.most, quote.tokens) for standing in short)
    detail: dict[str, object] = {"task": task, **_figures(first, quote), "transient": transient}
    retry_after_s = RETRY_S if transient else _resets_in(short, quote, now)
    if retry_after_s is not None:
        detail["retry_after_s"] = retry_after_s
    if fits:
        detail["fits"] = fits
    if len(short) > 1:
        detail["violations"] = [_whose(standing) | _figures(standing, quote) for standing in short]
    words = f"lockpin: {_words(first, quote)}{_others(short[1:])}{_account(first)}{_reserved(short)}"
    if transient:
        words += "; it may fit when calls in flight end"  # no word that clients match to decide on a retry
    words += _above(short, quote) or _last_reset(short, quote)
    if fits and "max_output_tokens" in fits:
        words += f"; with an output limit of up to {fits['max_output_tokens']} tokens it fits now"
    if fits and "model" in fits:
        words += f"; with the model {fits['model']} it fits now"
    if kept_whole and not fits:
        words += "; by X-Lockpin-Degrade: off it was not made smaller"
    if without_tools is not None:
        words += f"; up to ${shown([ZERO, without_tools])[1]} without the tools that the provider runs by itself"
    return Refusal("budget_exceeded", 402, words, detail)


def _reserved(short: Sequence[Standing]) -> str:
    """Say what of the amount in flight is none, but kept free for the task's last calls."""
    kept = next((one for one in short if one.reserved or one.reserved_tokens), None)
    if kept is None:
        return ""
    usd = "" if kept.limit is None or not kept.reserved else f"${shown([ZERO, kept.reserved])[1]}"
    tokens = "" if kept.limit_tokens is None or not kept.reserved_tokens else f"{kept.reserved_tokens:,} tokens"
    kept_free = " and ".join(filter(None, (usd, tokens)))
    return f"; {kept_free} of what is in flight is kept free for small last calls of the task"


def _others(short: Sequence[Standing]) -> str:
    """Name the limits in the way besides the first."""
    if not short:
        return ""
    names = [standing.budget.name for standing in short[:_NAMED]] + ["…"] * (len(short) > _NAMED)
    return f" (and {len(short)} more limit{'' if len(short) == 1 else 's'}: {', '.join(names)})"


def _account(standing: Standing) -> str:
    """Say whose account of a budget it is, where there may be several and the words do not name it yet."""
    budget = standing.budget
    if budget.own or budget.scope in ("machine", "org"):
        return ""
    if budget.scope == "key" and budget.name == standing.subject:
        return "; it is this key's own limit"
    return f'; it is the account of {budget.scope} "{standing.subject}"'


def _above(short: Sequence[Standing], quote: Quote) -> str:
    """Say that a call is larger than a limit that starts anew, for then no reset helps; "": it is not."""
    above = [one.budget.name for one in short if one.span.end is not None and not _could_fit(one, quote)]
    if not above:
        return ""
    names = ", ".join(f'"{name}"' for name in above[:_NAMED]) + (", …" if len(above) > _NAMED else "")
    return f"; that is above the whole limit{'' if len(above) == 1 else 's'} of {names}, so no reset makes room"


def _last_reset(short: Sequence[Standing], quote: Quote) -> str:
    """Say when the last of several limits that are spent starts anew, where that is later than the first one does."""
    final = [one.span.end for one in short if not one.is_transient(quote.most, quote.tokens)]
    ends = [end for end in final if end is not None]
    if ends and len(ends) < len(final):
        return "; not all of them reset"
    return "" if not ends or max(ends) == short[0].span.end else f"; the last of them resets {stamp(max(ends))}"


def _resets_in(short: Sequence[Standing], quote: Quote, now: datetime) -> int | None:
    """Give the seconds until every limit that spent money is over has room again; None where no waiting can help."""
    final = [standing for standing in short if not standing.is_transient(quote.most, quote.tokens)]
    ends = [_has_room_at(standing, quote) for standing in final if _could_fit(standing, quote)]
    known = [end for end in ends if end is not None]
    if len(known) < len(final):
        return None
    return max(1, -int(-(max(known) - now).total_seconds() // 1))


def _has_room_at(standing: Standing, quote: Quote) -> datetime | None:
    """Say when a limit starts anew, or of a rolling one enough has left it if nothing more is spent; None: never."""
    if standing.budget.window.kind != "rolling":
        return standing.span.end
    most, most_tokens = _without_raises(standing)
    usd, tokens = standing.spent + standing.reserved, standing.spent_tokens + standing.reserved_tokens
    for at, usd_gone, tokens_gone in standing.leaving:
        usd, tokens = usd - usd_gone, tokens - tokens_gone
        fits_usd = most is None or not quote.most or usd + quote.most <= most
        if fits_usd and (most_tokens is None or not quote.tokens or tokens + quote.tokens <= most_tokens):
            return at
    return None


def _could_fit(standing: Standing, quote: Quote) -> bool:
    """Say whether the call fits the limit of a window in which nothing was spent, and which nobody has raised."""
    usd, tokens = _without_raises(standing)
    usd_ok = usd is None or quote.most + standing.reserved <= usd
    return usd_ok and (tokens is None or quote.tokens + standing.reserved_tokens <= tokens)


def _without_raises(standing: Standing) -> tuple[Money | None, int | None]:
    """Give the limits of an account that nobody has raised, in dollars and in tokens."""
    budget = standing.budget
    usd = standing.limit if budget.limit is None else budget.limit
    return usd, standing.limit_tokens if budget.limit_tokens is None else budget.limit_tokens


def _words(standing: Standing, quote: Quote) -> str:
    budget, resets = standing.budget, ""
    if standing.span.end is not None:
        resets = f"; resets {stamp(standing.span.end)}"
    who = f'task "{standing.subject}" would exceed its' if budget.own else _rule_words(standing)
    return f"{who} {_amounts(standing, quote, own=budget.own)}{resets}"


def _rule_words(standing: Standing) -> str:
    window = windows.shown(standing.budget.window)
    return f'budget "{standing.budget.name}" ({standing.budget.scope}, {window}) would pass its'


def _amounts(standing: Standing, quote: Quote, *, own: bool) -> str:
    noun = "budget" if own else "limit"
    if standing.limit is None or _is_of_tokens(standing, quote):
        return (
            f"{standing.limit_tokens:,} token {noun}: spent {standing.spent_tokens:,}, "
            f"in flight {standing.held_tokens + standing.reserved_tokens:,}, "
            f"this call needs up to {quote.tokens:,} tokens"
        )
    limit, spent, held, needed = shown([standing.limit, standing.spent, standing.held + standing.reserved, quote.most])
    return f"${limit} {noun}: spent ${spent}, in flight ${held}, this call needs up to ${needed}"


def _is_of_tokens(standing: Standing, quote: Quote) -> bool:
    """Say whether it is the limit in tokens that a text should name: where both are in the way, one that stays so."""
    if standing.fits_tokens(quote.tokens):
        return False
    is_final = not standing.is_transient(ZERO, quote.tokens)
    return standing.fits_usd(quote.most) or (is_final and standing.is_transient(quote.most, 0))


def shown(amounts: Sequence[Money]) -> list[str]:
    """Write a limit (rounded down) and amounts beside it (rounded up) so that different ones look different.

    Two decimals where the limit is $1 or more, else four; more where two different amounts would look equal or one
    that is not zero would look zero.
    """
    first = 2 if amounts[0] >= Money.parse(1) else 4
    texts: list[str] = []
    for places in range(first, 10):
        texts = [amount.rounded(places, up=index > 0) for index, amount in enumerate(amounts)]
        if _tells_apart(amounts, texts):
            break
    return texts


def _tells_apart(amounts: Sequence[Money], texts: Sequence[str]) -> bool:
    if any(amount != ZERO and not Decimal(text) for amount, text in zip(amounts, texts, strict=True)):
        return False
    return len(set(amounts)) == len(set(texts))


def _whose(standing: Standing) -> dict[str, object]:
    """Name of one of several limits whose it is, a task's own too."""
    return {"scope": standing.budget.scope, "subject": standing.subject}


def _figures(standing: Standing, quote: Quote) -> dict[str, object]:
    figures: dict[str, object] = {}
    if standing.limit is not None:
        left = standing.remaining() or ZERO
        figures |= {
            "budget_usd": standing.limit.decimal(),
            "spent_usd": standing.spent.decimal(),
            "in_flight_usd": (standing.held + standing.reserved).decimal(),
            "needed_usd": quote.most.decimal(),
            "remaining_usd": max(left, ZERO).decimal(),
        }
    if standing.limit_tokens is not None:
        figures |= {
            "budget_tokens": standing.limit_tokens,
            "spent_tokens": standing.spent_tokens,
            "in_flight_tokens": standing.held_tokens + standing.reserved_tokens,
            "needed_tokens": quote.tokens,
            "remaining_tokens": max(standing.remaining_tokens() or 0, 0),
        }
    if standing.budget.own and standing.budget.window.kind == "lifetime":
        return figures
    figures |= {
        "limit": standing.budget.name,
        "scope": standing.budget.scope,
        "subject": standing.subject,
        "period": windows.period_text(standing.budget.window),
    }
    if standing.limit is not None:
        figures["limit_usd"] = standing.limit.decimal()
    if standing.limit_tokens is not None:
        figures["limit_tokens"] = standing.limit_tokens
    if standing.span.end is not None:
        figures["resets_at"] = stamp(standing.span.end)
    return figures
