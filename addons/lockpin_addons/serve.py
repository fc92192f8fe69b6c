"""What the proxy port itself answers: its health, and where base URLs lead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lockpin_core import __version__
from lockpin_core.clock import Clock
from lockpin_core.jsontext import dumps
from lockpin_core.refusals import stamp

LEDGER_AWAY = "ledger_unavailable"
_MEANWHILE = (
    "until it works again, calls under an enforced limit are refused (503), all others pass and are written later"
)


@dataclass(slots=True)
class Health:
    """Whether calls are refused for a fault of Lockpin, and since when. `say` shows a line to whoever started it."""

    clock: Clock
    since: datetime
    open_calls: Callable[[], int]
    is_capped: Callable[[], bool]  # a limit of the configuration is enforced, so that a fault refuses calls
    say: Callable[[str], None]
    ledger: str = ""  # the mark of the ledger, so that a command can see whether it is its own
    mode: str = "solo"
    faults: dict[str, tuple[datetime, str]] = field(default_factory=dict)
    _refused: bool = False  # a call was, since the ledger went away
    _said: set[str] = field(default_factory=set)  # reasons that were shown since then

    def fault(self, code: str, message: str) -> None:
        """Note a fault and its reason; an empty message: it is over."""
        # Another thread tells, so what is read while it does must stay as it is.
        others = {known: what for known, what in self.faults.items() if known != code}
        since, _ = self.faults.get(code, (self.clock(), ""))
        self.faults = {**others, code: (since, message)} if message else others

    def ledger_fault(self, code: str, message: str = "") -> None:
        """Hear from the ledger that it stopped to work, and why; without a code: it works again."""
        was_away = self.is_ledger_away
        if not code:
            self.fault(LEDGER_AWAY, "")
            self._refused = False
            self._said.clear()
            if was_away:
                self.say("the ledger works again")
            return
        words = message or "the ledger cannot be written"
        self.fault(LEDGER_AWAY, words)
        if words not in self._said:
            self.say(f"still no ledger: {words}" if was_away else f"{words}; {_MEANWHILE}")
            self._said.add(words)

    def note_refusal(self, code: str) -> None:
        """Hear of a call that was refused."""
        if code == LEDGER_AWAY and self.is_ledger_away:
            self._refused = True

    @property
    def is_ledger_away(self) -> bool:
        """Say whether rows wait in memory for a ledger that cannot be written."""
        return LEDGER_AWAY in self.faults

    @property
    def is_refusing(self) -> bool:
        """Say whether calls are being refused for a fault; those that no limit applies to pass without a ledger."""
        return bool(self.faults.keys() - {LEDGER_AWAY}) or (self.is_ledger_away and (self._refused or self.is_capped()))

    def answer(self, path: str, providers: Sequence[str]) -> tuple[int, bytes]:
        """Give status and JSON for a path on the proxy port."""
        if path == "/lockpin/healthz":
            return (503 if self.is_refusing else 200), dumps(self._state()).encode()
        known = ", ".join(f"/{name}/…" for name in providers)
        return 404, dumps({"error": {"message": f"lockpin: nothing is here; base URLs are {known}"}}).encode()

    def _state(self) -> dict[str, object]:
        return {
            "status": "refusing" if self.is_refusing else "ok",
            "version": __version__,
            "mode": self.mode,
            "ledger": self.ledger,
            "since": stamp(self.since),
            "open_calls": self.open_calls(),
            "faults": [
                {"code": code, "since": stamp(since), "message": message}
                for code, (since, message) in sorted(self.faults.items())
            ],
        }
