"""Coding agents with long prompts, and what their provider answers and bills: Anthropic Messages, streamed.

Each has a prompt that the provider takes from its cache for the most part, asks for at most 32,000 tokens and gets 1 to
3% of them. Knows nothing of Lockpin but how a prompt is held once it was counted.
"""

import json
import random
from dataclasses import dataclass

LIMIT = 32_000
BYTES_A_TOKEN = 4
SENTENCE = "All work and no play makes an agent dull. "
NEW = 20  # tokens of a prompt that no cache takes


@dataclass(frozen=True)
class Model:
    """A model and how its agents use it. Rates are picodollars a token, of its vendor's price page as of 2026-11."""

    name: str
    input: int
    cache_read: int
    cache_write: int
    output: int
    first: tuple[int, int]  # tokens of a prompt when a conversation begins
    longest: int  # tokens of a prompt before it is shortened

    def bill(self, usage, output):
        """Price a call in nanodollars, rounded up once."""
        pico = usage["input_tokens"] * self.input + usage["cache_read_input_tokens"] * self.cache_read
        pico += usage["cache_creation_input_tokens"] * self.cache_write + output * self.output
        return -(-pico // 1000)

    def quote(self, prompt, output):
        """Give what is held for a call whose prompt was counted, in nanodollars.

        That is 2% and 64 tokens more, all of it written to the cache, and a tenth more where another region may answer.
        """
        tokens = prompt + -(-prompt // 50) + 64
        return -(-(tokens * self.cache_write + output * self.output) * 11 // 10_000)


SONNET = Model("claude-sonnet-5-5", 2_000_000, 100_000, 2_500_000, 10_000_000, (12_000, 24_000), 48_000)
OPUS = Model("claude-opus-5-5", 4_000_000, 200_000, 5_000_000, 20_000_000, (6_000, 10_000), 18_000)


@dataclass
class Conversation:
    """An agent's, which grows from turn to turn; sizes in tokens."""

    model: Model
    number: int
    dice: random.Random
    prompt: int = 0
    cached: int = 0
    session: int = 0
    was_cut: bool = False  # the last reply stopped at a limit that was lowered

    def begin(self):
        """Begin another session, of which nothing is cached."""
        self.prompt, self.cached, self.session = self.dice.randint(*self.model.first), 0, self.session + 1
        self.was_cut = False

    def grow(self, output, *, was_cut):
        """Go on to the next turn."""
        self.cached, self.prompt = self.prompt, self.prompt + output + self.dice.randint(200, 2000)
        self.was_cut = was_cut
        if self.prompt > self.model.longest:
            self.begin()

    def usage(self):
        """Give what the provider says of the prompt."""
        new = self.prompt - self.cached - NEW
        return {"input_tokens": NEW, "cache_read_input_tokens": self.cached, "cache_creation_input_tokens": new}

    def body(self):
        size = self.prompt * BYTES_A_TOKEN
        words = f"Agent {self.number}, session {self.session}. " + SENTENCE * (size // len(SENTENCE) + 1)
        text = {"type": "text", "text": words[:size], "cache_control": {"type": "ephemeral"}}
        told = {
            "model": self.model.name,
            "max_tokens": LIMIT,
            "stream": True,
            "messages": [{"role": "user", "content": [text]}],
        }
        return json.dumps(told).encode()

    def headers(self):
        agent = {"user-agent": "claude-cli/2.1.197 (external, cli)", "x-api-key": "k"}
        return agent | {"x-claude-code-session-id": f"{self.number}-{self.session}", "anthropic-version": "2023-06-01"}


def tokens_of(body):
    """Count the tokens of a request as this provider does."""
    return sum(len(part["text"]) for message in body["messages"] for part in message["content"]) // BYTES_A_TOKEN


def reply(model, usage, output, limit, dice):
    """Make a reply's pieces, with the seconds before each: its first event after two, the last after twenty or so."""
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": model.name,
        "content": [],
        "stop_reason": None,
    }
    told = usage | {"output_tokens": 1, "service_tier": "standard", "inference_geo": "global"}
    start = {"type": "message_start", "message": message | {"usage": told}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * output}}
    stop = "max_tokens" if output == limit else "end_turn"
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": output}}
    rest_s = min(dice.expovariate(1 / 14), 120)
    yield dice.uniform(1, 3), event(start)
    yield rest_s / 2, event(block) + event(delta)
    yield rest_s / 2, event({"type": "content_block_stop", "index": 0})
    yield dice.uniform(3, 5), event(end) + event({"type": "message_stop"})


def event(data):
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()
