"""`lockpin prices`: what calls are priced with, shipped and the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from lockpin_cli.inputs import load_config
from lockpin_cli.options import ConfigOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, show
from lockpin_core.clock import utc_now
from lockpin_core.errors import CommandError
from lockpin_core.money import rate_exact
from lockpin_core.price_entry import STANDARD
from lockpin_core.price_table import Model, PriceTable
from lockpin_core.prices import shipped_dir
from lockpin_core.usage import Unit

app = new_app("Show the prices in use.\n\nExample: lockpin prices list --provider anthropic")

_RATES = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")
_TITLES = ("INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE 5M", "CACHE WRITE 1H")
_COLUMNS = (
    *(Column("PROVIDER"), Column("MODEL")),
    *(Column(title, right=True) for title in _TITLES),
    *(Column("CONTEXT", right=True), Column("MAX OUTPUT", right=True), Column("CHECKED")),
)
_FIELDS = (
    *("provider", "model"),
    *(f"{rate}_per_mtok" for rate in _RATES),
    *("context_tokens", "max_output_tokens", "checked"),
)


@app.callback()
def _prices() -> None:
    """Keep `list` a command of its own: typer would melt a single one into its group."""


@app.command("list")
def list_prices(
    context: typer.Context,
    provider: Annotated[str | None, typer.Option(help="Only this provider's models.")] = None,
    model: Annotated[str | None, typer.Option(metavar="GLOB", help="Only models whose name matches.")] = None,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """List models with their prices in dollars per million tokens.

    Example: lockpin prices list --provider anthropic --model 'claude-opus-*'
    """
    loaded = load_config(context, config)
    table = PriceTable.load(shipped_dir(), loaded.pricing, loaded.models)
    if provider is not None:
        _check_provider(table, provider)
    models = [
        m
        for m in table.models()
        if (provider is None or m.provider in ("", provider)) and fnmatchcase(m.id, model or "*")
    ]
    show(_view(table, models, utc_now()), form)


def _check_provider(table: PriceTable, provider: str) -> None:
    if provider not in table.shipped:
        priced = ", ".join(sorted(name for name, models in table.shipped.items() if models))
        raise typer.BadParameter(
            f'"{provider}" is no provider with prices; there are {priced}', param_hint="--provider"
        )
    if not any(model.provider in ("", provider) for model in table.models()):
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
