from datetime import UTC, datetime
from decimal import Decimal

from lockpin_core.ledger.reader import OpenHold
from lockpin_core.ledger.summaries import Total
from lockpin_core.money import Money
from lockpin_core.readers.report import FIELDS, NOTHING, Report, document, estimated_share, ordered, record

AT = datetime(2026, 10, 21, 12, 30, tzinfo=UTC)


def total(key, spent="0", estimated="0") -> Total:
    return Total(key, 3, 1, 2, 1, 100, 20, 30, 40, Money.parse(spent), Money.parse(estimated), 0)


def hold(usd: str) -> OpenHold:
    return OpenHold("c", AT, "fix", Money.parse(usd), 10, False)


def test_document_has_the_shape_of_the_contract():
    report = Report(
        AT, AT, "task", [total("fix", "1.2", "0.3")], total(None, "1.2", "0.3"), [hold("0.5"), hold("0.25")], "/l"
    )

    found = document(report)

    sums = {
        "calls": 3, "refused": 1, "uncapped": 2, "estimated_calls": 1, "input_tokens": 100, "cache_read_tokens": 20,
        "cache_write_tokens": 30, "output_tokens": 40, "spent_usd": Decimal("1.2"), "estimated_usd": Decimal("0.3"),
    }  # fmt: skip
    assert found == {
        "since": "2026-10-21T12:30:00Z", "until": "2026-10-21T12:30:00Z", "by": "task",
        "rows": [{"key": "fix", **sums}], "total": sums, "held_usd": Decimal("0.75"), "ledger": "/l",
    }  # fmt: skip


def test_row_has_the_fields_of_a_csv():
    assert tuple(record(total("fix"))) == FIELDS


def test_all_time_has_no_since():
    assert document(Report(None, AT, "task", [], NOTHING, [], "/l"))["since"] is None


def test_days_are_in_order_and_all_else_stays_dearest_first():
    days = [total("2026-10-03", "9"), total("2026-10-01", "5"), total("2026-10-02", "1")]

    assert [row.key for row in ordered(days, "day")] == ["2026-10-01", "2026-10-02", "2026-10-03"]
    assert ordered(days, "task") == days


def test_estimated_share_is_a_percentage_of_what_was_spent():
    assert estimated_share(total(None, "0.03", "0.0086")) == Decimal("28.7")
    assert estimated_share(NOTHING) == 0
