"""What the state machine asks a ledger for: holds, limits and windows as they are drawn, and written for a ledger."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from lockpin_core.budgets import Budget
from lockpin_core.call import Quote
from lockpin_core.money import Money
from lockpin_core.windows import Window
from tests.ledger import desk as d
from tests.sim.model import NOBODY, Rule, Who

HOUR = 3600 * 10**6
OWN = Budget("task", "task", Window("lifetime"), own=True)
TASKS, MODELS = st.sampled_from("aabc"), st.sampled_from(("big-1", "small-1"))
OWNERS = st.sampled_from((None, None, "ann", "bob"))  # whose a task becomes; None: it stays whose it is
AMOUNTS = st.tuples(st.integers(0, 30), st.integers(0, 30))
COSTS = st.tuples(st.integers(0, 12), st.integers(0, 12)) | AMOUNTS
LIMITS = st.integers(20, 90)
WINDOWS = st.sampled_from((("lifetime", 0), ("day", 0), ("rolling", HOUR), ("rolling", 24 * HOUR)))
DAILY = st.builds(lambda usd: Rule("daily", "machine", "day", usd), LIMITS)
HOURLY = st.builds(lambda usd, on: Rule("hourly", "machine", "rolling", usd, None, on, (), HOUR), LIMITS, st.booleans())
LARGE = st.builds(lambda tokens: Rule("large", "machine", "lifetime", None, tokens, models=("big-*",)), LIMITS)
WATCHED = st.just(Rule("watched", "task", "lifetime", 10, enforce=False))
PEOPLE = st.sampled_from(
    (Rule("people", "user", "day", 60, groups=("ops",)), Rule("squads", "group", "day", 70, groups=("ml", "ops")))
)
CONFIGURED = (
    st.tuples(DAILY, HOURLY, LARGE, WATCHED) | st.tuples(DAILY, LARGE) | st.tuples(DAILY, HOURLY, PEOPLE)
)  # fmt: skip
ANN = Who("ann", ("ml", "ops"), ("env=ci", "zone=eu"))
BOB = Who("bob", ("ops",), ("env=prod",))
WHO = st.sampled_from((NOBODY, ANN, ANN, BOB))
LOOKERS = (("a", NOBODY), ("a", ANN), ("b", NOBODY), ("b", BOB), ("c", ANN), ("c", BOB))
# Which calls a budget counts does not change under a name, but for the subjects that it lists.
LISTS = st.sampled_from(((), ("ops",), ("ml", "ops"))), st.sampled_from(((), ("env=ci",), ("env=prod", "zone=eu")))
COMMANDED = st.builds(
    lambda name, scope, window, usd, tokens, enforce, groups, tags: Rule(
        name, scope, window[0], usd, tokens, enforce, ("big-*",) if name == "y" else (), window[1],
        groups=groups or ("web",) if scope == "group" else (), tags=tags if scope == "tag" else (),
    ),
    st.sampled_from("xy"), st.sampled_from(("machine", "task", "user", "group", "group", "tag")), WINDOWS, LIMITS,
    st.none() | LIMITS, st.booleans(), *LISTS,
)  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """A hold to be asked for. `by`: how much smaller a version there is; 0: none."""

    task: str
    model: str
    most: tuple
    patience_s: int
    by: int
    knows_least: bool
    out_of_turn: bool
    who: Who


WISHES = st.builds(
    Wish, TASKS, MODELS, AMOUNTS, st.sampled_from((0, 3, 30, 90)), st.integers(0, 3), st.booleans(),
    st.sampled_from((False, False, False, True)), WHO,
)  # fmt: skip
JUMPS = st.sampled_from((1, 5, 20, 70, 2000, 3620, 50_000)) | st.integers(1, 90_000)


def budget_of(rule):
    usd = None if rule.usd is None else Money(rule.usd)
    window = Window(rule.window, period_ms=rule.period // 1000)
    return Budget(
        rule.name, rule.scope, window, usd, rule.tokens, rule.enforce, models=tuple(rule.models),
        own=rule.name == "task", users=tuple(rule.users), groups=tuple(rule.groups), tags=tuple(rule.tags),
    )  # fmt: skip


def sized(asked, most):
    """Make a call of this size."""
    made = d.call(asked.call, "0", task=asked.task, model=asked.model, **payers_of(asked.who))
    return replace(made, quote=Quote(Money(most[0]), most[1], d.CEILING))


def payers_of(who):
    """Write who calls as a call has it."""
    return {"user": who.user, "groups": who.groups, "tags": tuple(tuple(tag.split("=")) for tag in who.tags)}


def told(standings):
    """Give what an answer says of accounts, in the model's words."""
    return [
        (
            s.budget.name, s.subject, (s.spent.nano, s.spent_tokens), (s.held.nano, s.held_tokens),
            (None if s.limit is None else s.limit.nano, s.limit_tokens),
        )
        for s in standings
    ]  # fmt: skip
