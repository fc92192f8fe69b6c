"""The refusal of a call whose task or key pauses: what it says, and until when (SPEC §8, step 4). Pure."""

from __future__ import annotations

from datetime import timedelta

from lockpin_core.call import Refusal
from lockpin_core.clock import stamp_after
from lockpin_core.ledger.pauses import BREAKER, Paused
from lockpin_core.money import ZERO
from lockpin_core.refusals import RETRY_S, STATUS, shown
from lockpin_core.windows import duration_text

_SECOND = timedelta(seconds=1)
_ASK = "ask whoever runs this proxy"
_TOO_FAST, _STOPPED = "spend_rate_exceeded", "loop_stopped"


def pause_refusal(paused: Paused, *, mode: str = "solo") -> Refusal:
    """Refuse a call because of a pause. The next whole second after its end is told, rather than one too early.

    In team `mode` the caller is told to ask those who can end it.
    """
    code = _TOO_FAST if paused.kind == BREAKER else _STOPPED
    detail: dict[str, object] = {"scope": paused.scope, "subject": paused.subject}
    seconds = RETRY_S
    if paused.until is not None:
        seconds = max(1, -(-(paused.until - paused.at) // _SECOND))
        detail["resets_at"] = stamp_after(paused.until)
    if paused.window is not None and paused.charged is not None and paused.usd is not None:
        detail["period"] = _text(paused.window)
        detail |= {"charged_usd": paused.charged.decimal(), "limit_usd": paused.usd.decimal()}
    detail["retry_after_s"] = seconds
    return Refusal(code, STATUS[code], f"lockpin: {_words(paused, is_team=mode == 'team')}", detail, seconds)


def pause_headers(refusal: Refusal) -> dict[str, str]:
    """Say in a header when the calls that pause go on."""
    resets = refusal.detail.get("resets_at") if refusal.code == _TOO_FAST else None
    return {} if resets is None else {"X-Lockpin-Breaker-Resets": str(resets)}


def _words(paused: Paused, *, is_team: bool) -> str:
    who, way = f'{paused.scope} "{paused.subject}"', _ASK if is_team else paused.way_on
    if paused.until is None:
        return f"{who} was stopped, as it went round in a circle; to let its calls go on: {way}"
    limit, charged = shown([paused.usd or ZERO, paused.charged or ZERO])
    within = "" if paused.window is None else f" within {_text(paused.window)}"
    return (
        f"{who} was charged ${charged}{within}, and the breaker lets ${limit} pass; its calls pause until "
        f"{stamp_after(paused.until)}; to let them go on before: {way}"
    )


def _text(span: timedelta) -> str:
    return duration_text(span // timedelta(milliseconds=1))
