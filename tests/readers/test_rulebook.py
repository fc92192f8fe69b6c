import pytest

from lockpin_core.readers.rulebook import RuleReader, rhythm, written
from lockpin_core.windows import Window
from tests.ledger.desk import DAY, OWN, WAIT_S, SqliteDesk, call, machine, rules

DAILY, WEEKLY = machine("25"), machine("99", name="weekly", window=Window("week"))


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def book(desk, *configured):
    with RuleReader(desk.path) as reader:
        return reader.rulebook(rules(*configured))


def run(desk, *configured):
    desk.ledger.hold(call("c1", "0.1"), rules(*configured)).result(WAIT_S)


def test_until_a_proxy_has_run_the_configuration_counts_beside_what_commands_made(desk):
    desk.admin.budget_set(WEEKLY, who="ann")

    found = book(desk, DAILY)

    assert found.rules == rules(DAILY, WEEKLY)
    assert found.by_command() == ["weekly"]
    assert found.names() == ["daily", "weekly", "task"]
    assert found.notes == {}


def test_what_is_in_force_is_what_the_ledger_has(desk):
    run(desk, DAILY)
    desk.admin.budget_set(WEEKLY, who="ann")

    found = book(desk, machine("7"))

    assert found.rules == rules(DAILY, WEEKLY)
    assert found.sources == {"daily": "config", "weekly": "command", "task": "config"}
    assert found.notes == {
        "daily": 'budget "daily" is taken as a proxy last applied it: limit_usd is $25.00, in the configuration it is $7.00'
    }


def test_what_was_removed_is_not_in_force(desk):
    run(desk, DAILY)
    desk.admin.budget_set(WEEKLY, who="ann")
    desk.admin.budget_rm("weekly", who="ann")

    assert book(desk, DAILY).find("weekly") is None


def test_new_and_gone_ones_of_the_configuration_are_said(desk):
    run(desk, DAILY)

    found = book(desk, machine("5", name="new"))

    assert found.names() == ["daily", "task"]
    assert found.notes == {
        "new": 'budget "new" of the configuration is not in force yet: a proxy applies it as it starts',
        "daily": 'budget "daily" is in force as a proxy last applied it, and not in the configuration any more',
    }


def test_one_that_both_have_is_the_commands_until_a_proxy_starts(desk):
    run(desk, DAILY)
    desk.admin.budget_set(WEEKLY, who="ann")

    found = book(desk, DAILY, machine("5", name="weekly"))

    assert found.find("weekly") == WEEKLY
    assert found.notes["weekly"].endswith("was made by command too; no proxy starts with the configuration's beside it")


def test_a_definition_is_written_in_the_configurations_words():
    window = Window("month", "Europe/Berlin", at=390, anchor=31)

    assert written(machine(None, window=window, enforce=False, limit_tokens=5000, models=("a*", "b"))) == [
        ("limit_usd", "none"), ("limit_tokens", "5,000"), ("action", "warn"), ("scope", "machine"),
        ("window", "month"), ("timezone", "Europe/Berlin"), ("at", "06:30"), ("anchor", "31"),
        ("alert_at", "[0.8]"), ("models", "[a*, b]"), ("providers", "[]"),
        *((name, "[]") for name in ("users", "groups", "rings", "projects", "tags")),
    ]  # fmt: skip
    assert dict(written(OWN))["window"] == "lifetime"
    assert dict(written(machine("0.5", window=DAY)))["limit_usd"] == "$0.50"


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (Window("day"), "day"),
        (Window("day", "Asia/Kolkata", 570), "day at 09:30 Asia/Kolkata"),
        (Window("week", "Europe/Berlin"), "week at 00:00 Europe/Berlin"),
        (Window("day", "UTC", 60), "day at 01:00 UTC"),
        (Window("month", "UTC", 0, 15), "month from day 15"),
        (Window("month", "UTC", 90, 31), "month from day 31 at 01:30 UTC"),
        (Window("lifetime", "Asia/Kolkata"), "lifetime"),
        (Window("rolling", "Asia/Kolkata", period_ms=86_400_000), "rolling 24h"),
    ],
)
def test_window_is_written_with_what_is_not_usual_of_it(window, text):
    assert rhythm(window) == text
