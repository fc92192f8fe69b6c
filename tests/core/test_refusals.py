import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import nouns
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.money import Money
from lockpin_core.refusals import STATUS, budget_exceeded, refusal, shown, stamp
from lockpin_core.windows import Window, WindowSpan

NOW = datetime(2026, 10, 21, 13, 30, tzinfo=UTC)
DAY = WindowSpan(datetime(2026, 10, 21, tzinfo=UTC), datetime(2026, 10, 22, tzinfo=UTC))
DEV = nouns.budget("dev-daily", "machine")
TASK = "fix-login-bug"


def day_standing(**amounts: object):
    return nouns.standing(DEV, span=DAY, subject="box", **amounts)


@pytest.mark.parametrize("code", STATUS)
def test_only_a_fault_of_lockpins_own_says_when_to_come_again(code):
    found = refusal(code, "words", {"task": "t"})

    assert (found.code, found.status, found.message) == (code, STATUS[code], "lockpin: words")
    assert found.detail == {"task": "t"}
    assert found.retry_after_s == (5 if found.status == 503 else None)


def test_an_unknown_code_is_a_bug():
    with pytest.raises(KeyError):
        refusal("no_such_code", "words")


def test_a_tasks_own_budget_is_refused_in_the_words_and_figures_of_the_contract():
    short = [nouns.standing(nouns.TASK, limit="0.0001")]

    found = budget_exceeded(TASK, nouns.quote("0.0214"), short, NOW)

    assert found.message == (
        'lockpin: task "fix-login-bug" would exceed its $0.0001 budget: '
        "spent $0.0000, in flight $0.0000, this call needs up to $0.0214"
    )
    assert (found.code, found.status, found.retry_after_s) == ("budget_exceeded", 402, None)
    assert found.detail == {
        "task": TASK,
        "budget_usd": Decimal("0.0001"),
        "spent_usd": Decimal(0),
        "in_flight_usd": Decimal(0),
        "needed_usd": Decimal("0.0214"),
        "remaining_usd": Decimal("0.0001"),
        "transient": False,
    }


def test_h01_a_windowed_budget_names_its_rule_its_subject_and_its_window():
    short = [day_standing(limit="25", spent="24.9")]

    found = budget_exceeded(TASK, nouns.quote("0.31"), short, NOW)

    assert found.message == (
        'lockpin: budget "dev-daily" (machine, day) would pass its $25.00 limit: spent $24.90, '
        "in flight $0.00, this call needs up to $0.31; resets 2026-10-22T00:00:00Z"
    )
    named = {name: found.detail[name] for name in ("limit", "scope", "subject", "period", "limit_usd", "resets_at")}
    assert named == {
        "limit": "dev-daily",
        "scope": "machine",
        "subject": "box",
        "period": "day",
        "limit_usd": Decimal(25),
        "resets_at": "2026-10-22T00:00:00Z",
    }


def test_h01_a_teams_limit_names_the_team():
    rule = replace(DEV, name="platform-day", scope="team")
    short = [nouns.standing(rule, span=DAY, subject="platform", limit="25", spent="24.9")]

    found = budget_exceeded(TASK, nouns.quote("0.31"), short, NOW)

    assert 'budget "platform-day" (team, day) would pass its $25.00 limit: spent $24.90' in found.message
    assert [found.detail[key] for key in ("scope", "subject", "period")] == ["team", "platform", "day"]
    assert (found.detail["limit_usd"], found.detail["needed_usd"]) == (Decimal(25), Decimal("0.31"))


def test_h02_the_hint_is_the_time_until_the_reset_and_goes_in_no_header():
    found = budget_exceeded(TASK, nouns.quote("1"), [day_standing(limit="1", spent="1")], NOW)
    late = budget_exceeded(
        TASK, nouns.quote("1"), [day_standing(limit="1", spent="1")], DAY.end - timedelta(milliseconds=1)
    )

    past = budget_exceeded(TASK, nouns.quote("1"), [day_standing(limit="1", spent="1")], DAY.end)

    assert found.detail["retry_after_s"] == 10.5 * 3600
    assert found.retry_after_s is None
    assert [one.detail["retry_after_s"] for one in (late, past)] == [1, 1]


def rolling_standing(leaves: datetime | None, **amounts: object):
    """Stand for a budget over the last 24 hours, from which spend next leaves at this instant."""
    rule = replace(DEV, window=Window("rolling", period_ms=86_400_000))
    return nouns.standing(rule, span=WindowSpan(None, leaves), subject="box", **amounts)


def test_a_rolling_limit_is_named_by_its_length_and_says_when_spend_leaves_it():
    leaves = datetime(2026, 10, 21, 14, 0, tzinfo=UTC)

    parts = ((leaves, Money.parse("0.1"), 0), (leaves + timedelta(minutes=30), Money.parse("24.8"), 0))
    standing = rolling_standing(leaves, limit="25", spent="24.9")._replace(leaving=parts)

    found = budget_exceeded(TASK, nouns.quote("0.31"), [standing], NOW)

    assert found.message == (
        'lockpin: budget "dev-daily" (machine, rolling 24h) would pass its $25.00 limit: spent $24.90, '
        "in flight $0.00, this call needs up to $0.31; resets 2026-10-21T14:00:00Z"
    )
    assert (found.detail["period"], found.detail["resets_at"]) == ("24h", "2026-10-21T14:00:00Z")
    assert found.detail["retry_after_s"] == 3600  # at first too little leaves it


def test_a_rolling_limit_that_nothing_leaves_has_no_reset():
    found = budget_exceeded(TASK, nouns.quote("0.31"), [rolling_standing(None, limit="0.1")], NOW)

    assert found.message.endswith("this call needs up to $0.3100")
    assert (found.detail["period"], found.detail["transient"]) == ("24h", False)
    assert not {"resets_at", "retry_after_s"} & found.detail.keys()


def test_a_tasks_own_rolling_budget_names_its_period_also_before_its_first_spend():
    own = replace(nouns.TASK, window=Window("rolling", period_ms=5_400_000))

    found = budget_exceeded(TASK, nouns.quote(), [nouns.standing(own, limit="0.01")], NOW)

    assert found.message.startswith('lockpin: task "fix-login-bug" would exceed its $0.0100 budget: ')
    assert (found.detail["limit"], found.detail["scope"], found.detail["period"]) == ("task", "task", "90m")


@pytest.mark.parametrize(
    ("kind", "end"), [("week", datetime(2026, 10, 26, tzinfo=UTC)), ("month", datetime(2026, 11, 1, tzinfo=UTC))]
)
def test_longer_windows_are_named_as_they_are(kind, end):
    short = [nouns.standing(nouns.budget("long", window=kind), span=WindowSpan(DAY.start, end), limit="1", spent="1")]

    found = budget_exceeded(TASK, nouns.quote("1"), short, NOW)

    assert f"(machine, {kind})" in found.message
    assert found.message.endswith(f"; resets {stamp(end)}")
    assert (found.detail["period"], found.detail["resets_at"]) == (kind, stamp(end))


def test_waiting_helps_only_when_every_limit_that_was_spent_starts_anew():
    day = day_standing(limit="1", spent="1")
    week = nouns.standing(
        nouns.budget("w", window="week"),
        span=WindowSpan(DAY.start, DAY.end + timedelta(days=4)),
        limit="2",
        spent="1.8",
    )
    lifetime = nouns.standing(nouns.budget("ever", window="lifetime"), limit="9", spent="8.7")
    held = nouns.standing(nouns.budget("all", window="lifetime"), limit="9", held="8.7")

    def hint(*short) -> object:
        return budget_exceeded(TASK, nouns.quote("0.5"), short, NOW).detail.get("retry_after_s")

    until_midnight = 10.5 * 3600
    assert hint(day, held) == until_midnight
    assert hint(day, week, held) == until_midnight + 4 * 86400
    assert hint(day, lifetime) is None


def test_waiting_does_not_help_a_call_that_is_larger_than_the_limit():
    dollars = day_standing(limit="0.3", spent="0.1")
    tokens = day_standing(limit_tokens=1499, spent_tokens=1)

    for short in (dollars, tokens):
        found = budget_exceeded(TASK, nouns.quote("0.31"), [short], NOW)
        assert "retry_after_s" not in found.detail
        assert found.detail["resets_at"] == "2026-10-22T00:00:00Z"
        assert found.message.endswith(
            '; resets 2026-10-22T00:00:00Z; that is above the whole limit of "dev-daily", so no reset makes room'
        )


def test_each_limit_that_is_below_a_call_is_named():
    spent = {"a": ("0.3", "0"), "b": ("0.5", "0.4"), "c": ("0.3", "0.1")}
    short = [
        day_standing(limit=limit, spent=usd)._replace(budget=replace(DEV, name=name))
        for name, (limit, usd) in spent.items()
    ]

    found = budget_exceeded(TASK, nouns.quote("0.31"), short, NOW)

    assert found.message.endswith('; that is above the whole limits of "a", "c", so no reset makes room')


def test_waiting_does_not_help_a_call_that_fits_only_a_limit_that_was_raised_for_this_window():
    limited = replace(DEV, limit=Money.parse("0.3"))
    short = [nouns.standing(limited, span=DAY, limit="0.5", spent="0.4")]

    raised, usual = (budget_exceeded(TASK, nouns.quote(usd), short, NOW) for usd in ("0.31", "0.3"))

    assert "retry_after_s" not in raised.detail
    assert raised.message.endswith("so no reset makes room")
    assert usual.detail["retry_after_s"] == 10.5 * 3600


def test_text_of_several_spent_limits_says_when_the_last_of_them_starts_anew():
    day, held = day_standing(limit="1", spent="1"), day_standing(limit="9", held="8.7")
    span = WindowSpan(DAY.start, DAY.end + timedelta(days=4))
    week = nouns.standing(nouns.budget("long", window="week"), span=span, limit="2", spent="2")
    late_held = nouns.standing(nouns.budget("held", window="week"), span=span, limit="9", held="8.7")
    ever = nouns.standing(nouns.budget("ever", window="lifetime"), limit="9", spent="9")

    def end(*short) -> str:
        return budget_exceeded(TASK, nouns.quote("0.5"), short, NOW).message.partition("; resets ")[2]

    assert (
        end(day, week) == "2026-10-22T00:00:00Z (and 1 more limit: long); the last of them resets 2026-10-26T00:00:00Z"
    )
    assert end(week, day) == "2026-10-26T00:00:00Z (and 1 more limit: dev-daily)"
    assert end(day, late_held) == "2026-10-22T00:00:00Z (and 1 more limit: held)"
    assert end(day, ever) == "2026-10-22T00:00:00Z (and 1 more limit: ever); not all of them reset"
    assert "last of them" not in end(held, late_held)


@pytest.mark.parametrize("scope", ["group", "user", "team", "ring", "project", "tag", "task"])
def test_text_says_whose_account_it_is_where_a_budget_has_several(scope):
    rule = replace(DEV, scope=scope, groups=("search", "checkout"))
    short = [nouns.standing(rule, span=DAY, subject="search", limit="25", spent="24.9")]

    message = budget_exceeded(TASK, nouns.quote("0.31"), short, NOW).message

    assert message.startswith(f'lockpin: budget "dev-daily" ({scope}, day) would pass its $25.00 limit: spent $24.90')
    assert message.endswith(f'; resets 2026-10-22T00:00:00Z; it is the account of {scope} "search"')


def test_text_says_of_a_keys_own_limit_that_it_is_that():
    own = replace(DEV, name="k-7f3c9x2m1q", scope="key")
    each = replace(own, name="each-key")

    ends = [
        budget_exceeded(
            TASK, nouns.quote("0.31"), [nouns.standing(rule, subject="k-7f3c9x2m1q", limit="0.4", spent="0.3")], NOW
        ).message.rpartition("; ")[2]
        for rule in (own, each)
    ]

    assert ends == ["it is this key's own limit", 'it is the account of key "k-7f3c9x2m1q"']


def test_text_names_every_limit_that_is_in_the_way():
    own = nouns.standing(nouns.TASK, limit="2", spent="1.9")
    others = [nouns.standing(nouns.budget(name), limit="1", spent="1") for name in ("opus", "daily")]
    many = [nouns.standing(nouns.budget(f"b{n}"), limit="1", spent="1") for n in range(7)]

    two, three, lots = (
        budget_exceeded(TASK, nouns.quote("0.5"), [own, *more], NOW).message for more in (others[:1], others, many)
    )

    one = 'lockpin: task "fix-login-bug" would exceed its $2.00 budget: spent $1.90, in flight $0.00, this call needs up to $0.50'
    assert two == f"{one} (and 1 more limit: opus)"
    assert three == f"{one} (and 2 more limits: opus, daily)"
    assert lots == f"{one} (and 7 more limits: b0, b1, b2, b3, b4, …)"


def test_text_of_a_transient_refusal_says_what_would_make_room():
    held = nouns.standing(nouns.TASK, limit="2", held="1.9")
    spent = nouns.standing(nouns.budget("opus"), limit="1", spent="1")

    assert budget_exceeded(TASK, nouns.quote("0.5"), [held], NOW).message.endswith(
        "this call needs up to $0.50; it may fit when calls in flight end"
    )
    assert "may fit" not in budget_exceeded(TASK, nouns.quote("0.5"), [spent, held], NOW).message


def test_c06_what_only_holds_are_in_the_way_of_is_transient():
    found = budget_exceeded(TASK, nouns.quote("0.5"), [day_standing(limit="25", held="24.9")], NOW)

    assert found.detail["transient"] is True
    assert found.detail["retry_after_s"] == 5
    assert (found.detail["spent_usd"], found.detail["in_flight_usd"]) == (Decimal(0), Decimal("24.9"))


def test_a_refusal_is_final_where_one_of_its_limits_is():
    final, transient = day_standing(limit="1", spent="1"), nouns.standing(nouns.TASK, limit="2", held="1.9")

    found = budget_exceeded(TASK, nouns.quote("0.5"), [final, transient], NOW)

    assert found.detail["transient"] is False
    assert [one["budget_usd"] for one in found.detail["violations"]] == [Decimal(1), Decimal(2)]
    assert "limit" in found.detail["violations"][0]
    assert "limit" not in found.detail["violations"][1]
    whose = [(one["scope"], one["subject"]) for one in found.detail["violations"]]
    assert whose == [("machine", "box"), ("task", "fix-login-bug")]


def test_one_violation_is_not_listed_twice():
    assert "violations" not in budget_exceeded(TASK, nouns.quote(), [day_standing(limit="0.01")], NOW).detail


def test_what_would_fit_is_told_where_something_would():
    short = [day_standing(limit="0.01")]

    found = budget_exceeded(TASK, nouns.quote(), short, NOW, {"max_output_tokens": 9})
    assert found.detail["fits"] == {"max_output_tokens": 9}
    assert found.message.endswith("; with an output limit of up to 9 tokens it fits now")
    assert "fits" not in budget_exceeded(TASK, nouns.quote(), short, NOW, {}).detail


def test_a_token_limit_is_named_in_tokens():
    short = [day_standing(limit_tokens=1000, spent_tokens=900, held_tokens=50)]

    found = budget_exceeded(TASK, nouns.quote("0.1"), short, NOW)

    assert found.message == (
        'lockpin: budget "dev-daily" (machine, day) would pass its 1,000 token limit: spent 900, '
        "in flight 50, this call needs up to 1,500 tokens; resets 2026-10-22T00:00:00Z; "
        'that is above the whole limit of "dev-daily", so no reset makes room'
    )
    figures = {name: value for name, value in found.detail.items() if name.endswith("_tokens")}
    assert figures == {
        "budget_tokens": 1000,
        "spent_tokens": 900,
        "in_flight_tokens": 50,
        "needed_tokens": 1500,
        "remaining_tokens": 50,
        "limit_tokens": 1000,
    }
    assert "budget_usd" not in found.detail


def test_with_both_limits_the_words_are_of_the_one_that_is_short():
    tokens = day_standing(limit="9", limit_tokens=1000)
    dollars = day_standing(limit="0.01", limit_tokens=9000)

    assert "1,000 token limit" in budget_exceeded(TASK, nouns.quote("0.1"), [tokens], NOW).message
    found = budget_exceeded(TASK, nouns.quote("0.1"), [dollars], NOW)
    assert "$0.0100 limit" in found.message
    assert {"budget_usd", "budget_tokens"} <= found.detail.keys()


@pytest.mark.parametrize(
    ("spent", "spent_tokens", "words"),
    [("0.5", 0, "$1.00 limit"), ("0.5", 900, "1,000 token limit"), ("1", 900, "$1.00 limit"), ("1", 0, "$1.00 limit")],
)
def test_with_both_in_the_way_the_words_are_of_the_one_that_stays_so(spent, spent_tokens, words):
    """In dollars, where both do."""
    both = {"held": "0.45", "held_tokens": 900}
    short = [day_standing(limit="1", spent=spent, limit_tokens=1000, spent_tokens=spent_tokens, **both)]

    assert words in budget_exceeded(TASK, nouns.quote("0.1", prompt=150, output=50), short, NOW).message


def test_a_tasks_own_token_limit_is_its_budget():
    found = budget_exceeded(TASK, nouns.quote(), [nouns.standing(nouns.TASK, limit_tokens=10)], NOW)

    assert 'task "fix-login-bug" would exceed its 10 token budget' in found.message


def test_a_tasks_own_budget_of_a_day_says_when_it_resets():
    daily = replace(nouns.TASK, window=DEV.window)

    found = budget_exceeded(TASK, nouns.quote(), [nouns.standing(daily, limit="0.01", span=DAY)], NOW)

    assert "this call needs up to $0.0214; resets 2026-10-22T00:00:00Z" in found.message
    assert (found.detail["period"], found.detail["scope"]) == ("day", "task")


def test_a_lifetime_budget_with_a_name_has_no_reset():
    rule = nouns.budget("all", "machine", "lifetime")

    found = budget_exceeded(TASK, nouns.quote(), [nouns.standing(rule, limit="0.01")], NOW)

    assert "resets" not in found.message
    assert "resets_at" not in found.detail
    assert (found.detail["limit"], found.detail["period"]) == ("all", "lifetime")
    assert "retry_after_s" not in found.detail


def test_what_remains_is_never_below_zero():
    found = budget_exceeded(
        TASK, nouns.quote(), [day_standing(limit="1", spent="3", limit_tokens=5, spent_tokens=9)], NOW
    )

    assert (found.detail["remaining_usd"], found.detail["remaining_tokens"]) == (Decimal(0), 0)


@pytest.mark.parametrize(
    ("amounts", "texts"),
    [
        (["0.0001", "0", "0", "0.0214"], ["0.0001", "0.0000", "0.0000", "0.0214"]),
        (["25", "24.9", "0", "0.31"], ["25.00", "24.90", "0.00", "0.31"]),
        (["25.009", "24.901", "0", "0.301"], ["25.00", "24.91", "0.00", "0.31"]),  # the limit down, the rest up
        (["1", "0.999", "0", "0.5"], ["1.000", "0.999", "0.000", "0.500"]),  # else both would be 1.00
        (["0.99", "0.98999", "0", "1"], ["0.99000", "0.98999", "0.00000", "1.00000"]),
        (["0.00001", "0", "0", "2"], ["0.00001", "0.00000", "0.00000", "2.00000"]),  # else the limit would be 0
        (["1", "1", "0.000000001", "1"], ["1.00", "1.00", "0.01", "1.00"]),
        (["5", "5.000000001", "0", "0"], ["5.00", "5.01", "0.00", "0.00"]),
        (["0", "0", "0", "0"], ["0.0000"] * 4),
    ],
)
def test_amounts_are_shown_with_as_many_places_as_they_need(amounts, texts):
    assert shown([Money.parse(amount) for amount in amounts]) == texts


@given(st.lists(st.integers(0, 10**13).map(Money), min_size=4, max_size=4))
def test_shown_amounts_differ_where_the_amounts_do_and_never_flatter(amounts):
    texts = [Decimal(text) for text in shown(amounts)]

    assert len(set(texts)) == len(set(amounts))
    assert texts[0] <= amounts[0].decimal()
    assert all(text >= amount.decimal() for text, amount in zip(texts[1:], amounts[1:], strict=True))
    assert all(bool(text) == bool(amount) for text, amount in zip(texts, amounts, strict=True))


RETRIED = re.compile(
    r"rate.?limit|quota|overload|too many|try again|retry|timeout|timed out|unavailable|429|capacity", re.I
)


def test_no_word_of_a_refusal_is_one_that_clients_retry_on():
    shorts = [
        [nouns.standing(nouns.TASK, limit="0.01")],
        [day_standing(limit="0.01", held="0.01")],
        [day_standing(limit_tokens=5)],
        [day_standing(limit="25", held="25")],
        [nouns.standing(nouns.TASK, limit="25", held="25"), day_standing(limit="25", held="25")],
        [rolling_standing(DAY.end, limit="0.01")],
        [day_standing(limit="1", spent="1"), rolling_standing(DAY.end + timedelta(days=1), limit="1", spent="1")],
        [
            nouns.standing(replace(DEV, scope="key"), subject="k-1", limit="1", spent="1"),
            nouns.standing(nouns.TASK, limit="0"),
        ],
    ]

    for short in shorts:
        found = budget_exceeded(TASK, nouns.quote(), short, NOW, {"max_output_tokens": 9})
        assert not RETRIED.search(found.message)


def test_an_instant_is_stamped_to_the_second():
    assert stamp(datetime(2026, 10, 21, 1, 2, 3, 999_999, tzinfo=UTC)) == "2026-10-21T01:02:03Z"


def test_what_is_kept_for_last_calls_counts_as_in_flight_and_never_comes_free():
    short = [nouns.standing(nouns.TASK, limit="1", spent="0.5")._replace(reserved=Money.parse("0.2"))]

    found = budget_exceeded(TASK, nouns.quote("0.4"), short, NOW)

    assert found.message == (
        'lockpin: task "fix-login-bug" would exceed its $1.00 budget: spent $0.50, in flight $0.20, '
        "this call needs up to $0.40; $0.2000 of what is in flight is kept free for small last calls of the task"
    )
    wanted = {"in_flight_usd": Decimal("0.2"), "remaining_usd": Decimal("0.3"), "transient": False}
    assert {name: found.detail[name] for name in wanted} == wanted
    assert "retry_after_s" not in found.detail
