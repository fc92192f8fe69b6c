import pytest

from lockpin_core.budgets import Budget
from lockpin_core.config_budgets import read_budgets
from lockpin_core.config_yaml import read
from lockpin_core.errors import ConfigError
from lockpin_core.money import Money
from lockpin_core.windows import Window

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
        ("  - {name: a, window: day, limit_usd: 1}", "lockpin.yaml:2: budgets[0] has no scope; task or machine"),
        ("  - {name: a, scope: task, limit_usd: 1}", "lockpin.yaml:2: budgets[0] has no window; lifetime or day"),
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


@pytest.mark.parametrize(
    "text",
    [
        "{name: a, scope: user, window: day, limit_usd: 1}",
        "{name: a, scope: group, groups: [x], window: day, limit_usd: 1}",
        "{name: a, scope: org, window: day, limit_usd: 1}",
        "{name: a, scope: task, window: week, limit_usd: 1}",
        "{name: a, scope: task, window: rolling, period: 24h, limit_usd: 1}",
        f"{{{LINE}, users: [x]}}",
        f"{{{LINE}, tags: [x]}}",
        f"{{{LINE}, at: '06:00'}}",
        f"{{{LINE}, anchor: 31}}",
        f"{{{LINE}, period: 24h}}",
    ],
)
def test_budget_of_a_kind_that_is_not_built_is_an_error(text: str):
    message = refusal(f"  - {text}")

    assert message.startswith("lockpin.yaml:2: budgets[0].")
    assert message.endswith("that is not in this version")


def test_midnight_and_empty_filters_may_be_named():
    (budget,) = budgets(f"  - {{{LINE}, at: '00:00', groups: [], users: null}}")

    assert budget.window == Window("day", "UTC")
