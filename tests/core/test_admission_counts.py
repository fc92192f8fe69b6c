"""Who counts a prompt, what is remembered of it, and that a count fails no call."""

import asyncio
import json
from dataclasses import replace

import desks
import pytest
from desks import Desk, body

from lockpin_core.admission import Priced
from lockpin_core.admission_counts import CountAsk, Counts
from lockpin_core.call import Image
from lockpin_core.wire import wire_named

MESSAGES = {"model": "pen", "max_tokens": 10, "messages": [{"role": "user", "content": "hi there"}]}
URL = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}


class Endpoint:
    """A provider's counting endpoint: says `answer`, and remembers what it was asked."""

    def __init__(self, answer: bytes | None = b'{"input_tokens": 1000}', delay_s: float = 0) -> None:
        self.answer, self.delay_s = answer, delay_s
        self.asked: list[CountAsk] = []

    async def __call__(self, ask: CountAsk) -> bytes | None:
        self.asked.append(ask)
        await asyncio.sleep(self.delay_s)
        return self.answer


def priced(told: dict = MESSAGES, provider: str = "anthropic", tokenizer: str = "claude", **headers: str) -> Priced:
    desk = Desk()
    incoming = desk.incoming(told, provider=provider, headers=headers)
    wire = wire_named("anthropic_messages" if provider == "anthropic" else "openai_chat")
    parsed = wire.parse(incoming.request())
    model = replace(desk.prices.find(provider, parsed.model, desks.NOW), tokenizer=tokenizer)
    return Priced(incoming, wire, parsed, model, desk.prices, desks.NOW)


def counted(counts: Counts, call: Priced, digest: bytes = b"d") -> int | None:
    found = asyncio.run(counts.counted(call, digest))
    return None if found is None else found.parsed.content.counted


def test_the_provider_is_asked_on_the_calls_own_host_and_its_count_gets_room():
    endpoint = Endpoint()

    assert counted(Counts(endpoint), priced(**{"x-api-key": "k"})) == 1000 + 20 + 64
    (ask,) = endpoint.asked
    assert (ask.provider, ask.host, ask.path) == ("anthropic", "api.anthropic.com", "/v1/messages/count_tokens")
    assert ask.headers["x-api-key"] == "k"
    assert json.loads(ask.body) == {"model": "pen", "messages": MESSAGES["messages"]}


def test_the_same_content_is_asked_for_once():
    endpoint = Endpoint()
    counts = Counts(endpoint)

    assert counted(counts, priced(), b"one") == counted(counts, priced(), b"one") == 1084
    assert counted(counts, priced(), b"other") == 1084
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize("change", [{"hidden": "conversation"}, {"images": (Image(),)}], ids=["id", "address"])
def test_what_the_body_does_not_show_is_counted_anew_each_time(change):
    """Behind an id or an address there may be more than there was: an old count would be too low."""
    endpoint = Endpoint()
    counts, call = Counts(endpoint), priced()
    hides = replace(call, parsed=replace(call.parsed, content=replace(call.parsed.content, **change)))

    assert counted(counts, hides) == 1084
    endpoint.answer = b'{"input_tokens": 5000}'
    assert counted(counts, hides) == 5000 + 100 + 64


@pytest.mark.parametrize("answer", [None, b"", b"nonsense", b"[]", b'{"input_tokens": -1}'])
def test_an_answer_that_says_nothing_leaves_the_bound_as_it_is(answer):
    assert counted(Counts(Endpoint(answer)), priced()) is None


def test_a_count_that_takes_too_long_is_given_up():
    endpoint = Endpoint(delay_s=3600)

    assert counted(Counts(endpoint, patience_s=0.01), priced()) is None
    assert len(endpoint.asked) == 1


def test_nobody_is_asked_where_nobody_may_be():
    endpoint = Endpoint()

    assert counted(Counts(None), priced()) is None
    assert counted(Counts(endpoint), priced(authorization="Bearer sk-ant-oat01-x")) is None  # attested bodies
    assert counted(Counts(endpoint), priced(body(), "openai", "unheard-of")) is None  # no endpoint counts these
    assert endpoint.asked == []


def test_an_own_tokenizer_counts_without_asking():
    """The sentence is nine tokens of o200k_base, the numbers two, the member max_completion_tokens three, and the six
    other names one each; 500 and 10 are for the frame and the message."""
    text = "The quick brown fox jumps over the lazy dog"
    endpoint = Endpoint()

    found = counted(
        Counts(endpoint), priced(body(messages=[{"role": "user", "content": text}]), "openai", "o200k_base")
    )

    assert found == 9 + 2 + 3 + 6 + 500 + 10
    assert endpoint.asked == []
