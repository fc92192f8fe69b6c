import json

import pytest

from lockpin_core.call import Image, Parsed, Refusal, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.gemini_interactions import GeminiInteractions

WIRE = GeminiInteractions()
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAUCAIAAAA="  # 10 × 20


def request(told: object) -> Request:
    raw = told if isinstance(told, bytes) else json.dumps(told).encode()
    return Request("POST", "h", "/v1beta/interactions", {}, raw)


def parse(**more: object) -> Parsed:
    return WIRE.parse(request({"model": "gemini-3.8-flash", "input": "hi", **more}))


def refused(**more: object) -> tuple[str, str]:
    with pytest.raises(WireError) as fault:
        parse(**more)
    return fault.value.code, str(fault.value)


def test_what_price_and_policy_need_is_read():
    parsed = parse(
        generation_config={"max_output_tokens": 77, "thinking_level": "high"}, stream=True, service_tier="priority"
    )

    assert (parsed.model, parsed.output_limit, parsed.streamed, parsed.background) == (
        "gemini-3.8-flash", 77, True, False,
    )  # fmt: skip
    assert (parsed.terms, parsed.content.hidden, parsed.output_settable) == (Terms("priority"), None, True)
    assert parse(model="models/gemini-3.8-flash", background=True).background
    assert parse(model="models/gemini-3.8-flash").model == "gemini-3.8-flash"
    assert parse().output_limit is None


def test_the_text_of_every_form_of_input_is_counted():
    word = "grüße"
    forms = [
        word,
        {"type": "text", "text": word},
        [{"type": "text", "text": word}],
        [{"type": "user_input", "content": [{"type": "text", "text": word}]}],
        [{"role": "user", "content": [{"type": "text", "text": word}]}],
        [{"role": "user", "content": word}],
        [{"type": "function_call", "name": "f", "id": "c", "arguments": {"a": word}}],
        [{"type": "function_result", "call_id": "c", "result": word}],
        [{"type": "function_result", "call_id": "c", "result": {"a": {"b": word}}}],
        [{"type": "function_result", "call_id": "c", "result": [{"type": "text", "text": word}]}],
        [{"type": "thought", "signature": word, "summary": [{"type": "text", "text": "x"}]}],
        [{"type": "model_output", "content": [{"type": "text", "text": word, "annotations": [{"a": 1}]}]}],
    ]
    for form in forms:
        short = json.loads(json.dumps(form).replace(json.dumps(word)[1:-1], ""))
        content = parse(input=form).content
        assert content.hidden is None
        assert content.text_bytes - parse(input=short).content.text_bytes == len(word.encode())


def test_a_system_instruction_tools_and_schemas_count():
    plain = parse().content
    tools = [{"type": "function", "name": "f", "description": "d" * 50, "parameters": {"type": "object"}}]

    assert parse(system_instruction="x" * 40).content.text_bytes >= plain.text_bytes + 40
    assert parse(tools=tools).content.schema_bytes >= len(json.dumps(tools)) - 20
    assert parse(response_format={"type": "object", "x": "y" * 30}).content.schema_bytes > 40


def test_images_count_by_their_size_and_files_fill_the_window():
    content = [{"type": "image", "data": PNG, "mime_type": "image/png", "resolution": "low"}]

    parsed = parse(input=content)

    assert parsed.content.images == (Image(10, 20, "low"),)
    assert (parsed.content.hidden, Unit.IMAGE_IN in parsed.prompt_units) == (None, True)
    text = parse(input=[{"type": "document", "mime_type": "text/csv", "data": "YWJj"}])
    assert (
        text.content.hidden,
        text.content.text_bytes
        - parse(input=[{"type": "document", "mime_type": "text/csv", "data": ""}]).content.text_bytes,
    ) == (None, 3)
    for other in (
        {"type": "image", "uri": "https://x/y.png"},
        {"type": "document", "mime_type": "application/pdf", "data": "AAAA"},
        {"type": "document", "mime_type": "text/plain", "uri": "u"},
        {"type": "audio", "data": "AAAA", "mime_type": "audio/wav"},
        {"type": "video", "uri": "u"},
        {"type": "text", "text": "t", "file_id": "f"},
    ):
        assert parse(input=[other]).content.hidden is not None
    assert Unit.AUDIO_IN in parse(input=[{"type": "audio", "uri": "u"}]).prompt_units


def test_a_conversation_that_the_provider_keeps_is_a_chain():
    """The ledger may know what it holds; only there is it decided how much is hidden."""
    parsed = parse(previous_interaction_id="int_1")

    assert (parsed.chain, parsed.content.hidden, parsed.content.extra_tokens) == ("int_1", None, 0)
    assert parse().chain is None
    assert parse(input=[{"type": "image", "uri": "u"}]).hides_images


def test_what_the_provider_keeps_or_defines_fills_the_window():
    assert parse(cached_content="cachedContents/x").content.hidden == "cached_content"
    assert parse(tools=[{"type": "computer_use"}]).content.hidden == "computer_use"
    for kind in ("google_search", "code_execution", "mcp_server_tool", "retrieval"):
        step = {"type": f"{kind}_result", "call_id": "c", "result": [{"x": 1}], "signature": "s"}
        assert parse(input=[step]).content.hidden == "tools"


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"agent": "deep-research-preview-04-2026"}, "agent"),
        ({"agent_config": {"type": "dynamic"}}, "agent_config"),
        ({"continuation_token": "t"}, "continuation_token"),
        ({"environment": "env_1"}, "environment"),
        ({"brand_new": "x"}, "brand_new"),
        ({"brand_new": {}}, "brand_new"),
        ({"generation_config": {"brand_new": 1}}, "brand_new"),
        ({"generation_config": {"candidate_count": 4}}, "candidate_count"),
        ({"generation_config": {"video_config": {"task": "edit"}}}, "video_config"),
        ({"generation_config": {"speech_config": [{"replicated_voice": {}}]}}, "sample"),
        ({"response_modalities": ["video"]}, "modality"),
        ({"response_modalities": [3]}, "modality"),
        ({"response_format": {"type": "video"}}, "film"),
        ({"input": [{"type": "video", "uri": "u", "processing": "agentic"}]}, "processing"),
        ({"input": [{"type": "video", "uri": "u", "processing": {"type": "agentic"}}]}, "processing"),
        ({"input": [{"type": "brand_new_step"}]}, "brand_new_step"),
        ({"input": [{"type": "text", "text": "x", "extra": {"a": 1}}]}, "extra"),
        *(
            ({"tools": [{"type": kind}]}, kind)
            for kind in (
                *("google_search", "google_maps", "url_context", "code_execution", "file_search", "mcp_server"),
                *("retrieval", "tool_search", "brand_new_tool"),
            )
        ),
    ],
)
def test_what_cannot_be_bounded_is_refused_by_name(more: dict, word: str):
    code, words = refused(**more)

    assert code == "unpriced_tool"
    assert word in words


@pytest.mark.parametrize(
    "more",
    [
        {"model": None},
        {"model": ""},
        {"input": None},
        {"input": 3},
        {"input": [3]},
        {"input": [{"text": "no type"}]},
        {"input": [{"type": "text", "text": "x"}, None]},
        {"stream": "yes"},
        {"background": 1},
        {"generation_config": []},
        {"generation_config": {"max_output_tokens": 0}},
        {"generation_config": {"max_output_tokens": "9"}},
        {"generation_config": {"maxOutputTokens": 9}},
        {"previousInteractionId": "int_1"},
        {"tools": {}},
        {"response_format": ["x"]},
        {"service_tier": 3},
        {"previous_interaction_id": 3},
    ],
)
def test_what_is_malformed_is_a_bad_request(more: dict):
    assert refused(**more)[0] == "bad_request"


def test_pictures_and_sound_are_bounded_by_the_model_alone():
    """Nobody says that the limit holds for them."""
    config = {"max_output_tokens": 50}
    for more, unit in (
        ({"response_modalities": ["text", "image"]}, Unit.IMAGE_OUT),
        ({"response_modalities": ["audio"]}, Unit.AUDIO_OUT),
        ({"response_format": [{"type": "image", "image_size": "1K"}]}, Unit.IMAGE_OUT),
        ({"response_format": {"type": "audio"}}, Unit.AUDIO_OUT),
        ({"model": "gemini-3.1-flash-image"}, Unit.IMAGE_OUT),
        ({"generation_config": config | {"image_config": {"image_size": "4K"}}}, Unit.IMAGE_OUT),
        ({"generation_config": config | {"speech_config": [{"voice": "v"}]}}, Unit.AUDIO_OUT),
    ):
        parsed = parse(**{"generation_config": config} | more)
        assert (parsed.output_limit, parsed.output_settable, unit in parsed.output_units) == (None, False, True)
    assert parse(response_modalities=["text"], generation_config=config).output_limit == 50


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"model":"m", "input":"é"}', '{"generation_config":{"max_output_tokens":9},"model":"m", "input":"é"}'),
        (
            '{ "generation_config": {"seed": 1, "max_output_tokens" : 500 } ,"model":"m","input":"é"}',
            '{ "generation_config": {"seed": 1, "max_output_tokens" : 9 } ,"model":"m","input":"é"}',
        ),
        ('{"generation_config": null,"model":"m","input":"x"}',
         '{"generation_config": {"max_output_tokens":9},"model":"m","input":"x"}'),
    ],
)  # fmt: skip
def test_a_limit_is_set_where_it_belongs_and_every_other_byte_stays(before: str, after: str):
    made = request(before.encode())

    for parsed in (None, WIRE.parse(made)):
        assert json.loads(WIRE.rewrite(made, Rewrite(9), parsed=parsed)) == json.loads(after)
        assert WIRE.rewrite(made, Rewrite(9), parsed=parsed).replace(b" ", b"") in (
            after.encode().replace(b" ", b""),
            b'{"model":"m","input":"\xc3\xa9","generation_config":{"max_output_tokens":9}}',
        )
    assert WIRE.rewrite(made, Rewrite()) == made.body


def test_a_call_is_known_again_whatever_its_limit():
    def digest(**more: object) -> bytes:
        return WIRE.same_call(request({"model": "m", "input": "x", **more}))

    assert digest(generation_config={"max_output_tokens": 5}) == digest(generation_config={"max_output_tokens": 6})
    assert digest(stream=True) == digest()
    assert digest(system_instruction="a") != digest(system_instruction="b")


def test_errors_and_refusals_have_googles_shape():
    reply = WIRE.refuse(Refusal("budget_exceeded", 402, "lockpin: no"), {"code": "budget_exceeded"})

    assert json.loads(reply.body)["error"] == {"code": 402, "message": "lockpin: no", "status": "FAILED_PRECONDITION"}
    assert WIRE.error_code(b'{"error":{"code":"rate_limit","status":"RESOURCE_EXHAUSTED"}}') == "RESOURCE_EXHAUSTED"
    assert WIRE.error_code(b'{"error":{"code":429}}') == "429"
    assert WIRE.error_code(b"nothing") is None
