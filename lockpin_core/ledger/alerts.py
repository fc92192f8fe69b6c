"""What is told once of an account: the alert steps that its spend has passed, and that a call was refused for it.

What was told is kept beside the account as a list of texts: steps ("0.8"), and when a refusal was ("refused@AT", in
microseconds). A step is told once a window; a limit that is raised arms again the steps that it un-passes, and so does
spend that leaves a rolling window, which has no end. A refusal is told once a window, and of a rolling one once in a
period. Knows no ledger: how texts are kept and events are written is given to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockpin_core.budgets import Standing
from lockpin_core.clock import micros
from lockpin_core.ledger.accounts import passed_steps
from lockpin_core.ledger.chain import NoteEvent
from lockpin_core.ledger.protocol import Crossed
from lockpin_core.windows import kind_text

PASSED, REFUSED = "threshold_passed", "limit_refused"  # codes of the events

_REFUSED_AT = "refused@"


class Alerts:
    """Notes what is to be told, and tells it. `told` and `tell` read and keep what was told of an account."""

    def __init__(
        self, told: Callable[[str], Sequence[str]], tell: Callable[[str, list[str]], None], note_event: NoteEvent
    ) -> None:
        self._told, self._tell, self._note_event = told, tell, note_event

    def spent(self, standings: Sequence[Standing], call_id: str) -> tuple[Crossed, ...]:
        """Write an event of each alert step that a call's charge has passed, and list them."""
        crossed: list[Crossed] = []
        for standing in standings:
            told = self._told(standing.account)
            if not told and not passed_steps(standing, standing.budget.alert_at):
                continue
            new, after = newly_passed(standing, told)
            if after != [*told]:
                self._tell(standing.account, after)
            for step in new:
                self._note_event(PASSED, event_data(standing, call_id, step))
                crossed.append(Crossed(standing.budget.name, standing.subject, step))
        return tuple(crossed)

    def refused(self, standings: Sequence[Standing], call_id: str, at: int) -> None:
        """Write an event of each account that a call did not fit, where that was not told before."""
        for standing in standings:
            after = with_refusal(standing, self._told(standing.account), at)
            if after is not None:
                self._tell(standing.account, after)
                self._note_event(REFUSED, event_data(standing, call_id))


def newly_passed(standing: Standing, told: Sequence[str]) -> tuple[list[str], list[str]]:
    """Give the steps that are passed and were not told, and all that is told with them."""
    passed = passed_steps(standing, standing.budget.alert_at)
    new = [step for step in passed if step not in told]
    kept = told if standing.budget.window.kind != "rolling" else still_told(standing, told)
    return new, [*kept, *new]


def still_told(standing: Standing, told: Sequence[str]) -> list[str]:
    """Leave out the steps that are passed no more."""
    steps = [one for one in told if not one.startswith(_REFUSED_AT)]
    passed = passed_steps(standing, steps)
    return [one for one in told if one in passed or one.startswith(_REFUSED_AT)]


def with_refusal(standing: Standing, told: Sequence[str], at: int) -> list[str] | None:
    """Give all that is told with a refusal at an instant; None: it was told before."""
    period_us = 1000 * standing.budget.window.period_ms
    before = [int(one.removeprefix(_REFUSED_AT)) for one in told if one.startswith(_REFUSED_AT)]
    if before and (not period_us or at < max(before) + period_us):
        return None
    return [*(one for one in told if not one.startswith(_REFUSED_AT)), f"{_REFUSED_AT}{at}"]


def event_data(standing: Standing, call: str, step: str | None = None) -> dict[str, object]:
    """Write what the event of a step, or of a refusal, says."""
    budget, end = standing.budget, standing.span.end
    return {
        "account": standing.account, "budget": budget.name, "scope": budget.scope, "subject": standing.subject,
        "window": kind_text(budget.window), "call": call, "enforce": budget.enforce,
        "spent_nano": standing.spent.nano, "held_nano": standing.held.nano,
        "limit_nano": None if standing.limit is None else standing.limit.nano,
        "spent_tokens": standing.spent_tokens, "held_tokens": standing.held_tokens,
        "limit_tokens": standing.limit_tokens,
        **({} if end is None else {"resets_at": micros(end)}), **({} if step is None else {"step": step}),
    }  # fmt: skip
