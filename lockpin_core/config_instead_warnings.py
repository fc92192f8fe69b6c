"""What `fallbacks` and `cheaper` may mean otherwise than their writer thinks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase

from lockpin_core.call import Ceiling, Terms
from lockpin_core.config import Config
from lockpin_core.config_near_cap import Instead
from lockpin_core.config_provider_names import no_provider
from lockpin_core.errors import UnpricedError
from lockpin_core.price_table import Model, PriceTable
from lockpin_core.prices import costs_nothing, quote
from lockpin_core.providers import Providers
from lockpin_core.usage import Unit

_TOKENS = 1_000_000  # of which two models' prices are compared


def instead_warnings(config: Config, table: PriceTable, providers: Providers, *, at: datetime) -> Iterator[str]:
    """List the warnings, one line each."""
    near = config.near_cap
    for key, instead in (("fallbacks", near.fallbacks), ("cheaper", near.cheaper)):
        yield from _names(key, instead, table, providers, at)
        yield from _selves(key, instead, table, at)
        yield from _under_plans(key, instead, providers)
    for name, targets in near.cheaper.items():
        for target in targets:
            if _parts(target)[0] != _parts(name)[0]:
                yield f'cheaper: "{target}" never serves for {name}: a cheaper model is one of the same provider'
            elif _is_no_cheaper(target, name, table, at):
                yield f'cheaper: "{target}" is no cheaper than {name}: its prices are as high or higher'
    yield from _unbounded(near.fallbacks, table, providers, at)
    for name, targets in near.fallbacks.items():
        for target in targets:
            there = _parts(target)[0]
            is_elsewhere = there != _parts(name)[0] and providers.by_name(there) is not None
            if is_elsewhere and there not in config.provider_env:
                yield f'fallbacks: "{target}" needs a key of its own; name it in keys.provider_env, or in the keyring'


def _names(
    key: str, instead: Instead, table: PriceTable, providers: Providers, at: datetime
) -> Iterator[str]:  # fmt: skip
    targets = {target for targets in instead.values() for target in targets}
    named = dict.fromkeys([*instead, *(target for targets in instead.values() for target in targets)])
    for provider in dict.fromkeys(_parts(name)[0] for name in named):
        if providers.by_name(provider) is None:
            yield f"{key}: {no_provider(provider, (each.name for each in providers.all()))}"
    for name in named:
        provider, model = _parts(name)
        if providers.by_name(provider) is not None and model != "*" and table.find(provider, model, at) is None:
            then = "it is skipped" if name in targets else "its calls are refused"
            yield f'{key}: "{name}" has no price, so {then}{_near(table, provider, model, at)}'


def _selves(key: str, instead: Instead, table: PriceTable, at: datetime) -> Iterator[str]:
    """Name what is to serve in its own place; what is said of all models of a provider is meant for the others."""
    for name, targets in instead.items():
        provider, model = _parts(name)
        found = table.find(provider, model, at)
        own = {name} if found is None else {name, f"{provider}/{found.id}"}
        for target in targets:
            if target in own:
                yield f'{key}: "{target}" is named in its own place, and skipped there; another model is allowed'


def _under_plans(key: str, instead: Instead, providers: Providers) -> Iterator[str]:
    """Name what would be another model's request under the same login of a plan, where each leaves as it came."""
    for name, targets in instead.items():
        there = _parts(name)[0]
        provider = providers.by_name(there)
        for target in targets if provider is not None and provider.plan else ():
            if _parts(target)[0] == there and target != name:
                yield f'{key}: "{target}" never serves for {name}: what the login of a plan sends leaves as it came'


def _unbounded(instead: Instead, table: PriceTable, providers: Providers, at: datetime) -> Iterator[str]:
    """Name models whose calls are refused whatever limit they have: reasoning beside it has no bound."""
    for target in dict.fromkeys(target for targets in instead.values() for target in targets):
        name, asked = _parts(target)
        provider, model = providers.by_name(name), table.find(name, asked, at)
        if provider is None or model is None or not provider.output_beside_limit:
            continue
        keeps = any(fnmatchcase(model.id, glob) for glob in provider.thinking_budget)  # to a budget of the request
        if model.max_output_tokens is None and not keeps and not costs_nothing(model):
            why = f"{name} bills reasoning beside an output limit, and nobody states how much that is at most"
            way = f'pricing: {{"{model.id}": {{max_output_tokens: TOKENS}}}} states it'
            yield f'fallbacks: "{target}" has no bound, so it is skipped: {why}; {way}'


def _near(table: PriceTable, provider: str, model: str, at: datetime) -> str:
    """Suggest a model of the same provider."""
    near = next((name for name in table.nearest(model, 1, provider) if table.find(provider, name, at)), None)
    return "" if near is None else f"; did you mean {provider}/{near}?"


def _is_no_cheaper(target: str, name: str, table: PriceTable, at: datetime) -> bool:
    """Say whether neither what a model reads nor what it writes costs less than with another one."""
    one, other = (table.find(*_parts(each), at) for each in (target, name))
    if one is None or other is None or one.id == other.id:
        return False
    try:
        pairs = [(_cost(one, *side, at), _cost(other, *side, at)) for side in ((_TOKENS, 0), (0, _TOKENS))]
    except UnpricedError:
        return False
    return all(mine >= its for mine, its in pairs)


def _cost(model: Model, prompt: int, output: int, at: datetime) -> int:
    within = Ceiling(prompt, output, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    return quote(model, within, Terms(), at).nano


def _parts(name: str) -> tuple[str, str]:
    provider, _, model = name.partition("/")
    return provider, model
