"""Which limits count the models that may run within one call, beside the one that it names.

A call is held once, on the accounts of the model that it names. One that may run in its place may have fewer of them;
the requests of a batch have the same. What is enforced for a model is known to the ledger alone, and may be otherwise
after any wait: so it is looked at before a hold is asked for, and again under it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockpin_core.admission import Priced, Refused
from lockpin_core.budgets import Standing
from lockpin_core.call import Payers
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.protocol import Ledger, Rules


async def check_models(found: Priced, ledger: Ledger, rules: Rules) -> None:
    """Refuse a call of several models some of which other limits are for. Raises Refused, LedgerUnavailable."""
    whose, is_batch = (found.incoming.payers, found.incoming.provider.name), found.batch is not None
    model = await not_counted(ledger, rules, *whose, found.model.id, found.models, alike=is_batch)
    if model is None:
        return
    if is_batch:
        words = (
            f'the requests of one batch are for several models, and the limits in force do not count "{model}" '
            f'as they count "{found.model.id}"; send a batch for each model'
        )
    else:
        words = (
            f'"{model}" may run within the call, and a limit is in force for it that does not count '
            f'"{found.model.id}"; leave "{model}" out of it, or give that limit to both models'
        )
    raise Refused("unpriced_tool", words)


async def not_counted(
    ledger: Ledger, rules: Rules, payers: Payers, provider: str, named: str, models: Sequence[str], *, alike: bool
) -> str | None:  # fmt: skip
    """Find a model with a limit in force that does not count the one that is named; None: there is none.

    `alike`: the limits must be the same for all of them. Raises LedgerUnavailable.
    """
    if len(models) < 2:
        return None

    async def enforced(model: str) -> set[tuple[str, str]]:
        """List the budgets, and whose they are: an account's id is another one once its window has ended."""
        standings: tuple[Standing, ...] = await answer_of(ledger.look(payers, provider, model, rules))
        return {(standing.budget.name, standing.subject) for standing in standings if standing.budget.enforce}

    mine = await enforced(named)
    for model in models:
        theirs = await enforced(model)
        if theirs != mine if alike else not theirs <= mine:
            return model
    return None
