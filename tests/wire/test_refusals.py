import json
from decimal import Decimal

import anthropic
import httpx2 as httpx
import openai
import pytest

from lockpin_core.call import Refusal, Reply
from lockpin_core.wire import refusal_shape
from lockpin_core.wire.refusals import anthropic_refusal, bedrock_refusal, gemini_refusal, openai_refusal

REFUSAL = Refusal("budget_exceeded", 402, 'lockpin: task "t" would exceed its $0.0001 budget', retry_after_s=7)
DETAIL = {"code": "budget_exceeded", "needed_usd": Decimal("0.00000001"), "transient": False, "call": "c1"}


def answering(reply: Reply, calls: list[httpx.Request]) -> httpx.Client:
    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return httpx.Response(reply.status, headers=dict(reply.headers), content=reply.body)

    return httpx.Client(transport=httpx.MockTransport(answer))


def test_openai_shape_is_compact_json_with_exact_numbers():
    assert openai_refusal(REFUSAL, DETAIL).body == (
        b'{"error":{"code":"budget_exceeded","message":"lockpin: task \\"t\\" would exceed its $0.0001 budget",'
        b'"param":null,"type":"budget_exceeded"},"lockpin":{"code":"budget_exceeded","needed_usd":0.00000001,'
        b'"transient":false,"call":"c1"}}'
    )


def test_anthropic_shape_is_compact_json():
    assert anthropic_refusal(REFUSAL, {"code": "budget_exceeded"}).body == (
        b'{"type":"error","error":{"type":"budget_exceeded",'
        b'"message":"lockpin: task \\"t\\" would exceed its $0.0001 budget"},"lockpin":{"code":"budget_exceeded"}}'
    )


def test_gemini_shape_is_compact_json_with_the_status_in_it():
    assert gemini_refusal(REFUSAL, {"code": "budget_exceeded"}).body == (
        b'{"error":{"code":402,"message":"lockpin: task \\"t\\" would exceed its $0.0001 budget",'
        b'"status":"FAILED_PRECONDITION"},"lockpin":{"code":"budget_exceeded"}}'
    )


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (413, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
    ],
)
def test_gemini_shape_names_the_status_as_google_does(status: int, name: str):
    assert json.loads(gemini_refusal(Refusal("x", status, "lockpin: x"), {}).body)["error"]["status"] == name


def test_bedrock_shape_is_compact_json_with_the_error_named_in_a_header():
    reply = bedrock_refusal(REFUSAL, {"code": "budget_exceeded"})

    assert reply.body == (
        b'{"message":"lockpin: task \\"t\\" would exceed its $0.0001 budget","lockpin":{"code":"budget_exceeded"}}'
    )
    assert (reply.status, reply.headers["x-amzn-errortype"]) == (402, "ServiceQuotaExceededException")


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "ValidationException"),
        (403, "AccessDeniedException"),
        (413, "ValidationException"),
        (426, "ValidationException"),
        (429, "ThrottlingException"),
        (500, "InternalServerException"),
        (503, "ServiceUnavailableException"),
    ],
)
def test_bedrock_shape_names_the_status_as_amazon_does(status: int, name: str):
    assert bedrock_refusal(Refusal("x", status, "lockpin: x"), {}).headers["x-amzn-errortype"] == name


@pytest.mark.parametrize(
    ("status", "wait", "wanted"),
    [
        (402, 7, {"x-should-retry": "false"}),
        (400, None, {"x-should-retry": "false"}),
        (429, 7, {"x-should-retry": "false", "retry-after": "7"}),
        (429, None, {"x-should-retry": "false"}),
        (503, 5, {"retry-after": "5"}),
        (500, 5, {"x-should-retry": "false"}),
    ],
)
@pytest.mark.parametrize("shape", [openai_refusal, anthropic_refusal, gemini_refusal, bedrock_refusal])
def test_headers_say_whether_to_try_again(shape, status: int, wait: int | None, wanted: dict[str, str]):
    reply = shape(Refusal("x", status, "lockpin: x", retry_after_s=wait), {})

    assert reply.status == status
    named = {"x-amzn-errortype": reply.headers["x-amzn-errortype"]} if shape is bedrock_refusal else {}
    assert reply.headers == {"content-type": "application/json", **wanted, **named}


def test_openai_client_raises_its_error_with_our_words_after_one_request():
    calls: list[httpx.Request] = []
    http = answering(openai_refusal(REFUSAL, DETAIL), calls)
    client = openai.OpenAI(api_key="k", http_client=http, base_url="http://127.0.0.1/v1")

    with pytest.raises(openai.APIStatusError) as raised:
        client.chat.completions.create(model="m", messages=[])

    assert raised.value.status_code == 402
    assert raised.value.code == "budget_exceeded"
    assert REFUSAL.message in str(raised.value)
    assert len(calls) == 1
    http.close()


@pytest.mark.parametrize("status", [402, 429])
def test_anthropic_client_raises_its_error_with_our_words_after_one_request(status: int):
    calls: list[httpx.Request] = []
    http = answering(anthropic_refusal(Refusal("budget_exceeded", status, REFUSAL.message), DETAIL), calls)
    client = anthropic.Anthropic(api_key="k", http_client=http, base_url="http://127.0.0.1")

    with pytest.raises(anthropic.APIStatusError) as raised:
        client.messages.create(model="m", max_tokens=1, messages=[])

    assert raised.value.status_code == status
    assert raised.value.body["error"]["type"] == "budget_exceeded"
    assert REFUSAL.message in str(raised.value)
    assert len(calls) == 1
    http.close()


def test_shape_is_found_by_name_and_falls_back_to_openai():
    assert refusal_shape("anthropic") is anthropic_refusal
    assert refusal_shape("openai") is openai_refusal
    assert refusal_shape("gemini") is gemini_refusal
    assert refusal_shape("unheard-of") is openai_refusal
    assert json.loads(refusal_shape("unheard-of")(REFUSAL, DETAIL).body)["error"]["param"] is None
