"""Whose a row is: a condition of SQL finds what may be a subject's, the budget itself says what is.

Rows of calls, facets and open holds have the payers in the same columns. Nothing else reads a budget's scope off them.
"""

from __future__ import annotations

from typing import Any

from lockpin_core.budgets import Budget
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.columns import PAYER_NAMES, payers_of

WHO_NAMES = (*PAYER_NAMES, "provider", "model")  # what says whether a call is a budget's

_SQL = {
    "group": 'instr({of}"groups", ?) > 0',
    "tag": "instr({of}tags, ?) > 0",
    "org": "? IS NOT NULL",
}
_COLUMN = '{{of}}"{name}" = ?'


def is_of(budget: Budget, subject: str, *who: Any) -> bool:
    """Say whether a call is one of a budget's subject, by its values of WHO_NAMES; of a facet "" is nothing."""
    *payers, provider, model = who
    found = payers_of(*payers)
    return subject in budget.subjects(found) and budget.applies(found, provider=provider, model=model)


def condition(scope: str, of: str = "") -> str:
    """Give a condition on a table with the payers' columns, with one parameter; `of` is its name and a dot."""
    return _SQL.get(scope, _COLUMN.format(name=scope)).format(of=of)


def value(scope: str, subject: str) -> str:
    """Give the parameter for a subject."""
    match scope:
        case "group":
            return encode(subject)
        case "tag":  # its piece of the JSON; a tag's key has no equals sign
            key, _, tag = subject.partition("=")
            return f"{encode(key)}:{encode(tag)}"
    return subject


def not_on(accounts: str) -> str:
    """Give a condition on a row's JSON list of accounts, with one parameter of `encode`: none of them is this one.

    A quote that opens an entry is the only one behind a bracket or a comma that its own text follows: the name of
    another account may end like this one, but its quotes are escaped.
    """
    return f"instr(replace({accounts}, '[', ','), ',' || replace(?, '[', ',')) = 0"


def is_on(accounts: str, listed: str) -> bool:
    """Say whether a JSON list of accounts has one; `listed` is `encode` of it."""
    return f"[{listed}" in accounts or f",{listed}" in accounts
