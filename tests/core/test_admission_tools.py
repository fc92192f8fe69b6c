"""Tools that the provider runs by itself: what they make a call cost at most, and how few of them still fit.

Prices: $1 a million input, $5 output; 200,000 tokens of context; a cent a search. A body of "hi" reads 4,096 tokens for
how the tool is described, 500 for the frame, 10 for the message, its bytes, and its schema's.
"""

import json

import pytest
from desks import Desk, body, config

from lockpin_core.engine import Answered
from lockpin_core.money import Money
from lockpin_core.settler import Admitted

PATH = "/v1/responses"
FEE = {"fees": {"web_search": "0.01"}}
WEB = {"type": "web_search"}
ROUND = Money.parse("0.21")  # one more reading of the window, and a search


def pricing():
    facts = {"max_output_tokens": "50000", "context_tokens": "200000", "tokenizer": "bytes"}
    return {"ink": {"input": "1", "output": "5", **facts, **FEE}}


def ask(desk: Desk, **more: object) -> Admitted | Answered:
    told = {"model": "ink", "input": "hi", "max_output_tokens": 1000, "tools": [WEB], "service_tier": "default", **more}
    return desk.ask(told, path=PATH)


def most(decision) -> int:
    return decision.held.call.quote.most.nano


def test_five_calls_of_tools_may_be_made_where_there_is_room():
    decision = ask(Desk(config("5", pricing=pricing())))

    assert json.loads(decision.body)["max_tool_calls"] == 5
    assert decision.held.call.degrade == ()
    # five rounds of the window and a cent each, and the request itself
    assert (
        Money.parse("1.05").nano + Money.parse("0.005").nano
        < most(decision)
        < Money.parse("1.06").nano + Money.parse("0.01").nano
    )


@pytest.mark.parametrize(("limit", "calls"), [("1.00", 4), ("0.5", 2), ("0.25", 1)])
def test_near_the_cap_fewer_calls_are_let_through(limit, calls):
    decision = ask(Desk(config(limit, pricing=pricing())))

    assert json.loads(decision.body)["max_tool_calls"] == calls
    assert decision.held.call.degrade == ("fit",)
    assert most(decision) <= Money.parse(limit).nano < most(decision) + ROUND.nano


def test_fewer_calls_think_less_where_each_sampling_has_a_budget_of_its_own():
    """Six samplings of 4,000 tokens of thinking are $0.12, two are $0.04; one call without any is just under $0.22."""
    decision = ask(Desk(config("0.28", pricing=pricing())), thinking_budget=4000)

    assert json.loads(decision.body)["max_tool_calls"] == 1
    assert Money.parse("0.25").nano < most(decision) < Money.parse("0.26").nano
    assert decision.held.call.quote.ceiling.output == 1000 + 2 * 4000


def test_a_limit_of_the_request_is_left_as_it_is_where_it_fits_and_lowered_where_it_does_not():
    assert ask(Desk(config("1", pricing=pricing())), max_tool_calls=3).body is None

    lowered = ask(Desk(config("0.5", pricing=pricing())), max_tool_calls=3)

    assert json.loads(lowered.body)["max_tool_calls"] == 2
    assert lowered.held.call.degrade == ("fit",)


def test_in_anthropics_format_each_tool_has_a_limit_of_its_own():
    tools = [
        {"type": "web_search_20250305", "name": "a", "max_uses": 8},
        {"type": "web_search_20250305", "name": "b"},
        {"type": "web_search_20250305", "name": "c", "max_uses": 1},
    ]
    told = {"model": "ink", "max_tokens": 1000, "messages": [], "tools": tools, "inference_geo": "global"}

    def limits(usd: str) -> list[int | None]:
        decision = Desk(config(usd, pricing=pricing())).ask(told, provider="anthropic")
        return [tool.get("max_uses") for tool in json.loads(decision.body)["tools"]]

    assert limits("50") == [8, 5, 1]
    # at 4 each, 4 + 4 + 1 calls of a window, a cent and 1,000 tokens of output each; at 3 each, 3 + 3 + 1
    assert limits("2.0") == [4, 4, 1]
    # below 8 + 5 + 1 calls (3.03) and above 6 + 5 + 1 (2.60): what has no limit never gets more than it is held with
    assert limits("2.7") == [6, 5, 1]
    assert limits("2.9") == [7, 5, 1]
    assert limits("1.9") == [3, 3, 1]


def test_the_refusal_says_what_the_call_would_need_without_them():
    decision = ask(Desk(config("0.1", pricing=pricing())))

    message = json.loads(decision.reply.body)["error"]["message"]
    # 4,096 + 500 + 10 tokens and not 94 more of input at $1, 1,000 of output at $5 a million
    assert message.endswith("; up to $0.0097 without the tools that the provider runs by itself")


def test_without_a_limit_in_force_nothing_is_written():
    assert ask(Desk(config(pricing=pricing()))).body is None


def test_a_call_without_tools_says_nothing_of_them():
    decision = Desk(config("0.0001")).ask(body())

    assert "tools" not in json.loads(decision.reply.body)["error"]["message"]


def test_less_output_is_tried_once_the_tools_are_as_few_as_they_can_be():
    decision = ask(Desk(config("0.25", pricing=pricing())), max_output_tokens=None)

    told = json.loads(decision.body)
    assert told["max_tool_calls"] == 1
    assert 4096 <= told["max_output_tokens"] < 32_000
    assert Money.parse("0.2499").nano < most(decision) <= Money.parse("0.25").nano


def test_a_host_that_may_serve_at_dearer_prices_is_told_what_the_call_is_held_at():
    pricing = {"some/model": {"input": "1.5", "output": "5.25", "max_output_tokens": "50000", "context_tokens": "9000"}}
    told = {"model": "some/model", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}

    capped = Desk(config("5", pricing=pricing)).ask(told, provider="openrouter", path="/api/v1/chat/completions")
    free = Desk(config(pricing=pricing)).ask(told, provider="openrouter", path="/api/v1/chat/completions")

    assert json.loads(capped.body) == told | {
        "provider": {"max_price": {"prompt": 1.5, "completion": 5.25, "request": 0}}
    }
    assert capped.body.endswith(json.dumps(told)[1:].encode())
    assert free.body is None


def test_a_host_with_one_price_is_told_nothing():
    assert Desk(config("5")).ask(body()).body is None


def test_two_runs_of_one_model_are_held_as_the_longer_prompt_that_they_are_together():
    """$1 a million up to a thousand tokens, ten times as much above: each run alone would be below."""
    bands = {"above": [{"tokens": "9000", "op": "gt", "input": "10", "output": "50"}]}
    facts = {"max_output_tokens": "50000", "context_tokens": "200000", "tokenizer": "bytes"}
    desk = Desk(config("50", pricing={"ink": {"input": "1", "output": "5", **bands, **facts}}))
    text = "x" * 6000
    told = {
        "model": "ink",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": text}],
        "inference_geo": "global",
    }

    alone = desk.ask(told, provider="anthropic")
    twice = desk.ask(told | {"fallbacks": [{"model": "ink", "max_tokens": 1000}]}, provider="anthropic")

    # 6,000 of text and at least 500 more each, 1,000 of output each; the second reads 1,500 of the first's words
    assert most(alone) < Money.parse("0.0130").nano
    assert most(twice) > 2 * (6500 * 10_000 + 1000 * 50_000)


TOOLS = (WEB, {"type": "mcp", "server_label": "s", "server_url": "https://s.example"})


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool["type"])
@pytest.mark.parametrize("limit", [None, 0, 1])
@pytest.mark.parametrize(
    ("provider", "path", "model"),
    [
        ("xai", PATH, "grok-4.3"),
        ("perplexity", PATH, "anthropic/claude-haiku-4-5"),
        ("groq", "/openai/v1/responses", "openai/gpt-oss-120b"),
        ("openrouter", "/api/v1/responses", "openai/gpt-5.4"),
        ("copilot", "/responses", "gpt-5.4"),
        ("bedrock", "/openai/v1/responses", "openai.gpt-5.4"),
    ],
)
def test_where_no_page_says_that_a_limit_on_tools_is_kept_they_are_refused(provider, path, model, limit, tool):
    told = {"model": model, "input": "hi", "max_output_tokens": 100, "tools": [tool], "max_tool_calls": limit}

    refused = Desk(config("1000")).ask(told, provider=provider, path=path)

    assert isinstance(refused, Answered)
    assert refused.code == "unpriced_tool"
    assert b'no page of it says that \\"max_tool_calls\\" limits them' in refused.reply.body
    assert provider.encode() in refused.reply.body


@pytest.mark.parametrize("provider", ["openai", "azure"])
def test_where_a_page_says_so_the_limit_is_set(provider):
    told = {"model": "gpt-5.4", "input": "hi", "max_output_tokens": 100, "tools": [WEB]}
    path = {"openai": PATH, "azure": "/openai/v1/responses"}[provider]

    admitted = Desk(config("1000")).ask(told, provider=provider, path=path)

    assert isinstance(admitted, Admitted)
    assert json.loads(admitted.body)["max_tool_calls"] == 5
