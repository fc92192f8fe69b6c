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


@dataclass(slots=True)
class Health:
    """Whether calls are refused for a fault of Lockpin, and since when."""

    clock: Clock
    since: datetime
    open_calls: Callable[[], int]
    mode: str = "solo"
    faults: dict[str, tuple[datetime, str]] = field(default_factory=dict)

    def fault(self, code: str, message: str) -> None:
        """Note that calls are refused for this reason; an empty message: no longer."""
        # Another thread tells, so what is read while it does must stay as it is.
        others = {known: what for known, what in self.faults.items() if known != code}
        since, _ = self.faults.get(code, (self.clock(), ""))
        self.faults = {**others, code: (since, message)} if message else others

    def ledger_fault(self, code: str, message: str = "") -> None:
        """Hear from the ledger that it stopped to work, and why; without a code: it works again."""
        self.fault(LEDGER_AWAY, message or "the ledger cannot be written" if code else "")

    @property
    def is_ledger_away(self) -> bool:
        """Say whether rows wait in memory for a ledger that cannot be written."""
        return LEDGER_AWAY in self.faults

    def answer(self, path: str, providers: Sequence[str]) -> tuple[int, bytes]:
        """Give status and JSON for a path on the proxy port."""
        if path == "/lockpin/healthz":
            return (503 if self.faults else 200), dumps(self._state()).encode()
        known = ", ".join(f"/{name}/…" for name in providers)
        return 404, dumps({"error": {"message": f"lockpin: nothing is here; base URLs are {known}"}}).encode()

    def _state(self) -> dict[str, object]:
        return {
            "status": "refusing" if self.faults else "ok",
            "version": __version__,
            "mode": self.mode,
            "since": stamp(self.since),
            "open_calls": self.open_calls(),
            "faults": [
                {"code": code, "since": stamp(since), "message": message}
                for code, (since, message) in sorted(self.faults.items())
            ],
        }
