"""A month of teams through the ledger, and what `lockpin budget status` shows of it. All figures are added up by hand.

October 2026 begins on a Thursday. Berlin's clocks go back on Sunday the 25th at 01:00 UTC, New York's on Sunday the 1st
of November at 06:00 UTC.
"""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lockpin_cli.budget_status import standings, view_of
from lockpin_core.budgets import Budget
from lockpin_core.call import Terms
from lockpin_core.config import Config, Places, load
from lockpin_core.ledger.protocol import Held, Rules, Short
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.verify import verify
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, price, shipped_dir
from lockpin_core.usage import Unit
from lockpin_core.windows import Window
from tests.ledger.desk import SetClock, call, charge, counted_ids

DATA = Path(__file__).resolve().parent.parent / "data"
TEAMS = """
daily_usd: null
include: [gateway.yaml]
budgets:
  - {name: dev-daily, scope: user, window: day, limit_usd: 25, action: enforce, alert_at: [0.5, 0.8]}
  - {name: team-monthly, scope: group, groups: [platform, ml], window: month, limit_usd: 5000}
  - {name: canary-tokens, scope: ring, rings: [ring1], window: rolling, period: 24h, limit_tokens: 200000000}
  - {name: opus-weekly, scope: org, window: week, limit_usd: 400, action: enforce, models: ["claude-opus-*"],
     timezone: Europe/Berlin, at: "00:00"}
  - {name: core-day, scope: team, window: day, limit_usd: 60, timezone: America/New_York, at: "09:00"}
"""
ALICE = {"key": "k-alice", "user": "alice@acme.com", "team": "core", "groups": ("platform", "search"), "ring": "ring1"}
BOB = {"key": "k-bob", "user": "bob@acme.com", "team": "core", "groups": ("ml",)}
CAROL = {"key": "k-carol", "user": "carol@acme.com", "groups": ("freelancers",), "ring": "ring0-preview"}
NOBODY: dict[str, object] = {}  # a call without a verified user
SONNET, OPUS = "claude-sonnet-4-5", "claude-opus-4-5"
WAIT_S = 20


def oct_(day: int, hour: int = 0, minute: int = 0) -> datetime:
    """Give an instant of October 2026; days after the 31st are November's."""
    return datetime(2026, 10, 1, hour, minute, tzinfo=UTC) + timedelta(days=day - 1)


def calls() -> list[tuple[datetime, dict, str, int, str]]:
    """List the month's calls: when, whose, dollars, tokens, model."""
    found: list[tuple[datetime, dict, str, int, str]] = []
    for day in range(1, 33):  # the 32nd is the 1st of November
        weekday = oct_(day).weekday()
        found += [(oct_(day, 8), ALICE, "6", 1_000_000, SONNET), (oct_(day, 20), ALICE, "4", 500_000, OPUS)]
        if weekday < 5:
            found.append((oct_(day, 12), BOB, "10", 2_000_000, SONNET))
        for on, dollars, tokens in ((0, "15", 40_000_000), (2, "12", 60_000_000), (4, "5", 30_000_000)):
            if weekday == on:
                found.append((oct_(day, 10), CAROL, dollars, tokens, SONNET))
    found += [(oct_(day, 23, 30), NOBODY, "30", 3_000_000, OPUS) for day in (1, 15)]
    return sorted(found, key=lambda one: one[0])


class Month:
    """The ledger at a time of the month, with all calls before it."""

    def __init__(self, folder: Path) -> None:
        shutil.copy(DATA / "gateway.yaml", folder)
        (folder / "lockpin.yaml").write_text(TEAMS)
        places = Places(folder, folder / "config", folder)
        self.config: Config = load(folder / "lockpin.yaml", env={}, places=places)
        self.rules = Rules(self.config.all_budgets(), self.config.task_default())
        self.clock = SetClock(oct_(1))
        self.ledger = SqliteLedger(self.config.ledger, clock=self.clock, new_id=counted_ids())
        self._ahead = calls()
        self._made = 0

    def until(self, at: datetime) -> None:
        """Let all calls before an instant be made."""
        while self._ahead and self._ahead[0][0] < at:
            when, payers, dollars, tokens, model = self._ahead.pop(0)
            self.clock.now = when
            call_id, held = self.hold(payers, Money.parse(dollars) + Money.parse(1), tokens, model)
            assert isinstance(held, Held)
            self.settle(call_id, dollars, tokens)
        self.clock.now = at

    def hold(self, payers: dict, most: Money, tokens: int, model: str) -> tuple[str, Held | Short]:
        self._made += 1
        asked = call(
            f"c{self._made}", most.exact(), tokens=tokens, model=model, provider="anthropic", host="gateway", **payers
        )
        return asked.id, self.ledger.hold(asked, self.rules).result(WAIT_S)

    def settle(self, call_id: str, dollars: str, tokens: int) -> None:
        self.clock.now += timedelta(seconds=30)
        self.ledger.settle(call_id, charge(dollars, tokens=tokens)).result(WAIT_S)

    def shown(self) -> list[tuple[str, str, str, str, str, str]]:
        """Give BUDGET, KEY, SPENT, HELD, USED and RESETS as `budget status` writes them, tasks' own left out."""
        found = view_of(standings(self.config, self.rules, self.clock.now))
        titles = [column.title for column in found.columns]
        wanted = [titles.index(title) for title in ("BUDGET", "KEY", "SPENT", "HELD", "USED", "RESETS")]
        return [tuple(row[place] for place in wanted) for row in found.cells if row[0] != "task"]


@pytest.fixture
def month(tmp_path):
    made = Month(tmp_path)
    yield made
    made.ledger.stop()
    assert verify(made.config.ledger).wrong is None


def test_the_example_configuration_loads(tmp_path):
    shutil.copy(DATA / "example.yaml", tmp_path / "lockpin.yaml")

    config = load(tmp_path / "lockpin.yaml", env={}, places=Places(tmp_path, tmp_path, tmp_path))

    assert [(b.name, b.scope, b.window.kind, b.enforce, b.alert_at) for b in config.budgets] == [
        ("dev-daily", "user", "day", True, ("0.5", "0.8")), ("team-monthly", "group", "month", False, ("0.8",)),
        ("canary-tokens", "ring", "rolling", False, ("0.8",)), ("opus-weekly", "org", "week", True, ("0.8",)),
    ]  # fmt: skip
    assert config.budgets[3].window == Window("week", "Europe/Berlin")
    assert config.budgets[2].limit_tokens == 200_000_000


def test_the_gateways_file_loads_unchanged(month):
    theirs = {budget.name: budget for budget in month.config.budgets[5:]}

    assert list(theirs) == ["engineer-day", "freelancer-week", "squad-month", "preview-tokens", "company-month"]
    assert theirs["engineer-day"] == Budget(
        "engineer-day", "user", Window("day"), limit=Money.parse("20"), enforce=True, alert_at=("0.5", "0.9")
    )
    assert theirs["freelancer-week"] == Budget(
        "freelancer-week", "user", Window("week"), limit=Money.parse("35"), enforce=True, groups=("freelancers",)
    )
    assert theirs["squad-month"] == Budget(
        "squad-month", "group", Window("month"), limit=Money.parse("4000"), groups=("search", "checkout")
    )
    assert theirs["preview-tokens"] == Budget(
        "preview-tokens", "ring", Window("rolling", period_ms=86_400_000), limit_tokens=150_000_000,
        rings=("ring0-preview",),
    )  # fmt: skip
    assert theirs["company-month"] == Budget(
        "company-month", "org", Window("month"), limit=Money.parse("50000"), alert_at=("0.8", "0.95")
    )
    assert list(month.config.pricing) == ["claude-sonnet-4-5-20250929", "gpt-5-codex", "in-house-70b"]


@pytest.mark.parametrize(
    ("provider", "name", "dollars"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", "22.05"),  # a million of each: 3 + 15 + 0.30 + 3.75
        ("openai", "gpt-5-codex", "12.625"),  # 1.25 + 10 + 0.125, and a write at the input's 1.25
        ("vllm", "in-house-70b", "1.8"),  # 0.4 + 0.6, and cached ones at the input's 0.4
    ],
)
def test_prices_of_the_gateways_file_are_those_that_are_charged(month, provider, name, dollars):
    table = PriceTable.load(shipped_dir(), month.config.pricing, month.config.models)
    model = table.find(provider, name, oct_(1))
    units = (Unit.INPUT, Unit.OUTPUT, Unit.CACHE_READ, Unit.CACHE_WRITE_5M)

    assert (
        price(model, dict.fromkeys(units, 10**6), Terms(), oct_(1), prompt_size=3) == Money.parse(dollars).nano * 1000
    )


def test_on_the_15th_a_rolling_window_still_has_what_leaves_it_in_a_quarter_of_an_hour(month):
    month.until(oct_(15, 9, 45))

    rolling = [row for row in month.shown() if row[0] in ("canary-tokens", "preview-tokens")]

    assert rolling == [
        # Alice, from the 14th at 09:45 on: 0.5 million at 20:00, then 1 million at 08:00. Nothing leaves before 20:00.
        ("canary-tokens", "ring:ring1", "$10.00 / 1,500,000 tok", "$0.00 / 0 tok", "0%", "2026-10-15T20:00:00Z"),
        # Carol's 60 million of the 14th at 10:00 are 40% of 150 million.
        ("preview-tokens", "ring:ring0-preview", "$12.00 / 60,000,000 tok", "$0.00 / 0 tok", "40%",
         "2026-10-15T10:00:00Z"),
    ]  # fmt: skip
    month.until(oct_(15, 10))
    assert month.shown()[-2][1:] == ("ring:ring0-preview", "$0.00 / 0 tok", "$0.00 / 0 tok", "0%", "-")


def test_at_the_end_of_the_15th_each_account_has_the_sums_of_its_window(month):
    month.until(oct_(15, 23, 45))

    assert month.shown() == [
        # Alice 6 + 4 of 25, Bob 10 of 25: it is a Thursday.
        ("dev-daily", "user:alice@acme.com", "$10.00", "$0.00", "40%", "2026-10-16T00:00:00Z"),
        ("dev-daily", "user:bob@acme.com", "$10.00", "$0.00", "40%", "2026-10-16T00:00:00Z"),
        # Bob on 11 weekdays (1, 2, 5 to 9, 12 to 15): 110 of 5,000. Alice on 15 days: 150.
        ("team-monthly", "group:ml", "$110.00", "$0.00", "2%", "2026-11-01T00:00:00Z"),
        ("team-monthly", "group:platform", "$150.00", "$0.00", "3%", "2026-11-01T00:00:00Z"),
        # Alice at 08:00 and 20:00; the first leaves a day after it.
        ("canary-tokens", "ring:ring1", "$10.00 / 1,500,000 tok", "$0.00 / 0 tok", "0%", "2026-10-16T08:00:00Z"),
        # Since Monday the 12th, 00:00 in Berlin, two hours before UTC: Alice 4 × 4, nobody 30; 46 of 400 are 11.5%.
        ("opus-weekly", "org:org", "$46.00", "$0.00", "11%", "2026-10-18T22:00:00Z"),
        # Since 09:00 in New York, 13:00 UTC: Alice's 4 at 20:00, of 60.
        ("core-day", "team:core", "$4.00", "$0.00", "6%", "2026-10-16T13:00:00Z"),
        ("engineer-day", "user:alice@acme.com", "$10.00", "$0.00", "50%", "2026-10-16T00:00:00Z"),
        ("engineer-day", "user:bob@acme.com", "$10.00", "$0.00", "50%", "2026-10-16T00:00:00Z"),
        # Carol on Monday 15 and Wednesday 12: 27 of 35 are 77.1%.
        ("freelancer-week", "user:carol@acme.com", "$27.00", "$0.00", "77%", "2026-10-19T00:00:00Z"),
        ("squad-month", "group:checkout", "$0.00", "$0.00", "0%", "2026-11-01T00:00:00Z"),
        ("squad-month", "group:search", "$150.00", "$0.00", "3%", "2026-11-01T00:00:00Z"),
        ("preview-tokens", "ring:ring0-preview", "$0.00 / 0 tok", "$0.00 / 0 tok", "0%", "-"),
        # Alice 150, Bob 110, nobody 60; Carol on Mondays (5, 12) 30, Wednesdays (7, 14) 24, Fridays (2, 9) 10: 384.
        ("company-month", "org:org", "$384.00", "$0.00", "0%", "2026-11-01T00:00:00Z"),
    ]


def test_on_the_day_of_berlins_clock_change_its_week_ends_an_hour_later_by_utc(month):
    month.until(oct_(25, 22, 30))

    assert month.shown() == [
        ("dev-daily", "user:alice@acme.com", "$10.00", "$0.00", "40%", "2026-10-26T00:00:00Z"),  # a Sunday: no Bob
        # Bob on 17 weekdays: 170, which are 3.4%. Alice on 25 days: 250.
        ("team-monthly", "group:ml", "$170.00", "$0.00", "3%", "2026-11-01T00:00:00Z"),
        ("team-monthly", "group:platform", "$250.00", "$0.00", "5%", "2026-11-01T00:00:00Z"),
        ("canary-tokens", "ring:ring1", "$10.00 / 1,500,000 tok", "$0.00 / 0 tok", "0%", "2026-10-26T08:00:00Z"),
        # From the 18th, 22:00 UTC, 169 hours: Alice on the 19th to the 25th, 7 × 4. Her 4 of the 18th at 20:00 are not.
        ("opus-weekly", "org:org", "$28.00", "$0.00", "7%", "2026-10-25T23:00:00Z"),
        ("core-day", "team:core", "$4.00", "$0.00", "6%", "2026-10-26T13:00:00Z"),
        ("engineer-day", "user:alice@acme.com", "$10.00", "$0.00", "50%", "2026-10-26T00:00:00Z"),
        # Carol 15 + 12 + 5 of 35: 91.4%.
        ("freelancer-week", "user:carol@acme.com", "$32.00", "$0.00", "91%", "2026-10-26T00:00:00Z"),
        ("squad-month", "group:checkout", "$0.00", "$0.00", "0%", "2026-11-01T00:00:00Z"),
        ("squad-month", "group:search", "$250.00", "$0.00", "6%", "2026-11-01T00:00:00Z"),
        ("preview-tokens", "ring:ring0-preview", "$0.00 / 0 tok", "$0.00 / 0 tok", "0%", "-"),
        # 250 + 170 + 60; Carol 3 Mondays 45, 3 Wednesdays 36, 4 Fridays 20: 581 of 50,000 are 1.2%.
        ("company-month", "org:org", "$581.00", "$0.00", "1%", "2026-11-01T00:00:00Z"),
    ]


def test_a_charge_lands_in_the_windows_of_its_hold_and_new_york_has_a_day_of_25_hours(month):
    month.until(oct_(31, 23, 50))  # a Saturday
    call_id, held = month.hold(BOB, Money.parse("18"), 1_000_000, SONNET)
    assert isinstance(held, Held)
    month.clock.now = oct_(32, 0, 5)
    over_midnight = {row[:2]: row[2:] for row in month.shown()}
    month.settle(call_id, "9", 1_000_000)
    month.until(oct_(32, 13, 30))

    # New York's day of the 31st began at 13:00 UTC: Alice's 4 at 20:00, and Bob's 18 are still held.
    assert over_midnight["core-day", "team:core"] == ("$4.00", "$18.00", "6%", "2026-11-01T14:00:00Z")
    # The day and the month of his hold are over: the new ones have nothing of it.
    assert ("dev-daily", "user:bob@acme.com") not in over_midnight
    assert over_midnight["company-month", "org:org"] == ("$0.00", "$0.00", "0%", "2026-12-01T00:00:00Z")
    assert month.shown() == [
        ("dev-daily", "user:alice@acme.com", "$6.00", "$0.00", "24%", "2026-11-02T00:00:00Z"),
        ("team-monthly", "group:ml", "$0.00", "$0.00", "0%", "2026-12-01T00:00:00Z"),
        ("team-monthly", "group:platform", "$6.00", "$0.00", "0%", "2026-12-01T00:00:00Z"),
        # 0.5 million of the 31st at 20:00 and 1 million of the 1st at 08:00.
        ("canary-tokens", "ring:ring1", "$10.00 / 1,500,000 tok", "$0.00 / 0 tok", "0%", "2026-11-01T20:00:00Z"),
        # From the 25th, 23:00 UTC: Alice on the 26th to the 31st, 6 × 4.
        ("opus-weekly", "org:org", "$24.00", "$0.00", "6%", "2026-11-01T23:00:00Z"),
        # 4 + Bob's 9 + Alice's 6 at 08:00 are 19 of 60: 31.7%. The day ends at 09:00 by the new clock.
        ("core-day", "team:core", "$19.00", "$0.00", "31%", "2026-11-01T14:00:00Z"),
        ("engineer-day", "user:alice@acme.com", "$6.00", "$0.00", "30%", "2026-11-02T00:00:00Z"),
        ("freelancer-week", "user:carol@acme.com", "$32.00", "$0.00", "91%", "2026-11-02T00:00:00Z"),
        ("squad-month", "group:checkout", "$0.00", "$0.00", "0%", "2026-12-01T00:00:00Z"),
        ("squad-month", "group:search", "$6.00", "$0.00", "0%", "2026-12-01T00:00:00Z"),
        ("preview-tokens", "ring:ring0-preview", "$0.00 / 0 tok", "$0.00 / 0 tok", "0%", "-"),
        ("company-month", "org:org", "$6.00", "$0.00", "0%", "2026-12-01T00:00:00Z"),
    ]


def test_a_call_that_one_of_its_limits_has_no_room_for_is_on_none_of_its_accounts(month):
    month.until(oct_(20, 21))  # a Tuesday; Alice has spent 10 today
    before = month.shown()

    _, short = month.hold(ALICE, Money.parse("10.01"), 1_000_000, OPUS)

    assert isinstance(short, Short)
    assert [(s.budget.name, s.subject, s.spent.exact()) for s in short.violations] == [
        ("engineer-day", "alice@acme.com", "10")
    ]
    assert month.shown() == before
    assert isinstance(month.hold(ALICE, Money.parse("10"), 1_000_000, OPUS)[1], Held)
