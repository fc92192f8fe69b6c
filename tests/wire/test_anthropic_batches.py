import hashlib
import json

import pytest

from lockpin_core.call import Parsed, Refusal, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named
from lockpin_core.wire.anthropic_batches import AnthropicBatches

WIRE = AnthropicBatches()
MESSAGES = wire_named("anthropic_messages")
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def params(**more: object) -> dict:
    return {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}], **more}


def one(name: object = "a", **more: object) -> dict:
    return {"custom_id": name, "params": params(**more)}


def request(told: object, **headers: str) -> Request:
    raw = told if isinstance(told, bytes) else json.dumps(told).encode()
    return Request("POST", "h", "/v1/messages/batches", {k.replace("_", "-"): v for k, v in headers.items()}, raw)


def parse(*requests: object, **headers: str) -> Parsed:
    return WIRE.parse(request({"requests": list(requests)}, **headers))


def refused(told: object, **headers: str) -> tuple[str, str]:
    with pytest.raises(WireError) as fault:
        list(WIRE.parse(request(told, **headers)).batch)
    return fault.value.code, str(fault.value)


def test_each_request_is_read_as_a_message_is():
    cached = {"type": "text", "text": "grüße", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    told = [params(system=[cached]), params(model="other", max_tokens=7, tools=[SEARCH | {"max_uses": 3}])]

    parsed = parse(*({"custom_id": f"r{i}", "params": each} for i, each in enumerate(told)))

    parts = list(parsed.batch)
    assert len(parts) == 2 == len(list(parsed.batch))  # they can be gone through again
    for part, each in zip(parts, told, strict=True):
        alone = MESSAGES.parse(request(each))
        assert (part.model, part.content, part.output_limit) == (alone.model, alone.content, alone.output_limit)
        assert (part.rounds, part.fees, part.prompt_units) == (alone.rounds, alone.fees, alone.prompt_units)
    assert parts[0].prompt_units >= {Unit.CACHE_WRITE_1H}
    assert (parts[1].output_limit, parts[1].fees) == (7, {Unit.WEB_SEARCH: 3})


def test_it_is_a_batch_of_the_first_model_and_its_body_stays():
    parsed = parse(one("a", model="x", stream=True, service_tier="standard_only"), one("b", model="y"))

    assert (parsed.model, parsed.terms, parsed.streamed, parsed.background) == ("x", Terms("batch"), False, True)
    assert all((part.batched, part.terms, part.streamed) == (True, Terms("batch"), False) for part in parsed.batch)
    assert not any((parsed.output_settable, *(part.output_settable for part in parsed.batch)))
    raw = request({"requests": [one()]})
    assert WIRE.rewrite(raw, Rewrite(max_output=3, tool_limit=1, tool_most=1)) == raw.body


def test_the_text_of_a_request_is_counted_as_it_is_written():
    """A number counts by its digits, and a tool by its bytes, wherever in the batch it stands."""
    raw = b'{ "requests" : [ {"custom_id":"a", "params": {"max_tokens":5,"model":"m","temperature":0.10000000000000000,'
    tools = b'"tools":[{"name":"f","input_schema":{"type":"object", "x": 1.500}}],"messages":[]}}\n]}'
    alone = b'{"max_tokens":5,"model":"m","temperature":0.10000000000000000,' + tools[: tools.index(b"}}\n") + 1]

    (part,) = WIRE.parse(request(raw + tools)).batch

    assert part.content == MESSAGES.parse(request(alone)).content


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"requests": None},
        {"requests": {}},
        {"requests": []},
        {"requests": ["x"]},
        {"requests": [{"custom_id": "a"}]},
        {"requests": [{"custom_id": "a", "params": []}]},
        {"requests": [{"params": params()}]},
        {"requests": [one("")]},
        {"requests": [one(3)]},
        {"requests": [one("a"), one("b"), one("a")]},
        {"requests": [one(max_tokens=-1)]},
        {"requests": [one(messages="hi")]},
        b'{"requests": [1,]}',
        b'{"requests": [',
        b'{"requests": []',
        b'{"requests": [] x}',
        b'{"requests": []} x',
        b"[]",
        b'{"requests": [{"custom_id": "a", "params": {"model": "m", "model": "n", "messages": []}}]}',
        b'{"requests": [{"custom_id": "a", "params": {}}], "requests": []}',
        b'{"requests": [{"custom_id": "a", "params": {"model": "m", "messages": [], "max_tokens": NaN}}]}',
        b"\xef\xbb\xbf{}",
        b'{"requests": [\xff]}',
        b'{"requests": [' + b"[" * 100_000,
        b'{"requests": [{"custom_id": "a", "params": {"max_tokens": ' + b"1" * 5000 + b"}}]}",
    ],
)
def test_what_is_no_batch_is_a_bad_request(told: object):
    code, words = refused(told)

    assert code == "bad_request"
    assert len(words) < 300


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"requests": [one()], "webhook": {}}, "webhook"),
        ({"model": "m", "requests": [one()]}, "model"),
        ({"requests": [one() | {"priority": 1}]}, "priority"),
        ({"requests": [one(tools=[SEARCH])]}, "max_uses"),
        ({"requests": [one("a"), one("b", speed="fast")]}, "speed"),
        ({"requests": [one(tools=[{"type": "code_execution_20250825", "name": "c"}])]}, "container"),
        ({"requests": [one(container="c_1")]}, "container"),
        ({"requests": [one("a", inference_geo="us"), one("b")]}, "inference_geo"),
        ({"requests": [one("a"), one("b", brand_new={"a": 1})]}, "brand_new"),
        ({"requests": [one(tools=[{"type": "brand_new_tool", "name": "c"}])]}, "brand_new_tool"),
        ({"requests": [one(anthropic_beta=["output-300k-2026-03-24"], max_tokens=None)]}, "longer outputs"),
    ],
)
def test_what_cannot_be_bounded_or_settled_is_refused_by_name(told: object, words: str):
    code, said = refused(told)

    assert code == "unpriced_tool"
    assert words in said


LONG = [
    "files-2026-01-01,output-300k-2026-03-24",
    "output-128k-2025-02-19, output-300k-2026-03-24",
    "output-300k-2026-03-24,output-128k-2025-02-19",
    "Output-300K-2026-03-24",
    "output-0300k",
]


@pytest.mark.parametrize("long", LONG)
def test_the_beta_with_which_models_write_more_than_their_maximum_leaves_the_requests_own_limit(long: str):
    fallback = {"fallbacks": [{"model": "n"}]}
    advised = {"tools": [{"type": "advisor_20260301", "name": "a", "model": "n", "max_uses": 1}]}

    (part,) = parse(one(max_tokens=200_000, **fallback), anthropic_beta=long).batch
    (plain,) = parse(one(), anthropic_beta="output-128k-2025-02-19").batch

    assert (part.output_limit, part.clamped, plain.clamped) == (200_000, False, True)
    for more in ({"max_tokens": None}, advised):
        assert refused({"requests": [one(**more)]}, anthropic_beta=long)[0] == "unpriced_tool"


@pytest.mark.parametrize("long", LONG)
def test_that_beta_may_stand_in_a_request(long: str):
    for field in ({"anthropic_beta": long.split(",")}, {"betas": long}):
        plain, part = parse(one(), one("b", max_tokens=200_000, **field)).batch
        assert (plain.clamped, part.clamped) == (True, False)
        assert refused({"requests": [one(max_tokens=None, **field)]})[0] == "unpriced_tool"


def test_a_message_with_that_beta_is_bounded_by_its_own_limit_too():
    long = MESSAGES.parse(request(params(max_tokens=200_000), anthropic_beta="a, OUTPUT-300k-2026-03-24"))

    assert (long.clamped, MESSAGES.parse(request(params(max_tokens=200_000))).clamped) == (False, True)


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize(
    "fault",
    [
        {"custom_id": "secret"},
        one(""),
        one("r0") | {"secret": 1},
        one(max_tokens=-1),
        one(speed="fast"),
        one(tools=[SEARCH]),
        "secret",
        b'{"custom_id": "x", "custom_id": "secret"}',
    ],
    ids=str,
)
def test_a_refusal_says_which_request_it_is_about_and_nothing_of_what_it_says(fault: object, number: int):
    told = [json.dumps(one(f"r{place}")).encode() for place in range(1, 6)]
    told[number:number] = [fault if isinstance(fault, bytes) else json.dumps(fault).encode()]

    _, words = refused(b'{"requests": [' + b",".join(told) + b"]}")

    assert words.startswith(f"requests[{number}]: ")
    assert "hi" not in words.split() and "r1" not in words
    assert "secret" not in words or "field" in words


def test_it_is_the_same_call_where_its_body_is_the_same():
    first = WIRE.same_call(request({"requests": [one()]}))

    assert WIRE.same_call(request({"requests": [one()]}, x_other="h")) == first
    assert WIRE.same_call(request({"requests": [one(max_tokens=51)]})) != first


def test_names_of_requests_are_summed_in_any_order():
    first, second = parse(one("a"), one("é")).batch

    assert (first.name_sum, second.name_sum) == tuple(int(hashlib.sha256(t.encode()).hexdigest(), 16) for t in "aé")


def test_code_that_is_free_beside_web_tools_is_no_container_to_be_billed():
    tools = [
        {"type": "web_search_20260209", "name": "web_search", "max_uses": 1},
        {"type": "code_execution_20260120", "name": "c"},
    ]

    (part,) = parse(one(tools=tools)).batch

    assert part.fees == {Unit.WEB_SEARCH: 1}


def test_a_plan_login_is_marked():
    parsed = parse(one(), authorization="Bearer sk-ant-oat01-x")

    assert (parsed.subscription, parsed.attested) == (True, True)


def test_more_requests_than_a_batch_may_have_are_refused():
    tiny = b'{"custom_id":"%d","params":{"model":"m","max_tokens":1,"messages":[]}}'
    raw = b'{"requests":[' + b",".join(tiny % i for i in range(100_001)) + b"]}"

    code, words = refused(raw)

    assert (code, "100000" in words) == ("bad_request", True)


def test_the_reply_names_the_batch_and_leaves_its_usage_to_the_results():
    asked = parse(one())
    told = {"id": "msgbatch_1", "type": "message_batch", "processing_status": "in_progress", "results_url": None}
    scanner = WIRE.scanner(streamed=False, asked=asked)

    scanner.feed(json.dumps(told).encode())

    reading = scanner.result()
    assert (reading.upstream_id, reading.pending, reading.complete) == ("msgbatch_1", True, False)


@pytest.mark.parametrize(
    "told", [{}, {"type": "message_batch"}, {"id": "x"}, {"type": "error", "error": {"type": "t"}}]
)
def test_a_reply_that_names_no_batch_leaves_nothing_to_wait_for(told: dict):
    scanner = WIRE.scanner(streamed=False, asked=parse(one()))
    scanner.feed(json.dumps(told).encode())

    assert (scanner.result().pending, scanner.result().complete) == (False, False)
    assert scanner.result().error == ("t" if "error" in told else None)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/messages/batches/msgbatch_1/results", "msgbatch_1"),
        ("/v1/messages/batches/msgbatch%5F1/results/", "msgbatch_1"),
        ("/v1/messages/batches/x/results/../../msgbatch_1/results", "msgbatch_1"),
        ("/v1/messages/batches/x/results/%2e%2e/%2E%2e/msgbatch_1/results", "msgbatch_1"),
        ("/V1//Messages/./batches/msgbatch_1/Results?x=/batches/y/results", "msgbatch_1"),
        ("/v1/messages/batches/msgbatch_1/results/x/results", None),
        ("/v1/messages/batches/x/results#/../../msgbatch_1/results", None),
        ("/v1/messages/batches/x/messages/batches/y/results", None),
        ("/v1/messages/batches/msgbatch_1/results/..", None),
        ("/v1/messages/batches/msgbatch_1", None),
        ("/v1/messages/batches/results", None),
        ("/v1/messages/batches/é/results", None),
    ],
)
def test_results_are_those_of_the_batch_that_their_path_names(path: str, name: str | None):
    assert WIRE.polled_id(path) == name
    assert MESSAGES.polled_id(path) is None


def test_refusals_and_errors_have_the_shape_of_the_messages_format():
    reply = WIRE.refuse(Refusal("budget_exceeded", 402, "lockpin: no"), {"code": "budget_exceeded"})

    assert json.loads(reply.body)["error"] == {"type": "budget_exceeded", "message": "lockpin: no"}
    assert WIRE.error_code(b'{"type":"error","error":{"type":"billing_error"}}') == "billing_error"
