"""What a call to Amazon Bedrock is held and charged at: by the place in its model's name, else by the host's region."""

import json
from dataclasses import replace

import frames
import pricebook
import pytest
from desks import NOW, PROVIDERS

from lockpin_core.admission import Incoming, Priced, Refused, body_change, limit_to_set, priced
from lockpin_core.call import Ending, Outcome, Payers, Portion, Reading, Terms
from lockpin_core.config import Config
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Metered
from lockpin_core.settlement import price_still_possible, settle
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named

ARN = "arn:aws:bedrock:eu-west-1:1:application-inference-profile/own"
WRITES = "arn:aws:bedrock:us-west-2:1:application-inference-profile/writes"
OWN = {"input": "10", "output": "100", "max_output_tokens": "5000", "context_tokens": "100000"}
PRICES = PriceTable.load(
    shipped_dir(),
    {
        ARN: OWN,
        WRITES: OWN | {"cache_write": {"5m": "30"}},
        "endless": {"input": "1", "output": "1", "context_tokens": "9000"},
    },
)
US, EU, GOV = (f"bedrock-runtime.{region}.amazonaws.com" for region in ("us-west-2", "eu-west-2", "us-gov-west-1"))
HI = [{"role": "user", "content": [{"text": "hi"}]}]
SIGNED = {"authorization": "AWS4-HMAC-SHA256 Credential=AK/20261129/us-east-1/bedrock/aws4_request, Signature=0"}
MILLION = {Unit.INPUT: 10**6, Unit.OUTPUT: 10**6}


def ask(model: str, told: dict | None = None, *, host: str = US, verb: str = "converse", **headers: str) -> Priced:
    provider = PROVIDERS.for_host(host)
    path = f"/model/{model.replace('/', '%2F')}/{verb}"
    route = provider.route("POST", path)
    assert isinstance(route, Metered)
    body = {"messages": HI, "inferenceConfig": {"maxTokens": 500}} if told is None else told
    came = Incoming(
        "c", provider, host, "POST", path, headers, json.dumps(body).encode(), False, Payers("t", "box"), "x/1",
        path_model=route.model,
    )  # fmt: skip
    wire = wire_named(route.wire)
    return priced(came, wire, wire.parse(came.request()), PRICES, NOW)


def million(model: str, host: str = US) -> int:
    """Price a million tokens in and as many out, in micro-dollars."""
    pico, _ = ask(model, host=host).tariff(Config(None, shipped_dir())).price(None, MILLION, Terms())
    return pico // 10**6


@pytest.mark.parametrize(
    ("model", "host", "dollars"),
    [
        ("anthropic.claude-opus-5-5", US, "26.4"),  # a region's price, a tenth above everywhere's
        ("us.anthropic.claude-opus-5-5", US, "26.4"),
        ("eu.anthropic.claude-opus-5-5", EU, "26.4"),
        ("global.anthropic.claude-opus-5-5", EU, "24"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", US, "33"),
        ("anthropic.claude-opus-4-6-v1", US, "33"),
        ("global.anthropic.claude-opus-4-6-v1", EU, "30"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", US, "19.8"),
        ("apac.anthropic.claude-sonnet-4-20250514-v1:0", EU, "18"),
        ("anthropic.claude-sonnet-4-6", EU, "19.8"),
        ("amazon.nova-lite-v1:0", US, "0.3"),
        ("us.amazon.nova-lite-v1:0", US, "0.3"),
        ("eu.amazon.nova-lite-v1:0", EU, "0.39"),
        ("amazon.nova-lite-v1:0", EU, "0.396"),  # 1.32 times as much, which is at least 0.39
        ("meta.llama3-3-70b-instruct-v1:0", US, "1.44"),
        ("us.meta.llama3-3-70b-instruct-v1:0", US, "1.44"),
        ("meta.llama3-3-70b-instruct-v1:0", EU, "2.448"),  # 1.7 times: whose region's price nobody states
        ("deepseek.v3.2", EU, "2.964"),
        (ARN, US, "110"),
        (ARN, EU, "110"),
    ],
)
def test_a_million_tokens_in_and_out_cost_what_the_place_says(model: str, host: str, dollars: str):
    assert million(model, host) == int(float(dollars) * 10**6 + 0.5)


# litellm's entries of single regions: (model, region) → dollars for a million in and out.
REGIONS = {
    ("meta.llama3-70b-instruct-v1:0", "sa-east-1"): (4.45, 5.88),
    ("meta.llama3-8b-instruct-v1:0", "sa-east-1"): (0.5, 1.01),
    ("minimax.minimax-m2.1", "eu-west-2"): (0.47, 1.86),
    ("mistral.mistral-7b-instruct-v0:2", "eu-west-3"): (0.2, 0.26),
    ("mistral.mixtral-8x7b-instruct-v0:1", "eu-west-3"): (0.59, 0.91),
    ("mistral.mistral-large-2402-v1:0", "eu-west-3"): (5.2, 15.6),
    ("mistral.voxtral-small-24b-2507", "eu-west-2"): (0.16, 0.47),
    ("moonshotai.kimi-k2-thinking", "ap-northeast-1"): (0.73, 3.03),
    ("moonshotai.kimi-k2.5", "sa-east-1"): (0.72, 3.6),
    ("nvidia.nemotron-super-3-120b", "eu-west-2"): (0.23, 1.01),
    ("qwen.qwen3-coder-next", "eu-west-2"): (0.78, 1.86),
    ("qwen.qwen3-next-80b-a3b", "eu-west-2"): (0.23, 1.86),
    ("deepseek.v3.2", "sa-east-1"): (0.74, 2.22),
}


@pytest.mark.parametrize(("model", "region"), REGIONS)
def test_a_models_price_elsewhere_is_at_least_that_of_any_region(model: str, region: str):
    host = f"bedrock-runtime.{region}.amazonaws.com"
    tariff = ask(model, host=host).tariff(Config(None, shipped_dir()))

    for unit, dollars in zip((Unit.INPUT, Unit.OUTPUT), REGIONS[model, region], strict=True):
        pico, _ = tariff.price(None, {unit: 10**6}, Terms())
        assert pico >= round(dollars * 10**6) * 10**6


def test_government_regions_have_no_price():
    provider = PROVIDERS.for_host(GOV)

    assert (provider.name, provider.wires) == ("bedrock_gov", {})
    assert not any(model.provider == "bedrock_gov" for model in PRICES.models("bedrock_gov"))


@pytest.mark.parametrize("model", ["us-gov.anthropic.claude-opus-5", "amazon.nova-sonic-v1:0", "x.y", ARN + "2"])
def test_what_has_no_price_is_refused(model: str):
    with pytest.raises(Refused) as refused:
        ask(model)

    assert refused.value.code == "unknown_model"


# The reply


def test_a_reply_that_leaves_the_place_out_is_charged_at_the_requests():
    """Its maker's name alone is that of the dearer region."""
    tariff = ask("global.anthropic.claude-opus-5-5").tariff(Config(None, shipped_dir()))

    for said in ("claude-opus-5-5", "anthropic.claude-opus-5-5", None, "unheard-of"):
        assert tariff.price(said, MILLION, Terms()) == (24 * 10**12, "global.anthropic.claude-opus-5-5")
    assert tariff.price("claude-sonnet-5-5", MILLION, Terms()) == (13_200_000_000_000, "anthropic.claude-sonnet-5-5")


def test_a_reply_whose_name_is_the_end_of_no_other_is_never_taken_for_the_requests():
    """Elsewhere than on Bedrock no vendor has two models of which one's name is the other's behind a dot."""
    for vendor, shelf in PRICES.shipped.items():
        names = {*shelf}
        ends = {(name, name[at + 1 :]) for name in names for at, char in enumerate(name) if char == "."}
        found = {(name, end) for name, end in ends if end in names}
        assert not found if vendor != "bedrock" else all(name.count(".") > 1 for name, _ in found)


# Limits


def test_a_limit_that_is_stated_is_held_in_full_also_above_what_the_table_says():
    """Of other makers' models it may be too low; and a call that asks for too much is refused by Amazon itself."""
    call = ask("amazon.nova-lite-v1:0", {"messages": HI, "inferenceConfig": {"maxTokens": 40_000}}).call(None)

    assert (call.output_limit, call.quote.ceiling.output) == (40_000, 40_000)


def test_without_a_limit_the_models_maximum_is_held_and_without_one_the_call_is_refused():
    call = ask("amazon.nova-lite-v1:0", {"messages": HI}, **SIGNED).call(None)

    assert (call.output_limit, call.quote.ceiling.output) == (10_000, 10_000)
    with pytest.raises(Refused, match="has no bound"):
        ask("endless", {"messages": HI}, **SIGNED).call(None)
    found = ask("endless", {"messages": HI})
    assert found.call(700).quote.ceiling.output == 700


def test_behind_an_arn_the_maximum_is_held_whatever_an_invoked_body_says():
    body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}

    call = ask(ARN, body, verb="invoke").call(None)

    assert (call.output_limit, call.quote.ceiling.output) == (5000, 5000)


def test_behind_an_arn_the_same_is_held_whether_it_converses_or_is_invoked():
    """Its model may write to its cache unasked, at the dearest rate of a prompt."""
    body = {"max_tokens": 5000, "messages": [{"role": "user", "content": "hi"}]}
    invoked = ask(WRITES, body, verb="invoke").call(None).quote
    conversed = ask(WRITES, {"messages": HI}, **SIGNED).call(None).quote

    assert invoked.ceiling.prompt_units == conversed.ceiling.prompt_units == {Unit.INPUT, Unit.CACHE_WRITE_5M}
    for most in (invoked, conversed):
        assert most.most.nano == most.ceiling.prompt * 30_000 + 5000 * 100_000


# A stream of InvokeModel that tells of its cache late


LATE = {
    "inputTokenCount": 10,
    "outputTokenCount": 9,
    "cacheReadInputTokenCount": 400,
    "cacheWriteInputTokenCount": 9000,
}
NOT_YET = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}


def late_stream(told: dict) -> list[bytes]:
    usage = {"input_tokens": 10, "output_tokens": 1, **told}
    start = {"type": "message_start", "message": {"id": "m", "model": "claude-opus-5-5", "usage": usage}}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hello"}}
    totals = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
    end = {"type": "message_stop", "amazon-bedrock-invocationMetrics": LATE}
    return [frames.chunk(event) for event in (start, delta, totals, end)]


def late_call() -> Priced:
    block = {"type": "text", "text": "hi " * 10_000, "cache_control": {"type": "ephemeral"}}
    body = {"max_tokens": 500, "messages": [{"role": "user", "content": [block]}]}
    return ask("us.anthropic.claude-opus-5-5", body, verb="invoke-with-response-stream")


def read(found: Priced, stream: bytes) -> Reading:
    scanner = found.wire.scanner(streamed=True, asked=found.parsed)
    scanner.feed(stream)
    return scanner.result()


@pytest.mark.parametrize("told", [{}, NOT_YET], ids=["nothing", "0"])
@pytest.mark.parametrize("ending", [Ending.CUT, Ending.CLIENT_LEFT, Ending.DONE])
def test_wherever_a_stream_is_cut_its_charge_is_no_less_than_that_of_the_whole(told: dict, ending: Ending):
    found, whole = late_call(), b"".join(late_stream(told))
    call, tariff = found.call(None), found.tariff(Config(None, shipped_dir()))
    # 4.40 dollars a million in a region; cache writes 1.25 times, reads 0.22; 22 for the output.
    true = 10 * 4_400 + 9_000 * 5_500 + 400 * 220 + 9 * 22_000

    charges = [settle(call, read(found, whole[:at]), Outcome(ending, 200), tariff) for at in range(len(whole) + 1)]

    assert charges[-1].amount == Money(true)
    assert not charges[-1].estimated
    assert {charge.amount for charge in charges[:-1]} == {call.quote.most}
    assert call.quote.most > Money(true)


@pytest.mark.parametrize("told", [{}, NOT_YET], ids=["nothing", "0"])
def test_a_hold_does_not_shrink_before_the_cache_was_told_of(told: dict):
    found = late_call()
    call, tariff = found.call(None), found.tariff(Config(None, shipped_dir()))
    parts = late_stream(told)

    for count in range(1, len(parts) + 1):
        assert price_still_possible(call, read(found, b"".join(parts[:count])), tariff) is None
    early = late_stream({"cache_read_input_tokens": 400, "cache_creation_input_tokens": 9000})
    still, _ = price_still_possible(call, read(found, early[0]), tariff)
    assert still < call.quote.most


# A signature in the query


SIGNED_QUERY = "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK&X-Amz-SignedHeaders=host&X-Amz-Signature=0"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/model/us.anthropic.claude-opus-5-5/converse", {"messages": HI}),
        ("/model/us.anthropic.claude-opus-5-5/invoke", {"messages": [{"role": "user", "content": "hi"}]}),
        (
            "/anthropic/v1/messages",
            {"model": "anthropic.claude-opus-5-5", "messages": [{"role": "user", "content": "x"}]},
        ),
        ("/v1/responses", {"model": "openai.gpt-oss-120b-1:0", "input": "hi", "stream": True}),
        ("/v1/chat/completions", {"model": "openai.gpt-oss-120b-1:0", "messages": [{"role": "user", "content": "x"}]}),
    ],
)
def test_a_body_that_was_signed_beforehand_leaves_byte_for_byte(path: str, body: dict):
    provider = PROVIDERS.for_host(US)
    route = provider.route("POST", path + SIGNED_QUERY)
    wire = wire_named(route.wire)

    def found(query: str) -> Priced:
        came = Incoming(
            "c", provider, US, "POST", path, {}, json.dumps(body).encode(), False, Payers("t", "box"), "x/1",
            path_model=route.model, query=query,
        )  # fmt: skip
        return priced(came, wire, wire.parse(came.request()), PRICES, NOW)

    config = Config(None, shipped_dir())
    plain, signed = found("?a=b"), found(SIGNED_QUERY)

    assert (signed.parsed.attested, signed.parsed.output_settable) == (True, False)
    assert limit_to_set(signed, config, capped=True) is None
    assert body_change(signed, signed.call(None)) is None
    assert (plain.parsed.attested, plain.parsed.output_settable) == (False, True)
    assert limit_to_set(plain, config, capped=True) is not None


# Terms


@pytest.mark.parametrize("verb", ["converse", "invoke"])
@pytest.mark.parametrize("terms", ["priority", "optimized"])
def test_a_tier_or_latency_without_a_price_is_refused(verb: str, terms: str):
    tier, latency = "x-amzn-bedrock-service-tier", "x-amzn-bedrock-performanceconfig-latency"
    asked = {"serviceTier": {"type": terms}} if terms == "priority" else {"performanceConfig": {"latency": terms}}
    headers = {} if verb == "converse" else {tier if terms == "priority" else latency: terms}
    invoked = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}

    with pytest.raises(Refused, match="has no price for") as refused:
        found = ask(
            "us.anthropic.claude-opus-5-5",
            {"messages": HI, **asked} if verb == "converse" else invoked,
            verb=verb,
            **headers,
        )
        found.call(500)
    assert refused.value.code == "unpriced_tool"


def test_a_tier_that_has_a_price_is_held_and_charged_at_what_the_reply_states():
    found = ask("openai.gpt-oss-120b-1:0", {"messages": HI, "serviceTier": {"type": "priority"}})
    plain = ask("openai.gpt-oss-120b-1:0", {"messages": HI})
    used = Reading(portions=(Portion(None, MILLION),), complete=True, terminal=True)

    def charged(tier: str | None) -> Money:
        reading = replace(used, terms=Terms(tier=tier))
        tariff = found.tariff(Config(None, shipped_dir()))
        return settle(found.call(500), reading, Outcome(Ending.DONE, 200), tariff).amount

    assert found.call(500).quote.most > plain.call(500).quote.most
    # 0.15 and 0.6 dollars: priority costs 1.75 times as much, flex half.
    assert [charged(tier) for tier in ("priority", "default", "flex", None)] == [
        Money.parse(usd) for usd in ("1.3125", "0.75", "0.375", "1.3125")
    ]


def test_every_model_says_what_it_costs_elsewhere():
    assert pricebook.file_of("bedrock")["unlisted_geo"] == "1"
    assert all(model.geos for model in PRICES.models("bedrock") if not model.user)
