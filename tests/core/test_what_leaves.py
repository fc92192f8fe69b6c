"""What leaves is never more than what is held for it, however a call was made smaller or let go: it is priced anew."""

import asyncio
import random
from dataclasses import replace

import desks
import pytest
from desks import NOW, Desk, config

from lockpin_core.admission import Incoming, priced
from lockpin_core.config import Fit
from lockpin_core.config_near_cap import Degrade, Landing, Loop, NearCap
from lockpin_core.money import Money
from lockpin_core.providers import Metered
from lockpin_core.settler import Admitted
from lockpin_core.wire import wire_named

FIELD = 120  # tokens of what Lockpin itself puts into a body, which is no prompt
FEES = {"fees": {"web_search": "0.01", "file_search": "0.0025"}}
PRICING = desks.PRICING | {
    "dear": {"input": "10", "output": "50", **FEES, **desks.FACTS},
    "small": {"input": "0.1", "output": "0.5", **FEES, **desks.FACTS},
}
PRICES = Desk(config(pricing=PRICING)).prices  # the same for all
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
LIMITS = (16, 300, 1000, 5000, 20_000, 50_000, 60_000)


def anthropic(dice: random.Random) -> tuple[dict, str, str]:
    turns = [{"role": "user", "content": "go"}]
    for number in range(dice.randrange(8)):
        use = {"type": "tool_use", "id": f"u{number}", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"u{number}", "content": "x" * dice.choice((10, 9000))}
        turns += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    told: dict = {"max_tokens": dice.choice(LIMITS), "messages": turns}
    if dice.random() < 0.5:
        told["tools"] = [SEARCH | ({"max_uses": dice.randint(1, 9)} if dice.random() < 0.6 else {})]
    if dice.random() < 0.2:
        told["thinking"] = {"type": "enabled", "budget_tokens": dice.choice((1024, 16_000))}
    if dice.random() < 0.2:
        told["fallbacks"] = [{"model": "small", "max_tokens": dice.choice(LIMITS)}]
    return told, "anthropic", "/v1/messages"


def chat(dice: random.Random) -> tuple[dict, str, str]:
    told = {"messages": [{"role": "user", "content": "go"}], "n": dice.randint(1, 3), "stream": dice.random() < 0.5}
    limit = {dice.choice(("max_tokens", "max_completion_tokens")): dice.choice(LIMITS)} if dice.random() < 0.7 else {}
    return told | limit, "openai", "/v1/chat/completions"


def responses(dice: random.Random) -> tuple[dict, str, str]:
    told: dict = {"input": "go", "tools": [{"type": "web_search"}]}
    told |= {"max_output_tokens": dice.choice(LIMITS)} if dice.random() < 0.7 else {}
    return told | ({"max_tool_calls": dice.randint(1, 9)} if dice.random() < 0.5 else {}), "openai", "/v1/responses"


def desk_of(dice: random.Random) -> Desk:
    near = NearCap(
        degrade=Degrade(on=dice.random() < 0.8), landing=Landing(dice.choice((0, 0, 2)), 100), loop=Loop(action="off"),
        cheaper={"anthropic/*": ("anthropic/small",), "openai/*": ("openai/small",)} if dice.random() < 0.3 else {},
    )  # fmt: skip
    fit = Fit(output=dice.random() < 0.8, floor=dice.choice((1, 256, 4096)))
    usd = dice.choice(("0.05", "0.2", "1", "3"))
    return Desk(config(usd, pricing=PRICING, near_cap=near, fit=fit), prices=PRICES)


async def decide(desk: Desk, incoming: Incoming, dice: random.Random) -> object:
    """Admit a call; whoever is asked raises by any amount, or allows it once."""
    deciding = asyncio.create_task(desk.engine.admit(incoming))
    while not deciding.done():
        for question in [one for one in desk.ledger.questions() if one.answer is None]:
            by = Money(dice.randint(1, 2 * 10**9)) if dice.random() < 0.8 else None
            desk.ledger.answer(question.id, "once" if by is None else "raise", by=by, who="ann")
        await asyncio.sleep(0)
    return deciding.result()


def check(admitted: Admitted, incoming: Incoming) -> None:
    body = incoming.body if admitted.body is None else admitted.body
    sent = replace(incoming, body=body, path=admitted.path or incoming.path)
    route = sent.provider.route("POST", sent.path)
    assert isinstance(route, Metered)
    wire = wire_named(route.wire)
    anew = priced(sent, wire, wire.parse(sent.request()), PRICES, NOW).call(None)

    most, held = anew.quote.ceiling, admitted.held.call.quote.ceiling
    assert (anew.model, most.output <= held.output) == (admitted.held.call.model, True)
    assert most.refills <= held.refills
    assert all(pieces <= held.fees.get(unit, 0) for unit, pieces in most.fees.items())
    assert most.prompt <= held.prompt + FIELD * (1 + held.refills)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_bounded_by_its_hold(seed):
    dice, smaller = random.Random(seed), 0
    for _ in range(40):
        desk = desk_of(dice)
        desk.ledger.watchers = int(dice.random() < 0.15)
        told, provider, path = dice.choice((anthropic, anthropic, chat, responses))(dice)
        told |= {"model": dice.choice(("pen", "ink", "scout", "dear", "small"))}
        incoming = desk.incoming(told, provider=provider, path=path)

        admitted = asyncio.run(decide(desk, incoming, dice))

        if isinstance(admitted, Admitted):
            check(admitted, incoming)
            smaller += bool(admitted.held.call.degrade or admitted.instead)
    assert smaller > 2
