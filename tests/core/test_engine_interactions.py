"""Playbooks of conversations that Gemini keeps: whether a turn's usage includes them or not, none costs more than is
charged, and none is charged more than is held.

A token of "ink" costs $0.000001 as prompt and five times that as output; its window has 200,000.
"""

import json

import pytest
from desks import Desk

from lockpin_core.call import Charge, Ending, Outcome
from lockpin_core.settler import Admitted

PATH = "/v1beta/interactions"
KEY = {"x-goog-api-key": "one"}
LONG = "x" * 6000
DONE = Outcome(Ending.DONE, 200)


def ask(desk: Desk, back: str | None = None, **more: object) -> Admitted:
    told = {"model": "ink", "input": "hi", "generation_config": {"max_output_tokens": 100}, **more}
    told |= {} if back is None else {"previous_interaction_id": back}
    found = desk.ask(told, provider="gemini", path=PATH, headers=KEY)
    assert isinstance(found, Admitted)
    return found


def reply(name: str, prompt: int, output: int = 10, status: str = "completed", **more: object) -> bytes:
    usage = {"total_input_tokens": prompt, "total_output_tokens": output, "total_tokens": prompt + output}
    step = {"type": "model_output", "content": [{"type": "text", "text": "x"}]}
    told = {"id": name, "model": "ink", "status": status, "steps": [step], "usage": usage, **more}
    return json.dumps(told).encode()


def end(desk: Desk, admitted: Admitted, body: bytes) -> Charge:
    scanner = admitted.wire.scanner(streamed=False, asked=admitted.parsed)
    scanner.feed(body)
    assert desk.engine.settle(admitted, scanner.result(), DONE).result() is not None
    return charge_of(desk, admitted)


def charge_of(desk: Desk, admitted: Admitted) -> Charge:
    charge = desk.ledger._done[admitted.held.call.id][0].charge
    assert charge is not None
    assert charge.amount <= admitted.held.call.quote.most
    return charge


def rest(admitted: Admitted) -> int:
    assert admitted.parsed.chain_rest is not None
    return admitted.parsed.chain_rest


def test_a_known_conversation_is_held_beside_what_is_new():
    desk = Desk()
    end(desk, ask(desk, input=LONG), reply("int_1", 5000))

    alone, second = ask(desk), ask(desk, "int_1")

    assert second.held.call.quote.ceiling.prompt - rest(second) == 5010
    assert 0 <= rest(second) - alone.held.call.quote.ceiling.prompt < 40  # the name of the turn


def test_usage_that_must_include_the_conversation_is_what_is_charged():
    desk = Desk()
    end(desk, ask(desk, input=LONG), reply("int_1", 5000))
    second = ask(desk, "int_1")

    charge = end(desk, second, reply("int_2", 5020))

    assert (charge.amount.nano, charge.reason) == (5020 * 1_000 + 10 * 5_000, None)
    assert ask(desk, "int_2").parsed.content.extra_tokens == 5030


def test_usage_that_may_lack_the_conversation_is_charged_with_it():
    """As it was reported: 11 tokens stated after a turn of thousands."""
    desk = Desk()
    end(desk, ask(desk, input=LONG), reply("int_1", 5000))

    charge = end(desk, ask(desk, "int_1"), reply("int_2", 11))

    assert (charge.amount.nano, charge.reason, charge.estimated) == (
        (11 + 5010) * 1_000 + 10 * 5_000, "hidden_input", True,
    )  # fmt: skip
    assert ask(desk, "int_2").parsed.content.extra_tokens == 11 + 5010 + 10


@pytest.mark.parametrize("includes", [True, False])
def test_whichever_it_is_a_long_conversation_is_never_charged_less_than_it_costs(includes: bool):
    """And what is known of it grows by what is new, not by all of it again."""
    desk = Desk()
    name, history = None, 0
    for turn in range(12):
        new = 15 if turn else 400
        admitted = ask(desk, name)
        name = f"int_{turn}"

        charge = end(desk, admitted, reply(name, new + history if includes else new, 40))

        assert charge.amount.nano >= (history + new) * 1_000 + 40 * 5_000
        history += new + 40
        assert admitted.parsed.content.extra_tokens <= history + 12 * rest(admitted)


def test_a_conversation_that_was_not_seen_may_fill_the_window():
    desk = Desk()
    admitted = ask(desk, "int_elsewhere")
    assert admitted.held.call.quote.ceiling.prompt == 200_000

    charge = end(desk, admitted, reply("int_1", 11))

    assert (charge.amount.nano, charge.reason) == (200_000 * 1_000 + 10 * 5_000, "hidden_input")
    seen = end(desk, ask(desk, "int_elsewhere"), reply("int_2", 150_000))
    assert (seen.amount.nano, seen.reason) == (150_000 * 1_000 + 10 * 5_000, None)
