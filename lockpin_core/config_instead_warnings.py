"""What `fallbacks` and `cheaper` may mean otherwise than their writer thinks, and landing that keeps nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from lockpin_core.config import Config
from lockpin_core.config_near_cap import Instead
from lockpin_core.price_table import PriceTable
from lockpin_core.providers import Providers


def instead_warnings(config: Config, table: PriceTable, providers: Providers, *, at: datetime) -> Iterator[str]:
    """List the warnings, one line each."""
    near = config.near_cap
    for key, instead in (("fallbacks", near.fallbacks), ("cheaper", near.cheaper)):
        yield from _names(key, instead, table, providers, at)
    for name, targets in near.cheaper.items():
        for target in targets:
            if _provider(target) != _provider(name):
                yield f'cheaper: "{target}" never serves for {name}: a cheaper model is one of the same provider'
    for name, targets in near.fallbacks.items():
        for target in targets:
            there = _provider(target)
            if there != _provider(name) and there not in config.provider_env:
                yield f'fallbacks: "{target}" needs a key of its own; name it in keys.provider_env, or in the keyring'


def _names(
    key: str, instead: Instead, table: PriceTable, providers: Providers, at: datetime
) -> Iterator[str]:  # fmt: skip
    for name in dict.fromkeys([*instead, *(target for targets in instead.values() for target in targets)]):
        provider, _, model = name.partition("/")
        if providers.by_name(provider) is None:
            known = ", ".join(each.name for each in providers.all())
            yield f'{key}: no provider is called "{provider}"; there are {known}'
        elif model != "*" and table.find(provider, model, at) is None:
            near = table.nearest(model, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield f'{key}: "{name}" has no price, so its calls are refused{hint}'


def _provider(name: str) -> str:
    return name.partition("/")[0]
