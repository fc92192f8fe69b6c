"""Chains of replies that the provider keeps: whatever they bring into a later turn is within what was held for it.

What a turn reads is worked out from the conversation itself: all that was said in it, and as much of the reasoning as
the provider likes, now or in a later turn. A token of "ink" costs $0.000001 as prompt and five times that as output,
one of "pen" $0.0001 as output; a byte is a token at most, and a window has 200,000.
"""

import asyncio
import json
from dataclasses import dataclass, field
from itertools import count

from desks import Desk, config
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Ending, Outcome, Reading
from lockpin_core.engine import Passed
from lockpin_core.settler import Admitted
from lockpin_core.wire import wire_named

RESPONSES = "/v1/responses"
KEY = {"authorization": "Bearer sk-one"}
WINDOW = 200_000
PRICES_NANO = {"ink": (1000, 5000), "pen": (0, 100_000)}
DONE, CUT = Outcome(Ending.DONE, 200), Outcome(Ending.CUT, 200)
ENDS = ("done", "done", "done", "lost", "cut", "polled", "polled without usage")
DESK = Desk(config("1000000"))
NAMES = (f"resp_{number}" for number in count())


@dataclass(frozen=True)
class Said:
    """What the provider keeps of a reply: the tokens of its whole conversation."""

    name: str
    plain: int
    reasoning: int


@dataclass
class Turn:
    """A turn as it happened at the provider."""

    prompt: int
    output: int
    reasoning: int
    model: str
    end: str
    told: dict = field(repr=False)

    def usage(self, cached: int, written: int) -> dict:
        return {
            "input_tokens": self.prompt,
            "output_tokens": self.output,
            "total_tokens": self.prompt + self.output,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
        }

    def cost_nano(self) -> int:
        inward, outward = PRICES_NANO[self.model]
        return self.prompt * inward + self.output * outward


def part_of(most: int) -> st.SearchStrategy[int]:
    """Draw nothing, all, or something between."""
    return st.sampled_from([0, most]) | st.integers(0, most)


@st.composite
def turns(draw: st.DrawFn, before: list[Said]) -> tuple[Turn, Said]:
    """Draw a turn that goes on from one of the replies, or from none, and what the provider then keeps."""
    parent = draw(st.sampled_from([*before, None, *before[-1:] * 4])) if before else None
    texts = draw(st.lists(st.text(max_size=20) | st.just("word " * 400), min_size=1, max_size=3))
    limit = draw(st.sampled_from([16, 4000]) | st.integers(16, 4000))
    told = {
        "model": draw(st.sampled_from(["ink", "ink", "ink", "pen"])),
        "max_output_tokens": limit,
        "input": [{"role": "user", "content": text} for text in texts],
    }
    kept = Said("", 0, 0) if parent is None else parent
    shown = draw(st.sampled_from([0, 0, 0, 1500]))  # reasoning of before that the client sends along, sealed
    if shown:
        told["input"].append({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" * shown})
        kept = Said(kept.name, kept.plain, kept.reasoning + shown)
    if parent is not None:
        told["previous_response_id"] = parent.name
    most = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + 4 * len(texts)
    own = draw(part_of(most))
    prompt = min(WINDOW, kept.plain + draw(part_of(kept.reasoning)) + own)
    if draw(st.sampled_from([False, False, True])):
        told["truncation"] = "auto"
        prompt = draw(part_of(prompt))
    output = max(1, draw(part_of(limit)))
    reasoning = draw(part_of(output))
    end = draw(st.sampled_from(ENDS))
    told["background"] = end.startswith("polled")
    said = Said(next(NAMES), kept.plain + own + output - reasoning, kept.reasoning + reasoning)
    return Turn(prompt, output, reasoning, told["model"], end, told), said


def read(admitted: Admitted | None, body: dict) -> Reading:
    """Read a reply as the wire does; None: the answer to a poll."""
    scanner = wire_named("openai_responses").scanner(
        streamed=False, asked=None if admitted is None else admitted.parsed
    )
    scanner.feed(json.dumps(body).encode())
    return scanner.result()


def settle(admitted: Admitted, turn: Turn, said: Said, usage: dict) -> None:
    """Let a turn end as it did."""
    body = {"id": said.name, "object": "response", "model": turn.model, "background": turn.told["background"]}
    whole = body | {"status": "completed", "usage": usage, "output": [{"type": "message", "content": []}]}
    if turn.end == "cut":
        DESK.engine.settle(admitted, Reading(upstream_id=said.name, delivered=True), CUT).result()
        return
    first = {"done": whole, "lost": whole | {"usage": None}}.get(turn.end, body | {"status": "queued"})
    DESK.engine.settle(admitted, read(admitted, first), DONE).result()
    if turn.end.startswith("polled"):
        passed = DESK.ask(method="GET", path=f"{RESPONSES}/{said.name}", headers=KEY)
        assert isinstance(passed, Passed)
        assert passed.polled is not None
        poll = whole if turn.end == "polled" else whole | {"usage": None, "status": "cancelled"}
        asyncio.run(DESK.engine.settle_polled(passed.polled, read(None, poll)))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_turn_of_a_chain_is_held_for_whatever_it_may_read(data: st.DataObject):
    said: list[Said] = []
    for _ in range(data.draw(st.integers(1, 6))):
        turn, reply = data.draw(turns(said))
        cached = data.draw(part_of(turn.prompt))
        usage = turn.usage(cached, data.draw(part_of(turn.prompt - cached)))

        admitted = DESK.ask(turn.told, path=RESPONSES, headers=KEY)

        assert isinstance(admitted, Admitted)
        quote = admitted.held.call.quote
        assert turn.prompt <= quote.ceiling.prompt
        assert turn.prompt + turn.output <= quote.tokens
        assert turn.cost_nano() <= quote.most.nano
        settle(admitted, turn, reply, usage)
        charged = DESK.ledger.rows[-1]
        assert (charged.kind, charged.call) == ("charge", admitted.held.call.id)
        assert turn.cost_nano() <= charged.usd <= quote.most.nano
        said.append(reply)
    assert DESK.held() == 0


def played(turn: Turn, reply: Said) -> int:
    """Let a turn happen, and give the prompt that was held for it."""
    admitted = DESK.ask(turn.told, path=RESPONSES, headers=KEY)
    assert isinstance(admitted, Admitted)
    settle(admitted, turn, reply, turn.usage(0, 0))
    return admitted.held.call.quote.ceiling.prompt


def told(parent: Said | None, *items: object, background: bool = False) -> dict:
    named = {} if parent is None else {"previous_response_id": parent.name}
    return {"model": "ink", "max_output_tokens": 4000, "input": [*items], "background": background, **named}


def test_reasoning_that_no_turn_has_read_is_held_for_the_one_that_reads_all_of_it():
    """Each turn thinks 4,000 tokens and reads nothing of what was thought before."""
    parent: Said | None = None
    for turn in range(5):
        said = Said(next(NAMES), 10, 4000 * (turn + 1))

        held = played(Turn(10, 4000, 4000, "ink", "done", told(parent)), said)

        assert 10 + 4000 * turn <= held < 10 + 4000 * turn + 1000
        parent = said


def test_reasoning_that_a_client_has_shown_is_held_for_later_turns_too():
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" * 1500}
    parent: Said | None = None
    for turn in range(4):
        said = Said(next(NAMES), 20 * (turn + 1), 1500 * (turn + 1))
        played(Turn(20 * turn + 10, 10, 0, "ink", "done", told(parent, sealed)), said)
        parent = said

    held = played(Turn(80 + 4 * 1500, 10, 0, "ink", "done", told(parent)), Said(next(NAMES), 90, 6000))

    assert 80 + 4 * 1500 <= held < 14_000


def test_a_background_reply_that_never_stated_its_usage_may_have_filled_the_window():
    first = Said(next(NAMES), 4010, 0)
    played(Turn(10, 4000, 0, "ink", "polled without usage", told(None, background=True)), first)

    assert played(Turn(4010, 10, 0, "ink", "done", told(first)), Said(next(NAMES), 4020, 0)) == WINDOW


def test_after_a_turn_of_which_nothing_is_known_the_window_is_held_for_good():
    """The turn after it may have left out what was thought in it."""
    lost, next_one = Said(next(NAMES), 10, 4000), Said(next(NAMES), 20, 4000)
    played(Turn(10, 4000, 4000, "ink", "cut", told(None)), lost)
    assert played(Turn(10, 10, 0, "ink", "done", told(lost)), next_one) == WINDOW

    assert played(Turn(4020, 10, 0, "ink", "done", told(next_one)), Said(next(NAMES), 30, 4000)) == WINDOW
