"""What a configuration may mean otherwise than its writer thinks: legal, and worth a line in `lockpin validate`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from lockpin_core.addresses import canonical_path
from lockpin_core.call import Payers
from lockpin_core.config import Config
from lockpin_core.config_budget_warnings import budget_warnings
from lockpin_core.config_instead_warnings import instead_warnings
from lockpin_core.config_near_warnings import near_warnings
from lockpin_core.config_provider_names import no_provider
from lockpin_core.config_secrets import masked
from lockpin_core.price_table import Model, PriceTable
from lockpin_core.providers import Providers
from lockpin_core.usage import Unit

_LABEL = "\0"  # the `*` of a provider's host
_NEEDED = (Unit.INPUT, Unit.OUTPUT)  # every quote takes both; the others have a price to fall back to


def warnings(
    config: Config, table: PriceTable, providers: Providers, callers: Sequence[Payers] = (), *, at: datetime
) -> list[str]:
    """List the warnings, one line each, in the order of the file's keys; what may be a secret is hidden.

    `callers` are those for whom there are keys.
    """
    found = [
        *_unpriced(config, table, at),
        *_without_hosts(config, table),
        *budget_warnings(config, table, callers, at=at),
        *_uncapped_nowhere(config.allow_uncapped, providers),
        *_sent_nowhere(config.upstreams, providers),
        *_of_nobody(config.provider_env, providers),
        *_put_in_nowhere(config),
        *_trips_nowhere(config),
        *near_warnings(config, table, at=at),
        *instead_warnings(config, table, providers, at=at),
    ]
    return [masked(line) for line in found]


def _unpriced(config: Config, table: PriceTable, at: datetime) -> Iterator[str]:
    own = {model.id: model for model in table.own()}
    for name, entry in config.pricing.items():
        if missing := _missing(own[name]):
            words = " and no ".join(unit.value for unit in missing)
            yield f'pricing: "{name}" has no {words} price, so calls to it are refused; {_rates(missing)}'
        elif not own[name].prices and not _adds_facts(table, name, at):
            yield f'pricing: "{name}" has no price, so its calls count as an unknown model ({_kind(entry)})'
    for provider, aliases in config.models.items():
        for alias, model in aliases.items():
            if table.find(provider, alias, at) is None:
                yield f'models: {provider} "{alias}" stands for "{model}", which has no price{_near(table, model)}'


def _without_hosts(config: Config, table: PriceTable) -> Iterator[str]:
    for provider in config.models:
        if provider not in table.shipped:
            yield f"models: {no_provider(provider, sorted(table.shipped))}"


def _put_in_nowhere(config: Config) -> Iterator[str]:
    if config.provider_env and config.mode != "team" and not config.near_cap.fallbacks:
        yield "keys: real keys are put in with mode: team, and for fallbacks; else in solo mode agents send their own"


def _trips_nowhere(config: Config) -> Iterator[str]:
    breaker = config.near_cap.breaker
    if breaker.usd is not None and breaker.by != "task" and config.mode == "solo":
        rest = "" if breaker.by == "key" else "; tasks are watched"
        yield f'breaker.by is "{breaker.by}", and in solo mode no call has a key, so none is stopped by its key{rest}'


def keys_not_at_hand(config: Config, environment: Mapping[str, str]) -> list[str]:
    """List the variables of providers' own keys that an environment does not have; they may be in the keyring."""
    return [
        f"keys.provider_env: {variable} is not set here; where it is not set as the proxy starts, base-URL calls to "
        f"{provider} are refused, unless the keyring has its key"
        for provider, variable in config.provider_env.items()
        if config.mode == "team" and not environment.get(variable)
    ]


def _of_nobody(env: Iterable[str], providers: Providers) -> Iterator[str]:
    for provider in env:
        if providers.by_name(provider) is None:
            yield f"keys: {no_provider(provider, (each.name for each in providers.all()))}"


def _missing(model: Model) -> list[Unit]:
    bands = [band for dated in model.prices for tier in dated.tiers.values() for band in tier.bands]
    return [unit for unit in _NEEDED if any(unit not in band.rates for band in bands)]


def _rates(units: Sequence[Unit]) -> str:
    return f"{' and '.join(f'{unit.value}_per_mtok' for unit in units)} may be 0, but must be there"


def _adds_facts(table: PriceTable, name: str, at: datetime) -> bool:
    """Say whether an entry without prices is about a model that is shipped with some."""
    shipped = (model for models in table.shipped.values() for model in models)
    return any(table.find(provider, name, at) for provider in table.shipped) or any(
        fnmatchcase(model, name) for model in shipped
    )


def _uncapped_nowhere(globs: Sequence[str], providers: Providers) -> Iterator[str]:
    for glob in globs:
        if not any(_overlap(glob, host) for host in _hosts(providers)):
            host = glob.partition("/")[0]
            near = _near_host(host, providers)
            yield f'allow_uncapped: "{glob}" can never match: {host} is no provider\'s host{near}'
        elif (wire := _wire_at(glob, providers)) is not None:
            yield f'allow_uncapped: "{glob}" lets nothing go: a call there is metered ({wire}), and always held'


def _wire_at(glob: str, providers: Providers) -> str | None:
    """Give the format of the one path that is listed; None: there may be others, or it is not metered."""
    host, slash, path = glob.partition("/")
    provider = providers.for_host(host) if not set(glob) & set("*?[") else None
    metered = provider.metered(canonical_path(slash + path)) if provider is not None and slash else None
    return None if metered is None else metered.wire


def _sent_nowhere(upstreams: Mapping[str, object], providers: Providers) -> Iterator[str]:
    for host in upstreams:
        if providers.for_host(host) is None:
            yield f"upstreams: {host} is no provider's host, so nothing is sent elsewhere{_near_host(host, providers)}"


def _hosts(providers: Providers) -> list[str]:
    return [host for provider in providers.all() for host in provider.hosts]


def _near_host(host: str, providers: Providers) -> str:
    hosts = _hosts(providers)
    # A vendor's name stands for its host: "openai" is api.openai.com.
    named = [known for known in hosts if host in known.split(".")] if "." not in host else []
    near = sorted(named, key=len)[:1] or difflib.get_close_matches(host, hosts, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _overlap(glob: str, host: str) -> bool:
    """Say whether a glob matches some path of a host, whose own `*` stays within a label.

    A set of characters counts as any one.
    """
    one, two = re.sub(r"\[!?\]?[^\]]*\]", "?", glob), host.replace("*", _LABEL) + "/*"
    todo, seen = [(0, 0)], set[tuple[int, int]]()
    while todo:
        place = i, j = todo.pop()
        if place in seen or i > len(one) or j > len(two):
            continue
        if place == (len(one), len(two)):
            return True
        seen.add(place)
        todo += _steps(i, j, one[i : i + 1], two[j : j + 1])
    return False


def _steps(i: int, j: int, left: str, right: str) -> list[tuple[int, int]]:
    """List where two globs may go on after the tokens at `i` and `j`; a star takes nothing, or a token of the other."""
    if left == "*":
        return [(i + 1, j), (i, j + 1)]
    if right in ("*", _LABEL):
        takes = left and (right == "*" or left not in "./")
        return [(i, j + 1), (i + 1, j)] if takes else [(i, j + 1)]
    return [(i + 1, j + 1)] if left and right and left in ("?", right) else []


def _kind(entry: object) -> str:
    return "an empty entry is unknown, not free" if not entry else "it names no rate; free: true makes it free"


def _near(table: PriceTable, model: str) -> str:
    near = table.nearest(model, 1)
    return f"; did you mean {near[0]}?" if near else ""
