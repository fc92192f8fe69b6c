from pathlib import Path

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.config import parse
from lockpin_core.config_budgets import budget_places, read_budget, read_budgets
from lockpin_core.config_yaml import read
from lockpin_core.errors import ConfigError
from lockpin_core.money import Money
from lockpin_core.windows import KINDS, Window

LINE = "name: a, scope: machine, window: day, limit_usd: 1"


def budgets(text: str) -> tuple[Budget, ...]:
    return read_budgets(read(f"budgets:\n{text}", "lockpin.yaml").entries["budgets"].items, "UTC")


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        budgets(text)
    return str(caught.value)


def test_every_key_is_read():
    (budget,) = budgets(
        """
  - name: opus-daily
    scope: task
    window: day
    limit_usd: "12.50"
    limit_tokens: 2000000
    action: enforce
    alert_at: [0.9, 0.50, 0.5]
    models: ["claude-opus-*"]
    providers: [anthropic]
    timezone: America/New_York
"""
    )

    assert budget == Budget(
        name="opus-daily",
        scope="task",
        window=Window("day", "America/New_York"),
        limit=Money(12_500_000_000),
        limit_tokens=2_000_000,
        enforce=True,
        alert_at=("0.5", "0.9"),
        models=("claude-opus-*",),
        providers=("anthropic",),
    )


def test_budget_warns_at_four_fifths_unless_it_says_more():
    (budget,) = budgets(f"  - {{{LINE}}}")

    assert (budget.enforce, budget.alert_at) == (False, ("0.8",))


def test_gateway_spellings_are_the_same_keys():
    (budget,) = budgets("  - {name: a, scope: task, window: lifetime, limitUSD: 20, limitTokens: 5, alertAt: [0.5]}")

    assert (budget.limit, budget.limit_tokens, budget.alert_at) == (Money.parse("20"), 5, ("0.5",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  - {name: a, scope: task, window: day}", "lockpin.yaml:2: budgets[0] has no limit; limit_usd, limit_tokens"),
        ("  - {scope: task, window: day, limit_usd: 1}", "lockpin.yaml:2: budgets[0] has no name"),
        ("  - {name: a, window: day, limit_usd: 1}", "lockpin.yaml:2: budgets[0] has no scope; task, machine,"),
        ("  - {name: a, scope: task, limit_usd: 1}", "lockpin.yaml:2: budgets[0] has no window; lifetime, day, week,"),
        (f"  - {{{LINE}}}\n  - {{{LINE}}}", 'lockpin.yaml:3: budgets[1].name is "a", the name of a budget on line 2'),
        (f"  - {{{LINE.replace('a,', 'daily,', 1)}}}", 'lockpin.yaml:2: budgets[0].name is "daily", the name of the'),
        (f"  - {{{LINE.replace('a,', 'task,', 1)}}}", 'lockpin.yaml:2: budgets[0].name is "task", the name of every'),
        (
            f"  -\n    {{{LINE.replace(': 1', ': -5')}}}",
            'lockpin.yaml:3: budgets[0].limit_usd is "-5"; a positive amount',
        ),
        (
            f"  - {{{LINE}, limit_tokens: 0}}",
            'lockpin.yaml:2: budgets[0].limit_tokens is "0"; a whole number of 1 or more',
        ),
        (f"  - {{{LINE}, limit_tokens: 1e6}}", 'lockpin.yaml:2: budgets[0].limit_tokens is "1e6"; a whole number'),
        (f"  - {{{LINE}, limit_tokens: 9999999999999999999}}", "lockpin.yaml:2: budgets[0].limit_tokens is"),
        (f"  - {{{LINE}, limitUSD: 2}}", 'lockpin.yaml:2: budgets[0].limitUSD is "2", and line 2 says limit_usd too'),
        (f"  - {{{LINE}, action: block}}", 'lockpin.yaml:2: budgets[0].action is "block"; warn or enforce is allowed'),
        (f"  - {{{LINE}, models: gpt-*}}", 'lockpin.yaml:2: budgets[0].models is "gpt-*"; a list, such as'),
        (
            f"  - {{{LINE}, moduls: []}}",
            "lockpin.yaml:2: budgets[0].moduls is a list, but there is no such key; did you",
        ),
        ("  - five dollars", 'lockpin.yaml:2: budgets[0] is "five dollars"; a mapping of name, scope'),
        (
            "  - {name: a, scope: galaxy, window: day, limit_usd: 1}",
            'lockpin.yaml:2: budgets[0].scope is "galaxy"; task, ',
        ),
        ("  - {name: a\u0007, scope: task, window: day, limit_usd: 1}", "lockpin.yaml:2: not YAML"),
        ('  - {name: "a\\u001f", scope: task, window: day, limit_usd: 1}', "lockpin.yaml:2: budgets[0].name is"),
    ],
)
def test_wrong_budget_is_an_error_at_its_line(text: str, message: str):
    assert refusal(text).startswith(message)


@pytest.mark.parametrize("scope", ["task", "machine", "key", "user", "team", "group", "ring", "project", "tag", "org"])
def test_every_scope_is_read(scope: str):
    (budget,) = budgets(f"  - {{name: a, scope: {scope}, groups: [ml], window: day, limit_usd: 1}}")

    assert (budget.scope, budget.groups) == (scope, ("ml",))


def test_every_filter_is_read_in_the_one_form_of_its_names():
    lists = "users: [Ann@Corp.com, 'ann@corp.com'], groups: [ml, ml, 'K8s'], rings: [ring1], projects: [a b]"
    (budget,) = budgets(f"  - {{{LINE}, {lists}, tags: ['env=ci', 'team = ä = b']}}")

    assert budget.users == ("ann@corp.com",)
    assert budget.groups == ("ml", "K8s")
    assert (budget.rings, budget.projects, budget.tags) == (("ring1",), ("a b",), ("env=ci", "team=ä = b"))


def test_tag_of_a_filter_is_the_same_however_its_letters_are_made():
    (budget,) = budgets(f"  - {{{LINE}, tags: ['e\u0301quipe=cafe\u0301']}}")

    assert budget.tags == ("\u00e9quipe=caf\u00e9",)
    assert (budget.models, budget.keys) == ((), ())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("users: ['*@corp.com']", 'users[0] is "*@corp.com"; whole names are allowed, and no patterns'),
        ("users: [ann, '  ']", 'users[1] is "  "; a user\'s id of 1 to 256 printable characters is allowed'),
        ("groups: [a/b]", 'groups[0] is "a/b"; a name of 1 to 128 printable characters without a slash'),
        ("rings: ring1", 'rings is "ring1"; a list, such as [a, b], is allowed'),
        ("tags: [env]", 'tags[0] is "env"; a tag and its value, such as env=ci, are allowed'),
        ("tags: ['env=a,b=c']", 'tags[0] is "env=a,b=c"; a tag and its value, such as env=ci, are allowed'),
        (
            "keys: [k1]",
            "keys is a list, but there is no filter by key; scope: key gives each key an account of one size",
        ),
        ("teams: [web]", "teams is a list, but there is no filter by team; scope: team gives each team an account"),
    ],
)
def test_a_wrong_filter_is_one_line(keys: str, message: str):
    assert refusal(f"  - {{{LINE}, {keys}}}").startswith(f"lockpin.yaml:2: budgets[0].{message}")


@pytest.mark.parametrize("groups", ["", "groups: [], ", "groups: null, "])
def test_a_scope_of_groups_names_them(groups: str):
    said = refusal(f"  - {{name: a, scope: group, {groups}window: day, limit_usd: 1}}")

    words = "has scope: group and no groups; a list of groups, each with an account, is allowed"
    assert said == f"lockpin.yaml:2: budgets[0] {words}"


def test_midnight_and_empty_filters_may_be_named():
    (budget,) = budgets(f"  - {{{LINE}, at: '00:00', groups: [], users: null}}")

    assert budget.window == Window("day", "UTC")


def windowed(keys: str) -> str:
    return f"  - {{name: a, scope: machine, limit_usd: 1, {keys}}}"


@pytest.mark.parametrize(
    ("keys", "window"),
    [
        ("window: lifetime", Window("lifetime", "UTC")),
        ("window: day, at: '09:30'", Window("day", "UTC", 570)),
        ("window: day, at: 09:30", Window("day", "UTC", 570)),  # what YAML 1.1 takes for a number
        ("window: day, at: 23:59, timezone: Asia/Tokyo", Window("day", "Asia/Tokyo", 1439)),
        ("window: week", Window("week", "UTC")),
        ("window: week, at: '06:00', timezone: Europe/Berlin", Window("week", "Europe/Berlin", 360)),
        ("window: month", Window("month", "UTC")),
        ("window: month, anchor: 31, at: '00:00'", Window("month", "UTC", 0, 31)),
        ("window: rolling, period: 24h", Window("rolling", "UTC", period_ms=86_400_000)),
        ("window: rolling, period: 1h", Window("rolling", "UTC", period_ms=3_600_000)),
        ("window: rolling, period: 90m", Window("rolling", "UTC", period_ms=5_400_000)),
        ("window: rolling, period: 90d", Window("rolling", "UTC", period_ms=7_776_000_000)),
        ("window: rolling, period: 2160h", Window("rolling", "UTC", period_ms=7_776_000_000)),
        ("window: day, at: null, anchor: null, period: null", Window("day", "UTC")),
    ],
)
def test_each_window_is_read_with_its_own_keys(keys: str, window: Window):
    (budget,) = budgets(windowed(keys))

    assert budget.window == window


WALL = 'a time of day from "00:00" to "23:59", in quotes, is allowed'
PERIOD = "a duration from 1h to 2160h, such as 24h, is allowed"
PARTED = "at is allowed beside day, week or month"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        *((f"window: day, at: {wall}", f'.at is "{wall}"; {WALL}') for wall in ("24:00", "930", "9:30", "09:60")),
        ("window: day, at: 06:00:00", f'.at is "06:00:00"; {WALL}'),
        ("window: day, at: ''", f'.at is ""; {WALL}'),
        ("window: lifetime, at: '06:00'", f'.at is "06:00" beside window: lifetime; {PARTED}'),
        ("window: rolling, period: 24h, at: '00:00'", f'.at is "00:00" beside window: rolling; {PARTED}'),
        *(
            (f"window: {kind}, period: 24h, anchor: 5", f'.anchor is "5" beside window: {kind}; anchor is allowed ')
            for kind in KINDS
            if kind in ("lifetime", "day", "week")
        ),
        ("window: rolling, period: 24h, anchor: 5", '.anchor is "5" beside window: rolling; anchor is allowed beside '),
        *((f"window: month, anchor: {day}", f'.anchor is "{day}"; a whole number from 1 to 31') for day in (0, 32, -1)),
        ("window: month, anchor: last", '.anchor is "last"; a whole number from 1 to 31 is allowed'),
        *(
            (
                f"window: {kind}, period: 24h",
                f'.period is "24h" beside window: {kind}; period is allowed beside rolling',
            )
            for kind in KINDS
            if kind != "rolling"
        ),
        ("window: rolling", f" has window: rolling and no period; {PERIOD.replace('duration', 'period')}"),
        ("window: rolling, period: null", " has window: rolling and no period; "),
        *(
            (f"window: rolling, period: {period}", f'.period is "{period}"; {PERIOD}')
            for period in ("59m", "3599999ms", "2161h", "91d", "0h", "24", "day", "1.5h", "-24h", "1w", "nan")
        ),
        ("window: fortnight", '.window is "fortnight"; lifetime, day, week, month or rolling is allowed'),
        ("window: rolling 24h", '.window is "rolling 24h"; lifetime, day, week, month or rolling is allowed'),
    ],
)
def test_misuse_of_a_window_is_one_clear_line(keys: str, message: str):
    said = refusal(windowed(keys))

    assert said.startswith(f"lockpin.yaml:2: budgets[0]{message}")
    assert "\n" not in said


def test_places_are_those_where_each_budget_is_made():
    text = (
        "timezone: UTC\ndailyUSD: 7\ntask:\n  default: x\n  budgetUSD: 3\nbudgets:\n"
        "  - scope: task\n    name: a\n  - {name: b}\n  - {scope: task}\n"
    )

    found = budget_places(read(text, "lockpin.yaml"))
    assert {name: (where.line, where.path) for name, where in found.items()} == {
        "daily": (2, "dailyUSD"), "task": (5, "task.budgetUSD"), "a": (7, "budgets[0]"), "b": (9, "budgets[1]")
    }  # fmt: skip


def test_a_file_without_budgets_has_no_places():
    assert budget_places(read("task: null\nbudgets: null\n", "lockpin.yaml")) == {}


def test_one_budget_is_read_as_one_of_the_list():
    node = read("{name: daily, scope: machine, window: week, limit_usd: 5}", "x")

    assert read_budget(node, "UTC") == Budget("daily", "machine", Window("week"), limit=Money.parse("5"))


@pytest.mark.parametrize("share", ["1e-400", "1e-10", "0.1e-9"])
def test_share_of_more_than_nine_decimals_is_refused(share: str):
    said = refusal(f"  - {{{LINE}, alert_at: [{share}]}}")

    allowed = "a share above 0 and up to 1, such as 0.8, is allowed, with at most nine decimals"
    assert said.endswith(f'.alert_at[0] is "{share}"; {allowed}')


@pytest.mark.parametrize("name", ["localtime", "posixrules", "Factory", "posix/UTC", "right/Europe/Berlin"])
def test_file_among_the_zones_that_is_no_zone_is_refused(name: str):
    said = refusal(windowed(f"window: day, timezone: {name}"))

    assert said.endswith(f'.timezone is "{name}"; a time zone such as UTC or Europe/Berlin is allowed')


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("limt_usd", "limit_usd"),
        ("limit", "limit_usd"),
        ("windw", "window"),
        ("alert", "alert_at"),
        ("zone", "timezone"),
    ],
)
def test_key_that_is_misspelt_or_cut_short_is_named(key: str, meant: str):
    assert refusal(f"  - {{{LINE}, {key}: 1}}").endswith(f"there is no such key; did you mean {meant}?")


def test_a_key_like_no_other_has_all_named_that_are_allowed():
    said = refusal(f"  - {{{LINE}, qqq: 1}}")

    limits = "name, scope, window, limit_usd, limit_tokens, action, alert_at, models, providers"
    assert said.endswith(f"allowed are {limits}, users, groups, rings, projects, tags, timezone, at, anchor, period")


def test_dayly_is_daily_usd():
    with pytest.raises(ConfigError, match=r"there is no such key; did you mean daily_usd\?$"):
        parse("dayly: 5\n", Path("lockpin.yaml"))
