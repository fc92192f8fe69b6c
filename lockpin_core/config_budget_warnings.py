"""What a budget may mean otherwise than its writer thinks: it counts nothing, too little, or what another counts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase

from lockpin_core.budgets import Budget, subjects_in
from lockpin_core.call import Ceiling, Payers, Terms
from lockpin_core.config import Config
from lockpin_core.errors import UnpricedError
from lockpin_core.money import Money
from lockpin_core.price_table import Model, PriceTable
from lockpin_core.prices import quote
from lockpin_core.usage import Unit

_NOTHING = "that part of it counts nothing"
_OF_KEYS = ("key", "user", "team", "group", "ring")  # scopes of what only a key says
_FILTERS_OF_KEYS = {"users": "user", "groups": "group", "rings": "ring"}


def budget_warnings(
    config: Config, table: PriceTable, callers: Sequence[Payers] = (), *, at: datetime
) -> Iterator[str]:
    """List the warnings, by budget. `callers` are those for whom there are keys."""
    for budget in config.budgets:
        for why in (*doubts(budget, table), *without_callers(budget, config, callers)):
            yield f'budget "{budget.name}" {why}'
    for budget in (*config.all_budgets(), config.task_default()):
        if budget.enforce and (small := _too_small(budget, table, config.fit.output_max, at)) is not None:
            yield f'budget "{budget.name}" {small}'
    yield from _alike(config.all_budgets())
    soft = [f'"{budget.name}"' for budget in config.budgets if not budget.enforce]
    if soft:
        words = "only warns and never blocks" if len(soft) == 1 else "only warn and never block"
        yield f"budget{'s' if len(soft) > 1 else ''} {', '.join(soft)} {words}; action: enforce blocks"
    if config.mode == "team" and config.task.budget_usd is not None:
        yield "task.budget_usd limits nobody in team mode; a budget with scope: task counts each task for everybody"
    if config.task_default().limit is None and not any(budget.enforce for budget in config.all_budgets()):
        yield "no limit is enforced: every call is recorded, none is refused for its cost"


def doubts(budget: Budget, table: PriceTable) -> list[str]:
    """Say why no call can be charged to a budget, or which of its filters none can match; empty: all can."""
    if (why := _never_matches(budget, table)) is not None:
        return [f"can never match: {why}"]
    return [*_unknown_providers(budget, table), *_unpriced_models(budget, table)]


def without_callers(budget: Budget, config: Config, callers: Sequence[Payers]) -> Iterator[str]:
    """Say which of the people that a budget is for nobody is; without any key nothing can be said in team mode."""
    callers = () if config.oidc is not None else callers  # tokens name people whom no key does
    filters = [name for name in _FILTERS_OF_KEYS if getattr(budget, name)]
    if config.mode == "solo":
        needed = [budget.scope] if budget.scope in _OF_KEYS else [_FILTERS_OF_KEYS[name] for name in filters]
        if needed:
            yield f"can never match: in solo mode no call has a {needed[0]}; mode: team gives callers keys"
        return
    for name in filters if callers else ():
        scope = _FILTERS_OF_KEYS[name]
        there = {subject for caller in callers for subject in subjects_in(scope, caller)}
        missing = [each for each in getattr(budget, name) if each not in there]
        named = f"{scope}{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        if len(missing) == len(getattr(budget, name)):
            yield f"can never match: no key has the {named}"
        elif missing:
            yield f"names the {named}, which no key has: {_NOTHING}"


def _never_matches(budget: Budget, table: PriceTable) -> str | None:
    unknown = _without(budget.providers, table.shipped)
    if budget.providers and len(unknown) == len(budget.providers):
        return f"no provider is called {', '.join(unknown)}"
    if budget.models and not any(_counts(budget, budget.models, *each) for each in table.names()):
        return f"no priced model is called {', '.join(budget.models)}{_near(budget.models, table)}"
    return None


def _unknown_providers(budget: Budget, table: PriceTable) -> Iterator[str]:
    for glob in _without(budget.providers, table.shipped):
        yield f'names the provider "{glob}", which nobody is: {_NOTHING}'


def _unpriced_models(budget: Budget, table: PriceTable) -> Iterator[str]:
    names = table.names()
    for glob in budget.models:
        if not any(_counts(budget, (glob,), *each) for each in names):
            yield f'names the model "{glob}", which has no price: {_NOTHING}{_near((glob,), table)}'


def _without(globs: Sequence[str], names: Iterable[str]) -> list[str]:
    return [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]


def _counts(budget: Budget, globs: Sequence[str], provider: str, name: str) -> bool:
    """Say whether a model may be charged to the budget; a user's entry is for any provider and may itself be a glob."""
    fits = not (provider and budget.providers) or any(fnmatchcase(provider, glob) for glob in budget.providers)
    return fits and any(fnmatchcase(name, glob) or fnmatchcase(glob, name) for glob in globs)


def _near(globs: Sequence[str], table: PriceTable) -> str:
    near = table.nearest(globs[0], 1) if len(globs) == 1 and not set(globs[0]) & set("*?[") else []
    return f"; did you mean {near[0]}?" if near else ""


def _too_small(budget: Budget, table: PriceTable, output_max: int, at: datetime) -> str | None:
    """Say that the limit is less than the worst case of any one call; None: it is not, or nobody knows."""
    cases: list[tuple[Money, int, str]] = []
    for model in _priced(budget, table, at):
        if (case := _worst_case(model, output_max, at)) is None:
            continue
        if not _is_below(budget, *case):
            return None
        cases.append((*case, model.id))
    if not cases:
        return None
    usd, tokens, name = min(cases)
    if budget.limit is not None and usd > budget.limit:
        limit, need = f"${budget.limit.exact()}", f"${usd.rounded(2, up=True)}"
    else:
        limit, need = f"{budget.limit_tokens:,} tokens", f"{tokens:,}"
    return f"has a limit of {limit}, and one call of {name} can take {need}: large calls never fit"


def _is_below(budget: Budget, usd: Money, tokens: int) -> bool:
    return (budget.limit is not None and usd > budget.limit) or (
        budget.limit_tokens is not None and tokens > budget.limit_tokens
    )


def _priced(budget: Budget, table: PriceTable, at: datetime) -> Iterator[Model]:
    """Go through the models that a budget counts, each as the first provider has it."""
    for provider, name in table.names():
        if "*" in name or (budget.models and not any(fnmatchcase(name, glob) for glob in budget.models)):
            continue
        if provider and budget.providers and not any(fnmatchcase(provider, glob) for glob in budget.providers):
            continue
        if (model := table.find(provider, name, at)) is not None and model.prices:
            yield model


def _worst_case(model: Model, output_max: int, at: datetime) -> tuple[Money, int] | None:
    """Give the most that a call may cost and take which fills the window; None: the model does not say, or is free."""
    if model.context_tokens is None or model.max_output_tokens is None or model.piece is not None:
        return None
    output = min(output_max, model.max_output_tokens)
    ceiling = Ceiling(model.context_tokens, output, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    try:
        most = quote(model, ceiling, Terms(), at)
    except UnpricedError:
        return None
    return (most, ceiling.prompt + output) if most else None


def _alike(budgets: Sequence[Budget]) -> Iterator[str]:
    """Name budgets whose names look the same, and those that count the same in the same windows."""
    for place, budget in enumerate(budgets):
        for other in budgets[:place]:
            if _folded(budget.name) == _folded(other.name):
                yield f'budget "{budget.name}" and budget "{other.name}" have names that look the same'
            if budget.enforce and other.enforce and _rule(budget) == _rule(other):
                yield f'budget "{budget.name}" counts just what budget "{other.name}" does; the smaller limit decides'


def _folded(name: str) -> str:
    letters = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in letters if char.isalnum())


def _rule(budget: Budget) -> Budget:
    """Take from a budget what does not say what it counts."""
    return replace(budget, name="", limit=None, limit_tokens=None, enforce=False, alert_at=())
