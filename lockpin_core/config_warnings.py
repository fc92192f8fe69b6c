"""What a configuration may mean otherwise than its writer thinks: legal, and worth a line in `lockpin validate`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase

from lockpin_core.budgets import Budget
from lockpin_core.config import Config
from lockpin_core.price_table import PriceTable


def warnings(config: Config, table: PriceTable, *, at: datetime) -> list[str]:
    """List the warnings, one line each, in the order of the file's keys."""
    return [
        *_unpriced(config, table, at),
        *_without_hosts(config, table),
        *(f'budget "{budget.name}" {why}' for budget in config.budgets if (why := _never_matches(budget, table))),
        *_toothless(config),
    ]


def _unpriced(config: Config, table: PriceTable, at: datetime) -> Iterator[str]:
    for model, entry in config.pricing.items():
        if not any(known.id == model and known.user and known.prices for known in table.models()):
            yield f'pricing: "{model}" has no price, so its calls count as an unknown model ({_kind(entry)})'
    for provider, aliases in config.models.items():
        for alias, model in aliases.items():
            if table.find(provider, alias, at) is None:
                yield f'models: {provider} "{alias}" stands for "{model}", which has no price{_near(table, model)}'


def _without_hosts(config: Config, table: PriceTable) -> Iterator[str]:
    for provider in config.models:
        if provider not in table.shipped:
            yield f'models: no provider is called "{provider}"; there are {", ".join(sorted(table.shipped))}'


def _never_matches(budget: Budget, table: PriceTable) -> str | None:
    unknown = [glob for glob in budget.providers if not any(fnmatchcase(name, glob) for name in table.shipped)]
    if budget.providers and len(unknown) == len(budget.providers):
        return f"can never match: no provider is called {', '.join(unknown)}"
    names = [(model.provider, model.id) for model in table.models()]
    if budget.models and not any(_counts(budget, provider, name) for provider, name in names):
        return f"can never match: no priced model is called {', '.join(budget.models)}"
    return None


def _counts(budget: Budget, provider: str, name: str) -> bool:
    """Say whether a model may be charged to the budget; a user's entry is for any provider and may itself be a glob."""
    fits = not (provider and budget.providers) or any(fnmatchcase(provider, glob) for glob in budget.providers)
    return fits and any(fnmatchcase(name, glob) or fnmatchcase(glob, name) for glob in budget.models)


def _toothless(config: Config) -> Iterator[str]:
    for budget in config.budgets:
        if not budget.enforce:
            yield f'budget "{budget.name}" only warns and never blocks; action: enforce blocks'
    if config.task.budget_usd is None and not any(budget.enforce for budget in config.all_budgets()):
        yield "no limit is enforced: every call is recorded, none is refused for its cost"


def _kind(entry: object) -> str:
    return "an empty entry is unknown, not free" if not entry else "it names no rate; free: true makes it free"


def _near(table: PriceTable, model: str) -> str:
    near = table.nearest(model, 1)
    return f"; did you mean {near[0]}?" if near else ""
