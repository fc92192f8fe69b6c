"""Whose calls pause, said beside what people look at when an agent does not go on."""

from __future__ import annotations

from lockpin_cli.output import say
from lockpin_cli.presence import is_there
from lockpin_core.clock import stamp, utc_now
from lockpin_core.config import Config
from lockpin_core.ledger.pausebook import breaker_state
from lockpin_core.ledger.pauses import Paused

_NAMED = 3


def say_pauses(config: Config) -> None:
    """Say whose calls pause, and what lets them go on."""
    if not is_there(config.ledger):
        return
    pauses = breaker_state(config.ledger, utc_now()).pauses
    for paused in pauses[:_NAMED]:
        say(_words(paused))
    if len(pauses) > _NAMED:
        say(f"{len(pauses) - _NAMED} more pause; `lockpin breaker status` lists them")


def _words(paused: Paused) -> str:
    of = f" of {paused.user}" if paused.user else ""
    who = f'the calls of {paused.scope} "{paused.subject}"{of} pause'
    if paused.until is None:
        return f"{who}: it was stopped; `lockpin task resume` lets it go on"
    return f"{who} until {stamp(paused.until)}: it was charged too fast; `lockpin breaker reset` lets it go on"
