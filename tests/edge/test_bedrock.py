"""Amazon Bedrock's own formats through real proxies: signed and not, in one body and in frames, as its SDKs send them.

Prices are made up so that no two units can be mixed up, for a model whose name has a colon and for an ARN.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import quote

import anthropic
import client
import counting
import frames
import processes
import pytest
import sdks
from processes import DATA, until

MODEL, ARN = "us.anthropic.claude-own-v1:0", "arn:aws:bedrock:us-east-1:1:application-inference-profile/Own1"
RATES = {"input": "3", "output": "17", "cache_read": "0.3", "cache_write_5m": "4.1", "cache_write_1h": "7.3"}
CONFIG = """
upstreams: {{bedrock-runtime.us-east-1.amazonaws.com: "{origin}"}}
daily_usd: 100
queue: {{wait: 0s}}
pricing:
  "{model}": {{input: 3, output: 17, cache_read: 0.3, cache_write: {{5m: 4.1, 1h: 7.3}}, max_output_tokens: 32000,
    context_tokens: 200000}}
  "{arn}": {{input: 3, output: 17, cache_read: 0.3, cache_write: {{5m: 4.1, 1h: 7.3}}, max_output_tokens: 32000,
    context_tokens: 200000}}
  dear: {{input: 1000000, output: 0, max_output_tokens: 32000, context_tokens: 200000}}
"""
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=AK/20261129/us-east-1/bedrock/aws4_request, "
    "SignedHeaders=content-type;host;x-amz-date, Signature=0"
)
PRESIGNED = (
    "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F20261129&X-Amz-SignedHeaders=host&X-Amz-Signature=0"
)
LIMIT = 8192
HI = [{"role": "user", "content": [{"text": "hi"}]}]
CONVERSE = {"messages": HI, "inferenceConfig": {"maxTokens": LIMIT}}
POINT = {"cachePoint": {"type": "default", "ttl": "1h"}}
INVOKE = {
    "anthropic_version": "bedrock-2023-05-31",
    "max_tokens": LIMIT,
    "messages": [{"role": "user", "content": "hi"}],
}
FRAMED = {"type": "application/vnd.amazon.eventstream", "chunk": 7}


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy

    def call(self, verb: str, body: object, model: str = MODEL, *, task: str = "t", order: dict, **headers: str):
        told = {"x_origin": json.dumps(order), "x_lockpin_task": task, "authorization": "Bearer k"} | headers
        return client.call(self.proxy, f"/bedrock/model/{quote(model, safe='')}/{verb}", body, **told)

    def rows(self, answer: client.Answer) -> list:
        query = "SELECT * FROM rows WHERE call = ? AND kind != 'shrink' ORDER BY id"
        call = answer.headers["x-lockpin-call"]
        return until(lambda: len(found := self.proxy.rows(query, call)) == 2 and found)


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("bedrock")
    with processes.origin(folder) as origin:
        config = CONFIG.format(origin=origin.url, model=MODEL, arn=ARN)
        with processes.proxy(folder, config, kind=request.param) as proxy:
            yield Rig(origin, proxy)
            until(lambda: not proxy.rows("SELECT 1 FROM open_holds"))
            assert "Traceback" not in proxy.printed()


def nano(usage: dict[str, int]) -> int:
    """Price units: a dollar per million tokens is a thousand nanodollars a token; rounded up once."""
    return -int(-sum(Decimal(RATES[unit]) * 1000 * count for unit, count in usage.items()) // 1)


def sample(wire: str, name: str) -> tuple[bytes, dict]:
    """Give a recorded reply and the units that it states."""
    path = DATA / wire / name
    usage = json.loads(path.with_name(name + ".expect.json").read_text())["usage"] or {}
    units = {unit.removesuffix("_uncached"): usage.get(unit, 0) for unit in (*RATES, "input_uncached")}
    return path.read_bytes(), {unit: count for unit, count in units.items() if count}


WHOLE = {"file": "bedrock_converse/bedrock_converse.json"}
USED = {"input": 120, "cache_read": 3000, "cache_write_5m": 500, "cache_write_1h": 1000, "output": 77}


@pytest.mark.parametrize("model", [MODEL, ARN])
def test_a_whole_reply_passes_unchanged_and_is_charged_what_it_states(rig, model):
    answer = rig.call("converse", {**CONVERSE, "system": [POINT]}, model, order=WHOLE)

    assert (answer.status, answer.body) == (200, sample("bedrock_converse", "bedrock_converse.json")[0])
    hold, charge = rig.rows(answer)
    assert json.loads(charge["usage"]) == USED
    assert (charge["usd"], charge["estimated"]) == (nano(USED), 0)
    assert charge["usd"] <= hold["usd"]
    assert Decimal(answer.headers["x-lockpin-cost-usd"]) * 10**9 == nano(USED)
    assert rig.origin.calls()[-1]["path"] == f"/model/{quote(model, safe='')}/converse"


@pytest.mark.parametrize(
    ("wire", "verb", "name"),
    [
        ("bedrock_converse", "converse-stream", "bedrock_converse_stream.eventstream.bin"),
        ("bedrock_invoke", "invoke-with-response-stream", "bedrock_invoke_stream_anthropic.eventstream.bin"),
    ],
)
@pytest.mark.parametrize("authorization", ["Bearer k", SIGNED])
def test_a_stream_passes_byte_for_byte_and_is_charged_what_it_states(rig, wire, verb, name, authorization):
    marked = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    invoked = INVOKE | {"messages": [{"role": "user", "content": [marked]}]}
    body = invoked if wire == "bedrock_invoke" else {**CONVERSE, "system": [POINT]}
    order = {"file": f"{wire}/{name}", **FRAMED}

    answer = rig.call(verb, body, order=order, authorization=authorization)

    raw, usage = sample(wire, name)
    assert (answer.status, answer.body) == (200, raw)
    assert answer.headers["content-type"] == FRAMED["type"]
    _, charge = rig.rows(answer)
    assert json.loads(charge["usage"]) == usage
    assert (charge["usd"], charge["reason"], charge["estimated"]) == (nano(usage), None, 0)


def test_a_stream_without_its_metadata_is_charged_its_hold(rig):
    name = "bedrock_converse/bedrock_converse_stream_no_metadata.eventstream.bin"

    hold, charge = rig.rows(rig.call("converse-stream", CONVERSE, order={"file": name, **FRAMED}))

    assert (charge["usd"], charge["reason"]) == (hold["usd"], "stream_cut")


@pytest.mark.parametrize("place", [100, -3])
def test_a_stream_that_is_not_as_it_was_sent_passes_and_is_charged_its_hold(rig, place):
    good = frames.frame("contentBlockDelta", {"delta": {"text": "x" * 80}})
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    wrong = bytearray(good + frames.frame("metadata", {"usage": usage}))
    wrong[place] ^= 1
    order = {"base64": base64.b64encode(wrong).decode(), **FRAMED}

    answer = rig.call("converse-stream", CONVERSE, order=order)

    assert answer.body == bytes(wrong)
    hold, charge = rig.rows(answer)
    assert (charge["usd"], charge["estimated"]) == (hold["usd"], 1)


def test_an_exception_in_a_stream_leaves_what_was_generated_to_pay(rig):
    """The prompt as the first event stated it; of the output, which thought, what a second allows for and more."""
    name = "bedrock_invoke/bedrock_invoke_stream_exception.eventstream.bin"
    marked = {"type": "text", "text": "hi " * 50_000, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = INVOKE | {"messages": [{"role": "user", "content": [marked]}]}

    answer = rig.call("invoke-with-response-stream", body, order={"file": name, **FRAMED, "chunk": 200})

    hold, charge = rig.rows(answer)
    (shrunk,) = rig.proxy.rows(
        "SELECT usd FROM rows WHERE kind = 'shrink' AND call = ?", answer.headers["x-lockpin-call"]
    )
    assert shrunk["usd"] < hold["usd"]  # the first event states the prompt
    assert charge["reason"] == "stream_cut"
    used = json.loads(charge["usage"])
    assert used | {"output": 0} == {"input": 2095, "cache_read": 40960, "cache_write_1h": 512, "output": 0}
    assert 400 + 512 <= used["output"] < LIMIT
    assert charge["usd"] == nano(used) < hold["usd"]


@pytest.mark.parametrize("authorization", ["Bearer k", SIGNED])
def test_without_a_limit_one_is_set_in_a_body_that_may_change_and_a_signed_one_is_held_at_the_models(
    rig, authorization
):
    body = json.dumps({"messages": HI}).encode() + b" \n"

    answer = rig.call("converse", body, order=WHOLE, authorization=authorization)

    sent = rig.origin.calls()[-1]["body"]
    is_signed = authorization == SIGNED
    assert sent == (body.decode() if is_signed else '{"inferenceConfig":{"maxTokens":32000},' + body.decode()[1:])
    hold, _ = rig.rows(answer)
    assert hold["output_limit"] == 32000
    assert hold["usd"] >= 32000 * 17000
    assert answer.headers.get("x-lockpin-output-limit") == (None if is_signed else "32000")


def test_a_body_that_was_signed_beforehand_leaves_byte_for_byte_with_its_query(rig):
    body = json.dumps({"messages": HI}).encode() + b" \n"

    answer = rig.call(f"converse{PRESIGNED}", body, order=WHOLE)

    sent = rig.origin.calls()[-1]
    assert (sent["body"], sent["path"]) == (body.decode(), f"/model/{quote(MODEL, safe='')}/converse{PRESIGNED}")
    hold, _ = rig.rows(answer)
    assert (hold["output_limit"], answer.headers.get("x-lockpin-output-limit")) == (32000, None)


@pytest.mark.parametrize("told", [{}, {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}])
def test_a_stream_that_tells_of_its_cache_at_its_end_is_charged_all_of_it_or_its_hold(rig, told):
    marked = {"type": "text", "text": "hi " * 50_000, "cache_control": {"type": "ephemeral"}}
    body = INVOKE | {"messages": [{"role": "user", "content": [marked]}]}
    metrics = {"inputTokenCount": 10, "outputTokenCount": 5, "cacheReadInputTokenCount": 0}
    events = (
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 10, "output_tokens": 1, **told}}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hello"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop", "amazon-bedrock-invocationMetrics": {**metrics, "cacheWriteInputTokenCount": 90_000}},
    )
    for count, is_whole in ((4, True), (3, False)):
        stream = b"".join(map(frames.chunk, events[:count]))
        order = {"base64": base64.b64encode(stream).decode(), **FRAMED, "chunk": 100}

        hold, charge = rig.rows(rig.call("invoke-with-response-stream", body, order=order))

        true = nano({"input": 10, "cache_write_5m": 90_000, "output": 5})
        assert (charge["usd"], charge["estimated"], charge["over_hold"]) == (
            (true, 0, 0) if is_whole else (hold["usd"], 1, 0)
        )
        assert true < hold["usd"]


def test_behind_an_arn_the_models_maximum_is_held_whatever_an_invoked_body_says(rig):
    order = {"body": json.dumps({"type": "message", "content": [], "usage": {"input_tokens": 9, "output_tokens": 5}})}

    hold, charge = rig.rows(rig.call("invoke", INVOKE, ARN, order=order))

    assert (hold["output_limit"], charge["usd"]) == (32000, 9 * 3000 + 5 * 17000)
    assert json.loads(rig.origin.calls()[-1]["body"]) == INVOKE


@pytest.mark.parametrize(
    ("status", "name"), [(400, "400"), (403, "403_signature"), (424, "424"), (429, "429"), (500, "500"), (503, "503")]
)
def test_an_error_passes_unchanged_and_costs_nothing_or_its_estimated_input(rig, status, name):
    told = {"x-amzn-errortype": "SomeException"}
    order = {"file": f"bedrock_converse/bedrock_error_{name}.json", "status": status, "headers": told}

    answer = rig.call("converse", CONVERSE, order=order)

    assert (answer.status, answer.headers["x-amzn-errortype"]) == (status, "SomeException")
    assert answer.body == (DATA / order["file"]).read_bytes()
    _, end = rig.rows(answer)
    tokens = -(-len(json.dumps(CONVERSE)) // 3)
    assert (end["kind"], end["usd"]) == (("void", 0) if status < 500 else ("charge", nano({"input": tokens})))


def test_a_call_that_ran_into_its_timeout_is_charged_its_hold(rig):
    hold, end = rig.rows(rig.call("converse", CONVERSE, order={"status": 408, "body": '{"message":"x"}'}))

    assert (end["kind"], end["usd"], end["reason"]) == ("charge", hold["usd"], "billed_error")


@pytest.mark.parametrize(
    ("verb", "body", "model", "status", "code", "error"),
    [
        ("converse", {"messages": HI}, "dear", 402, "budget_exceeded", "ServiceQuotaExceededException"),
        ("converse-stream", {"messages": HI}, "dear", 402, "budget_exceeded", "ServiceQuotaExceededException"),
        ("converse", CONVERSE, "unheard.of", 400, "unknown_model", "ValidationException"),
        ("invoke", INVOKE, ARN + "2", 400, "unknown_model", "ValidationException"),
        ("invoke", INVOKE | {"n": 5}, ARN, 400, "unpriced_tool", "ValidationException"),
        ("invoke", {"inputText": "hi"}, "amazon.titan-x", 400, "unpriced_tool", "ValidationException"),
        ("converse", CONVERSE, "arn:aws:bedrock:us-east-1:1:prompt/P", 400, "unpriced_tool", "ValidationException"),
        ("converse", {**CONVERSE, "guardrailConfig": {"a": 1}}, MODEL, 400, "unpriced_tool", "ValidationException"),
        ("converse", {"messages": 5}, MODEL, 400, "bad_request", "ValidationException"),
        ("invoke-with-bidirectional-stream", {}, MODEL, 403, "uncapped_call", "AccessDeniedException"),
    ],
)
def test_a_refusal_is_an_error_of_amazons_and_nothing_is_sent(rig, verb, body, model, status, code, error):
    before = len(rig.origin.calls())

    answer = rig.call(verb, body, model, order={})

    assert (answer.status, answer.code, answer.headers["x-amzn-errortype"]) == (status, code, error)
    assert answer.json["message"].startswith("lockpin: ")
    assert answer.headers["x-should-retry"] == "false"
    assert len(rig.origin.calls()) == before


@pytest.mark.parametrize("header", ["x_amzn_bedrock_guardrailidentifier", "x_amzn_bedrock_service_tier"])
def test_a_header_that_costs_is_refused_where_it_is_not_read(rig, header):
    answer = rig.call("converse", CONVERSE, order=WHOLE, **{header: "x"})

    assert (answer.status, answer.code) == (400, "unpriced_tool")
    assert header.replace("_", "-") in answer.json["message"]


def test_counting_is_free_and_a_list_of_models_too(rig):
    order = {"file": "bedrock_converse/bedrock_count_tokens.json"}
    client.all_written(rig.proxy)
    before = rig.proxy.rows("SELECT count(*) AS n FROM rows")[0]["n"]

    for model in (MODEL, "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-own-v1:0"):
        counted = rig.call("count-tokens", {"input": {"converse": {"messages": HI}}}, model, order=order)
        assert counted.json == {"inputTokens": 42}
    listed = client.call(rig.proxy, "/bedrock/foundation-models", method="GET", x_origin=json.dumps({"body": "{}"}))

    assert listed.status == 200
    assert rig.proxy.rows("SELECT count(*) AS n FROM rows")[0]["n"] == before


def test_anthropics_sdk_for_bedrock_calls_it_as_if_there_were_no_proxy(rig):
    usage = {"input_tokens": 9, "output_tokens": 5}
    reply = {"id": "msg_bdrk_1", "type": "message", "role": "assistant", "model": "claude-own", "stop_reason": "end_turn",
             "stop_sequence": None, "content": [{"type": "text", "text": "hello"}], "usage": usage}  # fmt: skip
    ask = {"max_tokens": 100, "messages": [sdks.MESSAGE]}
    order = sdks.order(body=json.dumps(reply))
    with anthropic.AnthropicBedrock(api_key="k", aws_region="us-east-1", base_url=f"{rig.proxy.url}/bedrock") as sdk:
        raw = sdk.messages.with_raw_response.create(model=MODEL, extra_headers=order, **ask)

        assert raw.parse().content[0].text == "hello"
        _, charge = rig.rows(client.Answer(200, raw.headers, b""))
        assert charge["usd"] == 9 * 3000 + 5 * 17000
        with pytest.raises(anthropic.APIStatusError) as refused:
            sdk.messages.create(model="us.anthropic.unheard-of", **ask)
        assert (refused.value.status_code, refused.value.body["lockpin"]["code"]) == (400, "unknown_model")


@pytest.mark.parametrize("authorization", ["Bearer k", SIGNED])
def test_a_prompt_that_does_not_fit_by_its_bytes_is_counted_unless_the_call_is_signed(tmp_path, authorization):
    """A signature is of one request alone: no other can be sent under it."""
    with counting.provider() as origin:
        origin.answer = lambda: (200, {}, b'{"inputTokens":8000}')
        own = CONFIG.format(origin=origin.url, model="us.anthropic.own", arn=ARN)
        own = own.replace("input: 3, output: 17", "input: 100, output: 0", 1).replace("daily_usd: 100", "daily_usd: 1")
        with processes.proxy(tmp_path, own, kind="up") as proxy:
            path = "/bedrock/model/us.anthropic.own/converse"
            body = {"messages": [{"role": "user", "content": [{"text": "word " * 6000}]}], "inferenceConfig": {}}

            answer = client.call(proxy, path, body, authorization=authorization)

            if authorization == SIGNED:
                assert (answer.status, origin.requests) == (402, [])
            else:
                assert answer.status == 200
                ((where, headers, said),) = origin.counts()
                assert where == "/model/anthropic.own/count-tokens"
                assert headers["authorization"] == "Bearer k"
                assert json.loads(said) == {"input": {"converse": {"messages": body["messages"]}}}
                (hold,) = proxy.rows("SELECT usd FROM rows WHERE kind = 'hold'")
                assert hold["usd"] == (8000 + 160 + 64) * 100_000  # 2% and 64 more
