"""The columns of rows, made from calls, charges and notes. Pure; the names are those of `chain.COLUMNS`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from datetime import datetime

from lockpin_core.call import FIRST_ATTEMPT, Call, Ceiling, Charge, Payers
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.protocol import CallNote
from lockpin_core.ledger.shares import token_columns
from lockpin_core.money import Money

PAYER_NAMES = ("task", "key", "user", "team", "groups", "ring", "project", "tags", "machine")
FACT_NAMES = (*PAYER_NAMES, "provider", "host", "model", "client", "billing")


@functools.lru_cache(maxsize=1024)
def account_list(accounts: tuple[str, ...]) -> str:
    """Write a hold's accounts."""
    return encode(accounts)


def payer_columns(payers: Payers) -> dict[str, object]:
    """Give who pays."""
    return {
        "task": payers.task, "key": payers.key, "user": payers.user, "team": payers.team,
        "groups": encode(payers.groups) if payers.groups else None, "ring": payers.ring, "project": payers.project,
        "tags": encode(dict(payers.tags)) if payers.tags else None, "machine": payers.machine,
    }  # fmt: skip


@functools.lru_cache(maxsize=4096)
def payers_of(
    task: str, key: str | None, user: str | None, team: str | None, groups: str | None, ring: str | None,
    project: str | None, tags: str | None, machine: str,
) -> Payers:  # fmt: skip
    """Read who pays off the values of PAYER_NAMES, as a row has them or as a facet: there "" is nothing."""
    return Payers(
        task, machine, key or None, user or None, team or None, tuple(json.loads(groups)) if groups else (),
        ring or None, project or None, tuple(sorted(json.loads(tags).items())) if tags else (),
    )  # fmt: skip


def fact_columns(call: Call) -> dict[str, object]:
    """Give what the hold's row and its resolution's both carry. The names are those of FACT_NAMES."""
    return payer_columns(call.payers) | {
        "provider": call.provider, "host": call.host, "model": call.model, "client": call.client,
        "billing": call.billing,
    }  # fmt: skip


def hold_columns(call: Call, rates: str, after_row: int | None) -> dict[str, object]:
    """Give what the row of a hold alone carries; `after_row`: it went unchecked after that row."""
    told = (("speed", call.terms.speed), ("geo", call.terms.geo), ("unchecked", after_row is not None))
    terms: dict[str, object] = {name: value for name, value in told if value}
    terms |= {} if after_row is None else {"after_row": after_row}
    if call.attempt != FIRST_ATTEMPT:
        terms["attempt"] = {"number": call.attempt.number, "of": call.attempt.of, "first": call.attempt.first}
    if call.instead_of is not None:
        terms["instead_of"] = call.instead_of
    others = call.quote.others()
    terms["ceiling"] = _ceiling(call.quote.ceiling) | ({"others": others} if others else {})
    return {
        "call": call.id, "wire": call.wire, "asked_model": call.asked_model, "rates": rates,
        "price_date": call.price_date, "tier": call.terms.tier,
        "output_limit": call.output_limit, "limit_set": int(call.limit_set), "streamed": int(call.streamed),
        "waited_ms": call.waited_ms, "degrade": encode(call.degrade) if call.degrade else None,
        "data": encode(terms) if terms else None,
    }  # fmt: skip


def _ceiling(ceiling: Ceiling) -> dict[str, object]:
    """Give what a hold is made of, beside its tokens: those of the prompt, the windows in them, the tools' fees.

    `requests`: how many, each bounded by itself; of one it is not said.
    """
    told: dict[str, object] = {"prompt": ceiling.prompt}
    told |= {"requests": ceiling.requests} if ceiling.requests > 1 else {}
    if ceiling.refills:
        told |= {"refills": ceiling.refills, "window": ceiling.window}
    fees = {unit.value: count for unit, count in ceiling.fees.items() if count}
    return told | ({"fees": fees} if fees else {})


def charge_columns(charge: Charge, *, over: bool) -> dict[str, object]:
    """Give what the row of a charge alone carries."""
    return usage_columns(charge) | {
        "usd": charge.amount.nano, "tokens": charge.tokens, "tier": charge.tier, "reason": charge.reason,
        "estimated": int(charge.estimated), "failed": int(charge.failed), "over_hold": int(over),
        "priced": int(charge.priced),
    }  # fmt: skip


def usage_columns(charge: Charge) -> dict[str, object]:
    """Give the usage and what served it."""
    return {
        "usage": encode(dict(charge.usage)), "model_served": charge.model_served, **token_columns(charge.usage),
    }  # fmt: skip


def note_columns(note: CallNote) -> dict[str, object]:
    """Give what the rows of refused and uncapped calls carry."""
    return payer_columns(note.payers) | {
        "call": note.id, "provider": note.provider, "host": note.host, "model": note.model, "client": note.client,
        "path": note.path, "wire": note.wire, "streamed": int(note.streamed), "waited_ms": note.waited_ms or None,
    }  # fmt: skip


def plain(value: object) -> object:
    """Turn a refusal's detail into JSON: amounts as exact dollars, instants as RFC 3339, names as text."""
    match value:
        case Money():
            return value.exact()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case str() | int() | None:
            return value
        case list() | tuple():
            return [plain(item) for item in value]
    return str(value)
