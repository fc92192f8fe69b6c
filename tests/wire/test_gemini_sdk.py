"""The provider's own SDK: what it sends is read, what is rewritten it would send, and what refuses it it raises."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from google import genai
from google.genai import errors
from google.genai import types as t

from lockpin_core.call import Refusal, Request, Rewrite
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named

DATA = Path(__file__).resolve().parent.parent / "data" / "gemini"
MODEL = "gemini-3.8-flash"
REFUSAL = Refusal("budget_exceeded", 402, 'lockpin: task "t" would exceed its $0.0001 budget', retry_after_s=7)
IMAGE = t.Part.from_bytes(data=b"\xff\xfe\xfb", mime_type="image/png")
CONFIG = t.GenerateContentConfig(
    max_output_tokens=700,
    candidate_count=2,
    system_instruction="be brief",
    tools=[t.Tool(function_declarations=[t.FunctionDeclaration(name="f", description="d")])],
    tool_config=t.ToolConfig(function_calling_config=t.FunctionCallingConfig(mode=t.FunctionCallingConfigMode.ANY)),
    service_tier=t.ServiceTier.FLEX,
    thinking_config=t.ThinkingConfig(thinking_budget=500, include_thoughts=True),
    response_modalities=["TEXT"],
    safety_settings=[
        t.SafetySetting(category=t.HarmCategory.HARM_CATEGORY_HARASSMENT, threshold=t.HarmBlockThreshold.BLOCK_NONE)
    ],
    stop_sequences=["x"],
    media_resolution=t.MediaResolution.MEDIA_RESOLUTION_LOW,
)


class Origin:
    """Answers every call with the same reply, and keeps what it was asked."""

    def __init__(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.asked: list[httpx.Request] = []
        self._answer = (status, body, {"content-type": kind})

    def answer(self, request: httpx.Request) -> httpx.Response:
        status, body, headers = self._answer
        self.asked.append(request)
        return httpx.Response(status, headers=headers, content=body)

    def request(self) -> Request:
        """Give the last call as a wire sees it."""
        last = self.asked[-1]
        path = last.url.path
        return Request("POST", "h", path, dict(last.headers), last.content, path.rpartition("/")[2].partition(":")[0])


def client(origin: Origin, **more: Any) -> genai.Client:
    http = httpx.Client(transport=httpx.MockTransport(origin.answer))
    told = t.HttpOptions(base_url="http://127.0.0.1", httpx_client=http)
    return genai.Client(api_key="k", http_options=told, **more)


def refusing() -> Origin:
    reply = wire_named("gemini").refuse(REFUSAL, {"code": "budget_exceeded"})
    return Origin(reply.status, reply.body)


def sent(call: Callable[[genai.Client], object], **more: Any) -> Request:
    origin = refusing()
    with pytest.raises(errors.ClientError):
        call(client(origin, **more))
    return origin.request()


def ask(one: genai.Client) -> object:
    return one.models.generate_content(model=MODEL, contents=["hi", IMAGE], config=CONFIG)


def ask_streamed(one: genai.Client) -> list:
    return list(one.models.generate_content_stream(model=MODEL, contents=["hi", IMAGE], config=CONFIG))


@pytest.mark.parametrize("more", [{}, {"enterprise": True}])
@pytest.mark.parametrize(("call", "streamed"), [(ask, False), (ask_streamed, True)])
def test_what_the_sdk_sends_is_read(more: dict, call: Callable, streamed: bool):
    parsed = wire_named("gemini").parse(sent(call, **more))

    assert (parsed.model, parsed.streamed, parsed.output_limit, parsed.choices) == (MODEL, streamed, 700, 2)
    assert (parsed.extra_output, parsed.terms.tier, parsed.content.hidden) == (1000, "flex", None)
    assert [image.detail for image in parsed.content.images] == ["MEDIA_RESOLUTION_LOW"]
    assert parsed.prompt_units == {Unit.INPUT, Unit.IMAGE_IN}


def test_a_lowered_body_is_one_that_the_sdk_could_have_sent():
    asked = sent(ask)

    body = json.loads(wire_named("gemini").rewrite(asked, Rewrite(max_output=300)))

    found = t.GenerationConfig.model_validate(body["generationConfig"])
    assert (found.max_output_tokens, found.thinking_config.thinking_budget) == (300, 300)
    assert [t.Content.model_validate(one) for one in body["contents"]]
    assert [t.Tool.model_validate(one) for one in body["tools"]]


def test_what_is_counted_is_the_request_and_its_model():
    asked = sent(ask)

    counted = wire_named("gemini").count_request(asked)

    assert counted is not None
    inner = json.loads(counted.body)["generateContentRequest"]
    assert inner.pop("model") == f"models/{MODEL}"
    assert inner == json.loads(asked.body)


@pytest.mark.parametrize("more", [{}, {"enterprise": True}])
@pytest.mark.parametrize("call", [ask, ask_streamed])
def test_a_refusal_is_raised_with_our_words_after_one_request(more: dict, call: Callable):
    origin = refusing()

    with pytest.raises(errors.ClientError) as raised:
        call(client(origin, **more))

    assert (raised.value.code, raised.value.status) == (402, "FAILED_PRECONDITION")
    assert raised.value.message == REFUSAL.message
    assert raised.value.details["lockpin"] == {"code": "budget_exceeded"}
    assert len(origin.asked) == 1


def test_a_refusal_is_not_tried_again_by_a_client_that_tries_again():
    origin = refusing()
    http = httpx.Client(transport=httpx.MockTransport(origin.answer))
    told = t.HttpOptions(
        base_url="http://127.0.0.1", httpx_client=http, retry_options=t.HttpRetryOptions(attempts=3, initial_delay=0.01)
    )

    with pytest.raises(errors.ClientError):
        ask(genai.Client(api_key="k", http_options=told))

    assert len(origin.asked) == 1


def test_the_sdk_counts_the_usage_of_a_sample_as_we_do():
    body = (DATA / "gemini_stream.sse").read_bytes()
    chunks = list(
        client(Origin(200, body, "text/event-stream")).models.generate_content_stream(model=MODEL, contents="hi")
    )
    scanner = wire_named("gemini").scanner(streamed=True)
    scanner.feed(body)

    last, found = chunks[-1].usage_metadata, scanner.result().portions[0].usage
    assert found[Unit.INPUT] == last.prompt_token_count
    assert found[Unit.OUTPUT] == last.candidates_token_count + last.thoughts_token_count
    assert scanner.result().model == chunks[-1].model_version


def test_embeddings_of_the_sdk_are_read():
    asked = sent(lambda one: one.models.embed_content(model="gemini-embedding-001", contents=["a", "b"]))

    parsed = wire_named("gemini_embed").parse(asked)

    assert asked.path.endswith(":batchEmbedContents")
    assert (parsed.model, parsed.content.prompts, parsed.content.messages) == ("gemini-embedding-001", 2, 2)


def test_one_embedding_at_vertex_is_read():
    asked = sent(
        lambda one: one.models.embed_content(model="gemini-embedding-2-preview", contents="a"), enterprise=True
    )

    assert asked.path.endswith(":embedContent")
    assert wire_named("gemini_embed").parse(asked).content.prompts == 1
