"""`lockpin prices`: what calls are priced with, shipped and the user's own; here its lists, elsewhere its checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.explain import explain
from lockpin_cli.inputs import load_config, price_table
from lockpin_cli.options import ConfigOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, show
from lockpin_cli.price_checks import check, diff, update
from lockpin_core.clock import utc_now
from lockpin_core.errors import CommandError
from lockpin_core.money import rate_exact
from lockpin_core.price_entry import STANDARD
from lockpin_core.price_table import Model, PriceTable
from lockpin_core.readers import price_card
from lockpin_core.usage import CACHE_WRITES, Unit

app = new_app("Show, explain, check and update the prices in use.\n\nExample: lockpin prices show claude-sonnet-5-5")
app.command("explain")(explain)
app.command("diff")(diff)
app.command("check")(check)
app.command("update")(update)

_RATES = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")
_TITLES = ("INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE 5M", "CACHE WRITE 1H")
_COLUMNS = (
    *(Column("PROVIDER"), Column("MODEL")),
    *(Column(title, right=True, spare=max(place - 1, 0)) for place, title in enumerate(_TITLES)),
    *(Column("CONTEXT", right=True, spare=5), Column("MAX OUTPUT", right=True, spare=6), Column("CHECKED", spare=7)),
)
_FIELDS = (
    *("provider", "model"),
    *(f"{rate}_per_mtok" for rate in _RATES),
    *("context_tokens", "max_output_tokens", "checked"),
)


@app.command("list")
def list_prices(
    context: typer.Context,
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this provider's models.", autocompletion=completion.sellers),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="GLOB", help="Only models whose name matches.", autocompletion=completion.priced),
    ] = None,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """List models with their prices in dollars per million tokens.

    Example: lockpin prices list --provider anthropic --model 'claude-opus-*'
    """
    loaded = load_config(context, config)
    table = price_table(loaded)
    if provider is not None:
        _check_provider(table, provider)
    models = [m for m in table.models(provider) if fnmatchcase(m.id, model or "*")]
    show(_view(table, models, utc_now()), form)


@app.command("show")
def show_model(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A name, or PROVIDER/NAME where several sell it.", autocompletion=completion.priced
        ),
    ],
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Show all prices of a model: tiers, bands, dates, fees, factors, source. Dollars per million tokens or seconds.

    Example: lockpin prices show claude-opus-5-5

    Example: lockpin prices show openai/gpt-5.6 --format json
    """
    loaded = load_config(context, config)
    table = price_table(loaded)
    found = sellers(table, model)
    if not found:
        near = ", ".join(table.nearest(model.rpartition("/")[2]))
        raise CommandError(f'model "{model}" has no price{f"; did you mean {near}?" if near else ""}')
    show(_card(table, found), form)


def sellers(table: PriceTable, name: str) -> list[Model]:
    """Find a model by its name at every provider that has it, or at the one that "provider/name" names."""
    provider, slash, rest = name.partition("/")
    one = table.find(provider, rest) if slash and provider in table.shipped else None
    if one is not None:
        return [one]
    found, own = [], None
    for provider, shelf in table.shipped.items():
        model = table.find(provider, name)
        if model is not None and model.user and shelf.known(name) is None:
            own = replace(model, provider="")  # an entry that is no shipped model's holds everywhere
        elif model is not None:
            found.append(model)
    return list({(model.provider, model.id): model for model in found}.values()) or ([] if own is None else [own])


def _card(table: PriceTable, models: Sequence[Model]) -> View:
    lines = [row for model in models for row in price_card.rows(model)]
    units = price_card.units_of(lines)
    columns = [
        *(Column("PROVIDER"), Column("MODEL"), Column("FROM"), Column("TIER"), Column("ABOVE", right=True)),
        *(Column(unit.value.replace("_", " ").upper(), right=True, spare=_spare(unit)) for unit in units),
    ]
    records = [price_card.record(row) for row in lines]
    cells = [
        [str(r["provider"]), str(r["model"]), str(r["from"] or "-"), str(r["tier"]),
         f"{row.above:,}" if row.above else "-",
         *(str(r[price_card.rate_key(unit)] or "-") for unit in units)]
        for r, row in zip(records, lines, strict=True)
    ]  # fmt: skip
    told = [{"provider": m.provider or "(yours)", "model": m.id, **_facts(table, m)} for m in models]
    document = [
        {**facts, "prices": [r for r in records if (r["provider"], r["model"]) == (facts["provider"], facts["model"])]}
        for facts in told
    ]
    notes = [words for facts in told for words in _words(facts, is_one=len(told) == 1)]
    return View(columns, cells, records, tuple(records[0]) if records else (), document, notes=notes, empty="free")


def _spare(unit: Unit) -> int:
    """Say how soon a narrow terminal goes without a unit: first without cache writes, never input and output."""
    if unit in CACHE_WRITES:
        return 3
    return {Unit.INPUT: 0, Unit.OUTPUT: 0, Unit.CACHE_READ: 1}.get(unit, 2)


def _facts(table: PriceTable, model: Model) -> dict[str, object]:
    shelf = table.shipped.get(model.provider)
    if shelf is None or model.id not in shelf:
        return price_card.facts(model, (), {"pricing": "of lockpin.yaml"})
    aliases = sorted(alias for alias, key in shelf.names.items() if key == model.id)
    return price_card.facts(model, aliases, shelf.entry(model.id).sources)


def _words(facts: Mapping[str, object], *, is_one: bool) -> list[str]:
    """Say in lines what is said beside the rates, of those facts that are there."""
    lines = []
    for name in ("aliases", "context_tokens", "max_output_tokens", "speeds", "regions", "fees", "checked", "sources"):
        value = facts[name]
        if isinstance(value, dict):
            value = ", ".join(f"{key} {'×' if name in ('speeds', 'regions') else ''}{v}" for key, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(value)
        elif isinstance(value, int):
            value = f"{value:,}"
        if value:
            lines.append(f"{name.replace('_', ' ')}: {value}")
    return lines if is_one else [f"{facts['provider']}: {'; '.join(lines)}"]


def _check_provider(table: PriceTable, provider: str) -> None:
    sold = sorted({name for name, _ in table.names()} - {""})
    if provider not in table.shipped:
        words = f'"{provider}" is no provider with prices; there are {", ".join(sold)}'
        raise typer.BadParameter(words, param_hint="--provider")
    if provider not in sold and not table.own():
        raise CommandError(f'no prices of "{provider}" are in this version; `pricing:` in lockpin.yaml can name them')


def _view(table: PriceTable, models: Sequence[Model], now: datetime) -> View:
    records = [_record(model, now) for model in models]
    cells = [["-" if record[name] is None else str(record[name]) for name in _FIELDS] for record in records]
    notes = (f"dollars per million tokens, standard tier; shipped prices checked {table.date.isoformat()}",)
    return View(_COLUMNS, cells, records, _FIELDS, notes=notes, empty="no model matches")


def _record(model: Model, now: datetime) -> dict[str, object]:
    rates = model.price_at(now).tiers[STANDARD].bands[0].rates if model.prices else {}
    texts = {f"{name}_per_mtok": rate_exact(rates[Unit(name)]) if Unit(name) in rates else None for name in _RATES}
    return {
        "provider": model.provider or "(yours)",
        "model": model.id,
        **texts,
        "context_tokens": model.context_tokens,
        "max_output_tokens": model.max_output_tokens,
        "checked": model.checked.isoformat() if model.checked is not None else None,
    }
