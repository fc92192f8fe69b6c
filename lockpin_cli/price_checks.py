"""`lockpin prices diff|check|update`: the user's prices beside the shipped ones, and what is wrong or old in either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

from lockpin_cli.inputs import instant, load_config, price_table
from lockpin_cli.options import ConfigOption, SinceOption
from lockpin_cli.output import Column, Format, FormatOption, View, say, show
from lockpin_cli.presence import is_there
from lockpin_core.clock import utc_now
from lockpin_core.config import Config, updates_dir
from lockpin_core.errors import CommandError
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.prices import Model, PriceTable, shipped_dir
from lockpin_core.readers import price_card
from lockpin_core.readers.price_card import Difference

if TYPE_CHECKING:
    from lockpin_core.price_update import Change

_DIFF_FIELDS = ("kind", "model", "provider", "unit", "shipped", "yours", "change")
_CHANGED = (
    *(Column("MODEL"), Column("PROVIDER", spare=1), Column("UNIT"), Column("SHIPPED", right=True)),
    *(Column("YOURS", right=True), Column("CHANGE", right=True)),
)
_ADDED = (Column("MODEL"), Column("UNIT"), Column("YOURS", right=True))
_CHECK_FIELDS = ("what", "provider", "model", "detail")
_CHECK = (Column("WHAT"), Column("PROVIDER"), Column("MODEL"), Column("DETAIL"))
_UPDATE_FIELDS = ("provider", "model", "what", "before", "after", "kind", "from")
_UPDATE = (
    *(Column("PROVIDER"), Column("MODEL"), Column("WHAT"), Column("BEFORE", right=True)),
    *(Column("AFTER", right=True), Column("KIND"), Column("FROM", spare=1)),
)
_NAMED = 5  # models of one kind that are named, where there may be hundreds
_SEEN = timedelta(days=30)


def diff(context: typer.Context, form: FormatOption = Format.TABLE, config: ConfigOption = None) -> None:
    """Show what `pricing:` of lockpin.yaml changes in the shipped prices, and what it adds to them.

    Example: lockpin prices diff
    """
    loaded = load_config(context, config)
    table = price_table(loaded)
    shipped = PriceTable.load(shipped_dir())
    changed, added = _compared(table, shipped, utc_now())
    records = [*(_record("changed", each) for each in changed), *(_record("added", each) for each in added)]
    if form is not Format.TABLE:
        show(View((), (), records, _DIFF_FIELDS), form)
        return
    place = loaded.file or "lockpin.yaml"
    cells = [[str(r[name] if r[name] is not None else "-") for name in _DIFF_FIELDS[1:]] for r in records]
    notes = ["dollars per million tokens at the standard tier, and for each piece of a fee"]
    show(
        View(_CHANGED, cells[: len(changed)], (), (), notes=notes if changed else (),
             empty=f"pricing: of {place} changes no shipped price"),
        form,
    )  # fmt: skip
    if added:
        print("\nin no shipped table:")
        rest = [[model, unit, yours] for model, _, unit, _, yours, _ in cells[len(changed) :]]
        show(View(_ADDED, rest, (), ()), form)


def _compared(table: PriceTable, shipped: PriceTable, now: datetime) -> tuple[list[Difference], list[Difference]]:
    changed: list[Difference] = []
    added: list[Difference] = []
    for own in table.own():
        known = [each for each in (shipped.find(provider, own.id) for provider in shipped.shipped) if each is not None]
        nothing = Model("", own.id, ())
        for other in known:
            # What it is at that provider: the entry may leave things out that are the shipped model's.
            changed += price_card.differences(table.find(other.provider, own.id) or own, other, now)
        added += price_card.differences(own, nothing, now) if not known else []
    return price_card.gathered(changed), added


def _record(kind: str, found: Difference) -> dict[str, object]:
    return {
        "kind": kind, "model": found.model, "provider": found.of or None, "unit": found.unit,
        "shipped": found.shipped, "yours": found.own, "change": _change(found),
    }  # fmt: skip


def _change(found: Difference) -> str | None:
    """Write how much dearer or cheaper it is, in percent."""
    if found.shipped is None or found.own is None or Decimal(found.shipped) == 0:
        return None
    percent = (Decimal(found.own) / Decimal(found.shipped) - 1) * 100
    return f"{percent.quantize(Decimal('0.1')):+f}%"


def check(
    context: typer.Context,
    days: Annotated[int, typer.Option(min=1, max=36500, metavar="N", help="How old a shipped price may be.")] = 90,
    since: SinceOption = None,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Check the prices: your entries, how old the shipped ones are, models that were called without a price.

    Status 1 where something is wrong. `--since` says how far back calls are looked at: 30 days unless told.

    Example: lockpin prices check --days 60
    """
    now = utc_now()
    start = now - _SEEN if since is None else instant(since, "--since", now)
    loaded = load_config(context, config)
    table = price_table(loaded)  # raises where an entry is wrong
    found = [*_stale(table, now.date() - timedelta(days=days)), *_unpriced(loaded, table, start)]
    cells = [[str(each[name] or "-") for name in _CHECK_FIELDS] for each in found]
    own = len(table.own())
    entries = f"{own} of your own {'is' if own == 1 else 'are'} sound; " if own else ""
    empty = f"prices: ok; {entries}shipped ones checked {table.date.isoformat()}, no model without a price was called"
    show(View(_CHECK, cells, found, _CHECK_FIELDS, empty=empty), form)
    if found:
        raise typer.Exit(1)


def _stale(table: PriceTable, oldest: date) -> Iterator[Mapping[str, object]]:
    """List the providers whose prices nobody has checked since that day, each with some of its models."""
    for provider in sorted(table.shipped):
        old = [m for m in table.models(provider) if not m.user and m.checked is not None and m.checked < oldest]
        if old:
            day = min(m.checked for m in old if m.checked is not None)
            names = ", ".join([m.id for m in old[:_NAMED]] + (["…"] if len(old) > _NAMED else []))
            detail = f"{len(old)} not checked since {day.isoformat()}; `lockpin prices update` may know newer ones"
            yield {"what": "old", "provider": provider, "model": names, "detail": detail}


def _unpriced(config: Config, table: PriceTable, since: datetime) -> Iterator[Mapping[str, object]]:
    """List the models that calls asked for and that have no price still."""
    if not is_there(config.ledger):
        return
    counts: dict[tuple[str, str], list[int]] = {}
    with LedgerReader(config.ledger) as reader:
        for call in reader.calls(since=since):
            is_refused = call.code == "unknown_model"
            if is_refused or not call.priced:
                places = counts.setdefault((call.provider, call.asked_model or call.model), [0, 0])
                places[0 if is_refused else 1] += call.count
    for (provider, model), (refused, passed) in sorted(counts.items()):
        if table.find(provider, model) is None:
            words = [f"{refused} refused"] if refused else []
            words += [f"{passed} passed unpriced"] if passed else []
            near = ", ".join(table.nearest(model, 1))
            hint = f"; nearest is {near}" if near else ""
            detail = f"{' and '.join(words)}; an entry in `pricing:` prices it{hint}"
            yield {"what": "no price", "provider": provider, "model": model, "detail": detail}


def update(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Take prices that fell too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Take newer prices from the price data packages that are installed. Nothing gets cheaper without --yes.

    They are written to prices/ in the user's own configuration folder, for all projects, and a proxy takes them as it
    starts. What no package has any more is kept.

    Example: lockpin prices update --dry-run
    """
    from lockpin_core import price_update  # slow to import, as the packages are
    from lockpin_core.price_sources import OVERLAY, installed

    packages = installed()
    if packages.is_empty():
        words = "neither genai-prices nor litellm is installed beside lockpin; one of them is needed"
        raise CommandError(f"there is no price data package to read: {words}")
    found = price_update.changes(price_table(load_config(context, config)), packages, today=utc_now().date())
    records = [_update_record(each, yes=yes) for each in found]
    cells = [["-" if each[name] is None else str(each[name]) for name in _UPDATE_FIELDS] for each in records]
    known = ", ".join(f"{name} {version}" for name, version in sorted(packages.versions.items()) if name != OVERLAY)
    show(View(_UPDATE, cells, records, _UPDATE_FIELDS, empty=f"prices: as in {known}, nothing to take"), form)
    if found and not dry_run:
        folder = updates_dir()
        count = price_update.apply(found, folder, lower=yes)
        fell = sum(each.kind == "cheaper" for each in found)
        kept = "" if yes or not fell else f"; {fell:,} that fell keep their value, --yes takes them"
        written = f"{count:,} model{'' if count == 1 else 's'} written to {folder}; a proxy takes them as it starts"
        say((written if count else "nothing is written, as nothing more is taken") + kept)


def _update_record(change: Change, *, yes: bool) -> dict[str, object]:
    """Say of a difference what becomes of it: what no source has any more is kept; but for `yes`, only whole models."""
    is_kept = change.kind == "gone" and not (yes and change.field)
    return {
        "provider": change.provider, "model": change.model, "what": change.field or "model", "before": change.before,
        "after": change.after, "kind": "kept" if is_kept else change.kind,
        "from": None if change.start is None else change.start.isoformat(),
    }  # fmt: skip
