"""Whose calls pause, said beside what people look at when an agent does not go on."""

from __future__ import annotations

from lockpin_cli.output import say
from lockpin_cli.presence import is_there
from lockpin_core.clock import stamp_after, utc_now
from lockpin_core.config import Config
from lockpin_core.ledger.pausebook import breaker_state
from lockpin_core.ledger.pauses import Paused

_NAMED = 3


def say_pauses(config: Config, kind: str | None = None) -> None:
    """Say whose calls pause, of one kind of pauses or of all, and what lets them go on."""
    if not is_there(config.ledger):
        return
    pauses = [paused for paused in paused_by(config) if kind in (None, paused.kind)]
    for paused in pauses[:_NAMED]:
        say(_words(paused))
    if len(pauses) > _NAMED:
        say(f"{len(pauses) - _NAMED} more pause; `lockpin breaker status` lists them")


def paused_by(config: Config) -> tuple[Paused, ...]:
    """List whose calls pause."""
    return breaker_state(config.ledger, utc_now()).pauses if is_there(config.ledger) else ()


def _words(paused: Paused) -> str:
    of = f" of {paused.user}" if paused.user else ""
    who = f'the calls of {paused.scope} "{paused.subject}"{of} pause'
    if paused.until is None:
        return f"{who}: it was stopped; `{paused.way_on}` lets it go on"
    return f"{who} until {stamp_after(paused.until)}: it was charged too fast; `{paused.way_on}` lets it go on"
