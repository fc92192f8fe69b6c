"""What is told once of an account. The history of one account is a list of texts that its ledger keeps."""

from datetime import UTC, datetime

import pytest

from lockpin_core.budgets import Budget, Standing
from lockpin_core.ledger.alerts import PASSED, REFUSED, event_data, newly_passed, still_told, with_refusal
from lockpin_core.ledger.protocol import Held
from lockpin_core.money import Money
from lockpin_core.windows import LIFETIME, Window, WindowSpan
from tests.ledger.desk import WAIT_S, SqliteDesk, call, charge, machine, note, refusal, rules

STEPS = ("0.5", "0.8")
CALENDAR = Budget("dev", "machine", Window("day"), limit=Money.parse("10"), alert_at=STEPS)
ROLLING = Budget("dev", "machine", Window("rolling", period_ms=3_600_000), limit=Money.parse("10"), alert_at=STEPS)
HOUR_US = 3_600_000_000
DAY = WindowSpan(datetime(2026, 10, 21, tzinfo=UTC), datetime(2026, 10, 22, tzinfo=UTC))


def spent(dollars: str, budget: Budget = CALENDAR, limit: str = "10") -> Standing:
    span = DAY if budget is CALENDAR else LIFETIME
    return Standing("a", budget, "box", span, Money.parse(dollars), Money(0), 7, 0, Money.parse(limit), None)


def steps_told(budget: Budget, *amounts: str) -> list[list[str]]:
    told: list[str] = []
    found = []
    for dollars in amounts:
        new, told = newly_passed(spent(dollars, budget), told)
        found.append(new)
    return found


def test_each_step_is_told_once_in_a_window_also_where_spend_was_corrected_meanwhile():
    assert steps_told(CALENDAR, "4.99", "5", "7", "9", "4", "9") == [[], ["0.5"], [], ["0.8"], [], []]
    assert steps_told(CALENDAR, "10") == [["0.5", "0.8"]]


def test_what_leaves_a_rolling_window_arms_its_steps_again():
    assert steps_told(ROLLING, "9", "4.99", "5", "8") == [["0.5", "0.8"], [], ["0.5"], ["0.8"]]


def test_a_raise_arms_the_steps_that_it_un_passes_and_keeps_the_refusal():
    told = ["0.5", "0.8", "refused@5"]

    assert still_told(spent("9", limit="15"), told) == ["0.5", "refused@5"]
    assert still_told(spent("9", limit="20"), told) == ["refused@5"]
    assert still_told(spent("9"), told) == told


@pytest.mark.parametrize(("budget", "again"), [(CALENDAR, False), (ROLLING, True)])
def test_a_refusal_is_told_once_in_a_window_or_a_period(budget, again):
    standing = spent("9", budget)

    first = with_refusal(standing, ["0.5"], 7)

    assert first == ["0.5", "refused@7"]
    assert with_refusal(standing, first, 7 + HOUR_US - 1) is None
    late = with_refusal(standing, first, 7 + HOUR_US)
    assert late == (["0.5", f"refused@{7 + HOUR_US}"] if again else None)


def test_an_event_names_the_account_and_how_it_stands():
    assert event_data(spent("8.5"), "c1", "0.8") == {
        "account": "a", "budget": "dev", "scope": "machine", "subject": "box", "window": "day", "call": "c1",
        "enforce": False, "spent_nano": 8_500_000_000, "held_nano": 0, "limit_nano": 10**10, "spent_tokens": 7,
        "held_tokens": 0, "limit_tokens": None, "resets_at": int(DAY.end.timestamp()) * 10**6, "step": "0.8",
    }  # fmt: skip
    rolling = event_data(spent("8.5", ROLLING), "c1")
    assert (rolling["window"], "resets_at" in rolling, "step" in rolling) == ("rolling:3600000", False, False)


def test_two_ledgers_on_one_file_tell_of_a_step_and_of_a_refusal_once(tmp_path):
    desk = SqliteDesk(tmp_path)
    other = desk.open()
    budgets = rules(machine("1", alert_at=("0.5",)))

    def spend(ledger, call_id, dollars):
        assert isinstance(ledger.hold(call(call_id, dollars), budgets).result(WAIT_S), Held)
        return [each.step for each in ledger.settle(call_id, charge(dollars)).result(WAIT_S).crossed]

    assert spend(desk.ledger, "c1", "0.6") == ["0.5"]
    assert spend(other, "c2", "0.1") == []
    for number, ledger in enumerate((other, desk.ledger, other)):
        short = ledger.hold(call(f"r{number}", "0.9"), budgets).result(WAIT_S)
        accounts = tuple(standing.account for standing in short.violations)
        ledger.refuse(note(f"r{number}", accounts=accounts), refusal())
    other.stop()
    desk.close()

    assert [row.code for row in desk.rows("event") if row.code in (PASSED, REFUSED)] == [PASSED, REFUSED]
    assert len(desk.rows("refusal")) == 3
