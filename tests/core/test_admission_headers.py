"""Headers and parameters of the query that make a call dearer, or hide from its reply what it cost."""

import asyncio
from dataclasses import replace

import pytest
from desks import Desk, config

from lockpin_core.admission import Incoming
from lockpin_core.call import Terms
from lockpin_core.engine import Answered, Passed
from lockpin_core.settler import Admitted

MODELS = "/v1/projects/p/locations/global/publishers"
GEMINI = f"{MODELS}/google/models/gemini-2.5-flash:generateContent"
CLAUDE = f"{MODELS}/anthropic/models/claude-sonnet-4-5:rawPredict"
PROMPT = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": {"maxOutputTokens": 9}}
MESSAGES = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
TIER = "x-vertex-ai-llm-shared-request-type"
CAPACITY = "x-vertex-ai-llm-request-type"


def incoming(desk: Desk, wire: str, headers: dict[str, str], query: str = "") -> Incoming:
    provider, path, told = {
        "gemini": ("vertex", GEMINI, PROMPT),
        "claude": ("vertex", CLAUDE, MESSAGES),
        "studio": ("gemini", "/v1beta/models/gemini-2.5-flash:generateContent", PROMPT),
        "chat": ("gemini", "/v1beta/openai/chat/completions", {**MESSAGES, "model": "gemini-2.5-flash"}),
        "bedrock": ("bedrock", "/anthropic/v1/messages", {**MESSAGES, "model": "ink"}),
    }[wire]
    return replace(desk.incoming(told, provider=provider, path=path, headers=headers), query=query)


def admit(wire: str, headers: dict[str, str], query: str = "", limit: str | None = "9"):
    desk = Desk(config(limit) if limit else None)
    return asyncio.run(desk.engine.admit(incoming(desk, wire, headers, query)))


def refused(decision: object) -> str:
    assert isinstance(decision, Answered)
    assert decision.code == "unpriced_tool"
    return decision.reply.body.decode()


@pytest.mark.parametrize("wire", ["gemini", "claude", "studio", "chat", "bedrock"])
def test_without_any_of_them_a_call_is_admitted(wire: str):
    assert isinstance(
        admit(wire, {"x-goog-user-project": "p", "x-gemini-api-client": "c", "x-amzn-trace-id": "t"}, "?alt=sse&key=k"),
        Admitted,
    )


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        ("claude", TIER),
        ("claude", CAPACITY),
        ("gemini", "x-vertex-ai-llm-anything"),
        ("gemini", "x-goog-service-tier"),
        ("gemini", "x-gemini-service-tier"),
        ("studio", "x-gemini-service-tier"),
        ("bedrock", "x-amzn-bedrock-service-tier"),
        ("bedrock", "x-amzn-bedrock-performanceconfig-latency"),
        ("bedrock", "x-amzn-bedrock-guardrailidentifier"),
        ("gemini", "x-goog-fieldmask"),
        ("studio", "x-goog-fieldmask"),
        ("chat", "x-goog-fieldmask"),
        ("claude", "x-goog-fieldmask"),
    ],
)
def test_a_header_that_the_wire_does_not_read_is_refused_by_name(wire: str, name: str):
    assert f"header {name} " in refused(admit(wire, {name: "priority"}))


@pytest.mark.parametrize("wire", ["gemini", "claude", "studio", "chat"])
@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("?fields=candidates", "fields"),
        ("?alt=sse&$fields=candidates", "$fields"),
        ("?%24fields=a", "$fields"),
        ("?fields", "fields"),
        ("?field%73=a", "fields"),
    ],
)
def test_a_mask_of_the_reply_is_refused(wire: str, query: str, name: str):
    assert f"query parameter {name} " in refused(admit(wire, {}, query))


def test_the_tier_that_the_wire_reads_is_priced():
    decision = admit("gemini", {TIER: "priority", CAPACITY: "shared"})

    assert isinstance(decision, Admitted)
    assert decision.held.call.terms == Terms(tier="priority")


def test_an_unknown_capacity_is_refused():
    assert "x-vertex-ai-llm-request-type" in refused(admit("gemini", {CAPACITY: "fast"}))


def test_without_a_limit_such_a_call_passes_and_is_recorded():
    assert admit("claude", {TIER: "priority"}, limit=None) == Passed(uncapped="unpriced")


def test_a_location_in_the_path_is_held_and_charged_at_the_regional_price():
    quotes, charges = [], []
    for place in ("global", "us-east5"):
        desk = Desk(config("9"))
        came = incoming(desk, "claude", {})
        admitted = asyncio.run(desk.engine.admit(replace(came, path=came.path.replace("global", place))))
        quotes.append(admitted.held.call.quote.most.nano)
        charges.append(desk.settle(admitted, 1000).charge.amount.nano)

    # A thousand tokens at $15 a million are 1.5 cents; in a region they are a tenth more.
    assert charges == [15_000_000, 16_500_000]
    assert quotes[1] * 10 == quotes[0] * 11
