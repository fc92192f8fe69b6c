"""The report: calls added up by one of their facts, in the shape of SPEC §13. Pure over the reader's sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from lockpin_core.clock import stamp
from lockpin_core.ledger.reader import OpenHold
from lockpin_core.ledger.summaries import Total
from lockpin_core.money import ZERO, Money
from lockpin_core.readers.figures import dollars

COUNTS = (
    *("calls", "refused", "uncapped", "estimated_calls"),
    *("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"),
)
FIELDS = ("key", *COUNTS, "spent_usd", "estimated_usd")
NOTHING = Total(None, 0, 0, 0, 0, 0, 0, 0, 0, ZERO, ZERO, 0)


@dataclass(frozen=True, slots=True)
class Report:
    """Sums over a time; `rows` of tags and groups may add up to more than `total`: a call may have several."""

    since: datetime | None
    until: datetime
    by: str
    rows: Sequence[Total]
    total: Total
    open_holds: Sequence[OpenHold]
    ledger: str
    left_out: int = 0  # rows beyond those here; `total` counts them too

    def held(self) -> Money:
        """Add up what calls in flight hold now."""
        return Money(sum(hold.held.nano for hold in self.open_holds))


def ordered(rows: Sequence[Total], by: str) -> list[Total]:
    """Put days into their order; all else stays dearest first."""
    return sorted(rows, key=lambda row: row.key or "") if by == "day" else list(rows)


def document(report: Report) -> dict[str, object]:
    """Build the JSON object."""
    return {
        "since": None if report.since is None else stamp(report.since),
        "until": stamp(report.until),
        "by": report.by,
        "rows": [record(row) for row in report.rows],
        "total": _sums(report.total),
        "held_usd": dollars(report.held()),
        "ledger": report.ledger,
    }


def record(row: Total) -> dict[str, object]:
    """Build the JSON object of one row."""
    return {"key": row.key, **_sums(row)}


def estimated_share(total: Total) -> Decimal:
    """Give the estimated part of what was spent, in percent with one decimal."""
    return (Decimal(100) * total.estimated.nano / (total.spent.nano or 1)).quantize(Decimal("0.1"))


def _sums(row: Total) -> dict[str, object]:
    counts = {name: getattr(row, name) for name in COUNTS}
    return {**counts, "spent_usd": dollars(row.spent), "estimated_usd": dollars(row.estimated)}
