import base64
import json
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Image, Parsed, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.sizing.bound import ceiling
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named

WIRE = wire_named("gemini")
ENVELOPE = wire_named("code_assist")
HI = [{"role": "user", "parts": [{"text": "hi"}]}]
STREAM = "/v1beta/models/gemini-3.8-flash:streamGenerateContent"
WHOLE = "/v1beta/models/gemini-3.8-flash:generateContent"
VERTEX = "/v1/projects/p/locations/l/publishers/google/models/gemini-3.8-flash:generateContent"


class Facts:
    """A model as sizing sees it."""

    context_tokens = 1_000_000
    max_output_tokens = 65_536
    tokenizer = "bytes"
    image_tokens = 1290
    image_rule = None
    images_beyond_window = False


def request(body: object, path: str = WHOLE, headers: dict | None = None) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "h", path, headers or {}, raw, path.rpartition("/")[2].partition(":")[0])


def parse(path: str = WHOLE, headers: dict | None = None, **more: object) -> Parsed:
    return WIRE.parse(request({"contents": HI, **more}, path, headers))


def config(**more: object) -> Parsed:
    return parse(generationConfig=more)


def parts(*given: object) -> Parsed:
    return WIRE.parse(request({"contents": [{"role": "user", "parts": list(given)}]}))


def refusal(code: str, **more: object) -> str:
    with pytest.raises(WireError) as refused:
        parse(**more)
    assert refused.value.code == code
    return str(refused.value)


def png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(head)) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    return b"\x89PNG\r\n\x1a\n" + chunk


def test_path_names_the_model_and_says_whether_it_streams():
    assert (parse(WHOLE).model, parse(WHOLE).streamed) == ("gemini-3.8-flash", False)
    assert parse(STREAM).streamed
    assert parse(STREAM.replace(":", "%3A")).streamed
    assert parse(VERTEX).model == "gemini-3.8-flash"


@pytest.mark.parametrize(
    "name", ["gemini-3.8-flash", "models/gemini-3.8-flash", "publishers/google/models/gemini-3.8-flash"]
)
def test_a_model_in_the_body_must_be_that_of_the_path(name: str):
    assert parse(model=name).model == "gemini-3.8-flash"
    assert '"gemini-4"' in refusal("bad_request", model="models/gemini-4")


def test_a_model_in_the_body_counts_where_the_path_names_none():
    body = json.dumps({"model": "models/m", "contents": HI}).encode()

    assert WIRE.parse(Request("POST", "h", "/p", {}, body)).model == "m"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(100, 100), ("100", 100), (None, None), (1, 1), ("65536", 65536)],
)
@pytest.mark.parametrize("outer", ["generationConfig", "generation_config"])
@pytest.mark.parametrize("inner", ["maxOutputTokens", "max_output_tokens"])
def test_output_limit_is_read_in_either_spelling_and_as_text(given, wanted, outer: str, inner: str):
    assert parse(**{outer: {inner: given}}).output_limit == wanted


@pytest.mark.parametrize("given", [0, "0", -1, 1.5, "1e2", "x", "", True, [], {}, 10**10, "9" * 30, "１００"])
def test_output_limit_that_is_none_is_refused(given: object):
    assert "maxOutputTokens" in refusal("bad_request", generationConfig={"maxOutputTokens": given})


@pytest.mark.parametrize(
    "body",
    [
        {"generationConfig": {}, "generation_config": {}},
        {"generationConfig": {"maxOutputTokens": 1, "max_output_tokens": 2}},
        {"generationConfig": {"maxOutputTokens": 1, "max_output_tokens": None}},
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 1, "thinking_budget": 2}}},
        {"cachedContent": "a", "cached_content": "b"},
        {"tools": [{"googleSearch": {}, "google_search": {}}]},
        {"contents": [{"parts": [{"inlineData": {}, "inline_data": {}}]}]},
    ],
)
def test_a_field_in_both_spellings_is_refused(body: dict):
    assert "two spellings" in refusal("bad_request", **body)


def test_a_field_that_is_nearly_spelled_right_is_refused_with_the_right_name():
    assert '"maxOutputTokens"' in refusal("bad_request", generationConfig={"maxoutputtokens": 5})


@pytest.mark.parametrize(("given", "wanted"), [(None, 1), (0, 1), (1, 1), ("8", 8)])
def test_candidates_are_choices(given: object, wanted: int):
    assert config(candidateCount=given).choices == wanted


@pytest.mark.parametrize(("budget", "extra"), [(None, 0), (-1, 0), ("-1", 0), (0, 0), (4096, 8192), ("10", 20)])
@pytest.mark.parametrize("name", ["thinkingBudget", "thinking_budget"])
def test_a_stated_thinking_budget_is_held_beside_the_limit_of_each_candidate(budget, extra: int, name: str):
    assert config(candidateCount=2, thinkingConfig={name: budget}).extra_output == extra


def test_an_unknown_field_of_thinking_is_refused():
    assert "thinkingRounds" in refusal("unpriced_tool", generationConfig={"thinkingConfig": {"thinkingRounds": 2}})


@pytest.mark.parametrize(
    ("more", "units"),
    [
        ({}, {Unit.OUTPUT}),
        ({"responseModalities": ["TEXT"]}, {Unit.OUTPUT}),
        ({"responseModalities": ["TEXT", "IMAGE"]}, {Unit.OUTPUT, Unit.IMAGE_OUT}),
        ({"response_modalities": ["image"]}, {Unit.OUTPUT, Unit.IMAGE_OUT}),
        ({"responseModalities": ["AUDIO"]}, {Unit.OUTPUT, Unit.AUDIO_OUT}),
        ({"speechConfig": {"languageCode": "de"}}, {Unit.OUTPUT, Unit.AUDIO_OUT}),
        ({"imageConfig": {"imageSize": "4K"}}, {Unit.OUTPUT, Unit.IMAGE_OUT}),
        ({"responseFormat": [{"image": {}}]}, {Unit.OUTPUT, Unit.IMAGE_OUT}),
    ],
)
def test_replies_may_be_billed_as_what_they_may_be(more: dict, units: set[Unit]):
    assert config(**more).output_units == units


@pytest.mark.parametrize(("modality", "limit"), [("TEXT", 100), ("IMAGE", None), ("AUDIO", None)])
def test_the_limit_counts_for_text_alone(modality: str, limit: int | None):
    parsed = config(responseModalities=[modality], maxOutputTokens=100)

    most = ceiling(parsed, Facts(), parsed.output_limit)
    assert (parsed.output_limit, parsed.output_settable) == (limit, limit is not None)
    assert most is not None
    assert most.output == (limit or Facts.max_output_tokens)


@pytest.mark.parametrize(
    ("model", "unit"),
    [
        ("gemini-2.5-flash-image", Unit.IMAGE_OUT),
        ("nano-banana-pro-preview", Unit.IMAGE_OUT),
        ("gemini-2.5-flash-preview-tts", Unit.AUDIO_OUT),
    ],
)
def test_models_that_draw_or_speak_do_so_unasked(model: str, unit: Unit):
    assert parse(f"/v1/models/{model}:generateContent").output_units == {Unit.OUTPUT, unit}


@pytest.mark.parametrize("modalities", [["VIDEO"], [3], ["x"], [["TEXT"]]])
def test_a_reply_in_an_unknown_modality_is_refused(modalities: list):
    refusal("unpriced_tool", generationConfig={"responseModalities": modalities})


@pytest.mark.parametrize("kind", ["video", "brandNew"])
def test_a_reply_in_an_unknown_format_is_refused(kind: str):
    refusal("unpriced_tool", generationConfig={"responseFormat": [{kind: {}}]})


@pytest.mark.parametrize(
    ("said", "headers", "tier"),
    [
        (None, {}, None),
        ("flex", {}, "flex"),
        ("SERVICE_TIER_PRIORITY", {}, "priority"),
        ("standard", {}, "standard"),
        ("unspecified", {}, None),
        (None, {"x-vertex-ai-llm-shared-request-type": "priority"}, "priority"),
        ("priority", {"x-vertex-ai-llm-shared-request-type": "priority"}, "priority"),
    ],
)
def test_service_tier_is_a_term(said: str | None, headers: dict, tier: str | None):
    assert parse(serviceTier=said, headers=headers).terms == Terms(tier=tier)
    assert parse(service_tier=said, headers=headers).terms == Terms(tier=tier)


def test_service_tiers_that_differ_or_are_no_names_are_refused():
    refusal("bad_request", serviceTier="flex", headers={"x-vertex-ai-llm-shared-request-type": "priority"})
    refusal("bad_request", serviceTier=2)


@pytest.mark.parametrize(
    ("tool", "fees", "unbounded"),
    [
        ({"googleSearch": {}}, {Unit.SEARCH_PROMPT: 1}, {Unit.WEB_SEARCH}),
        ({"google_search": {}}, {Unit.SEARCH_PROMPT: 1}, {Unit.WEB_SEARCH}),
        ({"googleSearchRetrieval": {"dynamicRetrievalConfig": {}}}, {Unit.SEARCH_PROMPT: 1}, {Unit.WEB_SEARCH}),
        ({"googleMaps": {}}, {Unit.MAPS_PROMPT: 1}, {Unit.MAPS}),
        ({"urlContext": {}}, {}, set()),
        ({"codeExecution": {}}, {}, set()),
        ({"fileSearch": {"fileSearchStoreNames": ["s"]}}, {}, set()),
    ],
)
def test_tools_of_the_provider_fill_the_window_and_cost_what_they_may(tool: dict, fees: dict, unbounded: set):
    for tools in ([tool], tool):  # one item may stand for a list
        parsed = parse(tools=tools)
        assert (parsed.fees, parsed.unbounded_fees) == (fees, unbounded)
        assert parsed.content.hidden == "tools"
        assert parsed.grows
        assert parsed.beyond_limit


@pytest.mark.parametrize(
    "tool",
    [
        "enterpriseWebSearch",
        "enterprise_web_search",
        "mcpServers",
        "mcp_servers",
        "retrieval",
        "parallelAiSearch",
        "exaAiSearch",
        "brandNew",
    ],
)
def test_tools_without_a_known_price_are_refused_by_name(tool: str):
    message = refusal("unpriced_tool", tools=[{tool: {"a": 1}}])

    assert tool in message or tool.split("_")[0] in message


def test_a_tool_that_is_null_or_false_is_none():
    assert not parse(tools=[{"functionDeclarations": [], "googleSearch": None}]).grows


def test_functions_are_counted_as_schema_and_run_by_the_client():
    tools = [{"functionDeclarations": [{"name": "f", "description": "é" * 100, "parameters": {"type": "OBJECT"}}]}]

    parsed = parse(tools=tools)

    assert parsed.content.schema_bytes >= len(json.dumps(tools, ensure_ascii=False).encode())
    assert parsed.content.text_bytes < 100
    assert not parsed.grows
    assert parsed.content.hidden is None


def test_schemas_of_the_reply_are_counted():
    schema = {"type": "OBJECT", "properties": {"a" * 500: {}}}
    for name in ("responseSchema", "response_schema", "responseJsonSchema", "_responseJsonSchema"):
        assert config(**{name: schema}).content.schema_bytes > 500


def test_computer_use_is_run_by_the_client_and_defined_by_the_provider():
    parsed = parse(tools=[{"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}])

    assert (parsed.grows, parsed.content.hidden) == (False, "computer_use")


@pytest.mark.parametrize(
    ("more", "hidden"),
    [({"cachedContent": "cachedContents/x"}, "cached_content"), ({"continuationToken": "dG9r" * 200}, "continuation")],
)
def test_what_the_provider_keeps_is_hidden(more: dict, hidden: str):
    assert parse(**more).content.hidden == hidden


@pytest.mark.parametrize("name", ["routingConfig", "routing_config", "modelSelectionConfig"])
def test_a_choice_of_another_model_is_refused(name: str):
    assert "another model" in refusal("unpriced_tool", generationConfig={name: {"autoMode": {}}})


@pytest.mark.parametrize("key", ["inlineData", "inline_data"])
@pytest.mark.parametrize("mime", ["mimeType", "mime_type"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_an_image_in_the_body_has_its_size(key: str, mime: str, encode):
    data = encode(png(640, 480) + b"\xff\xfe\xfb" * 9).decode().rstrip("=")

    parsed = parts({key: {mime: "image/png", "data": data}})

    assert parsed.content.images == (Image(640, 480),)
    assert parsed.content.hidden is None
    assert parsed.content.text_bytes < 100
    assert Unit.IMAGE_IN in parsed.prompt_units


def test_an_image_that_cannot_be_read_has_no_size():
    assert parts({"inlineData": {"mimeType": "image/heic", "data": "AAAA"}}).content.images == (Image(),)


def test_an_image_has_the_resolution_of_its_part_else_of_the_request():
    data = base64.b64encode(png(10, 10)).decode()
    image = {"inlineData": {"mimeType": "image/png", "data": data}}
    own = image | {"mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"}}

    body = {"contents": [{"parts": [own, image]}], "generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_HIGH"}}
    parsed = WIRE.parse(request(body))

    assert [image.detail for image in parsed.content.images] == ["MEDIA_RESOLUTION_LOW", "MEDIA_RESOLUTION_HIGH"]


def test_tokens_that_a_part_asks_for_come_on_top():
    data = base64.b64encode(png(10, 10)).decode()
    image = {"inlineData": {"mimeType": "image/png", "data": data}, "mediaResolution": {"num_tokens": 700}}

    assert parts(image).content.extra_tokens == 700


def test_a_text_in_base64_is_counted_as_the_text_that_it_is():
    data = base64.b64encode("Grüße".encode()).decode()

    with_text = parts({"inlineData": {"mimeType": "text/plain", "data": data}}).content
    without = parts({"inlineData": {"mimeType": "text/plain", "data": ""}}).content

    assert with_text.hidden is None
    assert with_text.text_bytes == without.text_bytes + 7


@pytest.mark.parametrize(
    ("part", "units"),
    [
        ({"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}, {Unit.AUDIO_IN, Unit.IMAGE_IN}),
        ({"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}, {Unit.AUDIO_IN, Unit.IMAGE_IN}),
        ({"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}}, {Unit.IMAGE_IN}),
        ({"inlineData": {"data": "AAAA"}}, {Unit.AUDIO_IN, Unit.IMAGE_IN}),
        ({"inlineData": {"mimeType": "text/plain", "data": "!"}}, {Unit.IMAGE_IN}),
        ({"fileData": {"fileUri": "gs://a", "mimeType": "image/png"}}, {Unit.IMAGE_IN}),
        ({"file_data": {"file_uri": "https://youtu.be/x"}}, {Unit.AUDIO_IN, Unit.IMAGE_IN}),
        (
            {"functionResponse": {"name": "f", "parts": [{"fileData": {"fileUri": "gs://a"}}]}},
            {Unit.AUDIO_IN, Unit.IMAGE_IN},
        ),
    ],
)
def test_media_and_files_are_hidden(part: dict, units: set[Unit]):
    parsed = parts(part)

    assert parsed.content.hidden == "file"
    assert parsed.prompt_units == {Unit.INPUT, *units}


def test_an_agent_that_looks_through_a_video_is_refused():
    video = {"fileData": {"fileUri": "gs://a"}, "mediaProcessing": "AGENTIC"}
    with pytest.raises(WireError) as refused:
        parts(video)

    assert refused.value.code == "unpriced_tool"
    assert parts(video | {"mediaProcessing": "STATIC"}).content.hidden == "file"


def test_every_text_of_a_conversation_is_counted():
    long = "é" * 1000
    history = [
        {"role": "model", "parts": [{"text": long, "thought": True, "thoughtSignature": "s" * 1000}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": long}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"b": [long]}}}]},
        {"role": "model", "parts": [{"executableCode": {"code": long}}]},
        {"role": "model", "parts": [{"codeExecutionResult": {"outcome": "OK", "output": long}}]},
        {"parts": {"text": long}},
        {"parts": [{"toolCall": {"toolType": "T", "args": {"q": long}}}]},
    ]

    parsed = WIRE.parse(request({"contents": history, "systemInstruction": {"parts": [{"text": long}]}}))

    assert parsed.content.text_bytes > 8 * 2000 + 1000
    assert parsed.content.messages == 8
    assert parsed.content.hidden is None


def test_free_form_values_keep_their_names():
    call = {"functionCall": {"name": "f", "args": {"a_b": 1, "aB": 2}}}

    assert parts(call).content.text_bytes > 0


def test_what_gemini_cli_sends_is_bounded_by_the_body():
    body = {
        "contents": HI,
        "systemInstruction": {"role": "user", "parts": [{"text": "You are an agent."}]},
        "tools": [{"functionDeclarations": [{"name": "ls", "parametersJsonSchema": {"type": "object"}}]}],
        "generationConfig": {
            "temperature": 1,
            "topP": 0.95,
            "topK": 64,
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "HIGH"},
        },
    }
    parsed = WIRE.parse(request(body, STREAM))
    router = WIRE.parse(
        request(body | {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {}}})
    )

    assert (parsed.output_limit, parsed.content.hidden, parsed.output_settable) == (None, None, True)
    assert router.content.hidden is None


LOWERED = [
    (b'{"contents":[]}', b'{"generationConfig":{"maxOutputTokens":9},"contents":[]}'),
    (b'{"generationConfig":{} , "a":1}', b'{"generationConfig":{"maxOutputTokens":9} , "a":1}'),
    (b'{"generationConfig": null}', b'{"generationConfig": {"maxOutputTokens":9}}'),
    (b'{"generation_config":{"topK":1}}', b'{"generation_config":{"maxOutputTokens":9,"topK":1}}'),
    (b'{"generation_config":{"max_output_tokens": "100" }}', b'{"generation_config":{"max_output_tokens": 9 }}'),
    (b'{"generationConfig":{"maxOutputTokens":100}}', b'{"generationConfig":{"maxOutputTokens":9}}'),
    (
        b'{"generationConfig":{"maxOutputTokens":100, "thinkingConfig":{"thinkingBudget":"50","b":1}}}',
        b'{"generationConfig":{"maxOutputTokens":9, "thinkingConfig":{"thinkingBudget":9,"b":1}}}',
    ),
    (
        b'{"generationConfig":{"max_output_tokens":100, "thinking_config":{"thinking_budget":10}}}',
        b'{"generationConfig":{"max_output_tokens":9, "thinking_config":{"thinking_budget":9}}}',
    ),
    (
        b'{"generationConfig":{"thinkingConfig":{"thinkingBudget":-1}}}',
        b'{"generationConfig":{"maxOutputTokens":9,"thinkingConfig":{"thinkingBudget":-1}}}',
    ),
    (
        b'{"generationConfig":{"thinkingConfig":{"thinkingBudget":9}}}',
        b'{"generationConfig":{"maxOutputTokens":9,"thinkingConfig":{"thinkingBudget":9}}}',
    ),
]


@pytest.mark.parametrize(("body", "wanted"), LOWERED)
def test_the_limit_is_set_where_the_request_has_it_and_nothing_else_changes(body: bytes, wanted: bytes):
    assert WIRE.rewrite(request(body), Rewrite(max_output=9)) == wanted

    envelope = b'{"model":"m", "request": %b ,"project":"p"}'
    changed = ENVELOPE.rewrite(request(envelope % body), Rewrite(max_output=9))
    assert changed == envelope % wanted


def test_a_rewritten_body_is_parsed_with_its_new_limit():
    asked = request({"contents": HI, "generation_config": {"max_output_tokens": "5000"}})
    parsed = WIRE.parse(asked)

    changed = WIRE.rewrite(asked, Rewrite(max_output=300), parsed=parsed)

    assert WIRE.parse(request(changed)).output_limit == 300
    assert WIRE.rewrite(asked, Rewrite()) == asked.body


def test_ai_studio_counts_the_request_as_it_is():
    asked = request(
        {"contents": HI, "tools": [{"functionDeclarations": []}], "model": "models/gemini-3.8-flash"}, STREAM
    )

    count = WIRE.count_request(asked)

    assert count is not None
    assert count.path == "/v1beta/models/gemini-3.8-flash:countTokens"
    assert json.loads(count.body) == {"generateContentRequest": json.loads(asked.body)}


def test_ai_studio_is_told_the_model_that_the_path_names():
    count = WIRE.count_request(request({"contents": HI}))

    assert count is not None
    assert json.loads(count.body) == {"generateContentRequest": {"model": "models/gemini-3.8-flash", "contents": HI}}


def test_vertex_counts_what_it_takes():
    body = {
        "contents": HI,
        "system_instruction": {"parts": [{"text": "s"}]},
        "safetySettings": [],
        "serviceTier": "flex",
    }

    count = WIRE.count_request(request(body, VERTEX))

    assert count is not None
    assert count.path == VERTEX.replace("generateContent", "countTokens")
    assert json.loads(count.body) == {"contents": HI, "system_instruction": {"parts": [{"text": "s"}]}}


def test_what_no_count_can_know_is_not_counted():
    for more in (
        {"tools": [{"google_search": {}}]},
        {"tools": [{"functionDeclarations": []}, {"computerUse": {}}]},
        {"cachedContent": "cachedContents/x"},
        {"cached_content": "cachedContents/x"},
        {"continuationToken": "dG9r"},
    ):
        for path in (WHOLE, VERTEX):
            assert WIRE.count_request(request({"contents": HI, **more}, path)) is None
    assert WIRE.count_request(request({"contents": HI}, "/v1/models/m:brandNew")) is None
    assert ENVELOPE.count_request(request({"model": "m", "request": {}})) is None


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{"totalTokens":640,"promptTokensDetails":[]}', 640),
        (b'{"totalTokens":640,"cachedContentTokenCount":100}', 740),
        (b'{"totalTokens":-1}', None),
        (b"{}", None),
        (b"[", None),
    ],
)
def test_a_count_is_read(body: bytes, wanted: int | None):
    assert WIRE.read_count(body) == wanted


def test_the_same_call_is_known_again_whatever_its_limit_and_verb():
    first = request({"contents": HI, "generationConfig": {"maxOutputTokens": 5}}, STREAM)
    second = request({"contents": HI, "generationConfig": {"max_output_tokens": 9}}, WHOLE)
    other = request({"contents": HI[0], "generationConfig": {}}, WHOLE)

    assert WIRE.same_call(first) == WIRE.same_call(second) != WIRE.same_call(other)


def test_the_same_call_of_code_assist_is_known_again_whatever_its_verb():
    def digest(verb: str, limit: int) -> bytes:
        envelope = {"model": "m", "request": {"contents": HI, "generationConfig": {"maxOutputTokens": limit}}}
        return ENVELOPE.same_call(Request("POST", "h", f"/v1internal:{verb}", {}, json.dumps(envelope).encode()))

    assert digest("generateContent", 5) == digest("streamGenerateContent", 9)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}', "RESOURCE_EXHAUSTED"),
        (b'[{\n "error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}\n}]', "RESOURCE_EXHAUSTED"),
        (b'{"error": {"code": 429}}', "429"),
        (b"{}", None),
        (b"[]", None),
        (b"\xff", None),
    ],
)
def test_code_of_an_error(body: bytes, code: str | None):
    assert WIRE.error_code(body) == code


def test_code_assist_is_a_request_in_an_envelope_that_a_plan_pays():
    envelope = {
        "model": "gemini-3.8-pro",
        "project": "p",
        "user_prompt_id": "u",
        "request": {"contents": HI, "session_id": "s"},
    }
    asked = Request("POST", "h", "/v1internal:streamGenerateContent", {}, json.dumps(envelope).encode())

    parsed = ENVELOPE.parse(asked)

    assert (parsed.model, parsed.streamed, parsed.subscription) == ("gemini-3.8-pro", True, True)
    assert parsed.content.hidden is None


def test_code_assist_with_credits_is_metered():
    envelope = {"model": "m", "enabled_credit_types": ["GOOGLE_ONE_AI"], "request": {"contents": HI}}

    assert not ENVELOPE.parse(request(envelope)).subscription


@pytest.mark.parametrize("envelope", [{"model": "m"}, {"model": "m", "request": []}, {"request": {"contents": HI}}])
def test_code_assist_without_its_envelope_is_refused(envelope: dict):
    with pytest.raises(WireError):
        ENVELOPE.parse(request(envelope))


SPELLED = {"maxOutputTokens": "max_output_tokens", "candidateCount": "candidate_count"}


@settings(max_examples=100, deadline=None)
@given(
    limit=st.none() | st.integers(1, 70_000),
    candidates=st.none() | st.integers(0, 8),
    budget=st.none() | st.integers(-1, 30_000),
    text=st.text(max_size=200),
    snake=st.booleans(),
    as_text=st.booleans(),
)
def test_no_reply_bills_more_than_the_ceiling(limit, candidates, budget, text: str, snake: bool, as_text: bool):
    """Of the worst reply: a token a byte, and each candidate with its whole limit and, beside it, its whole budget."""

    def written(number):
        return str(number) if as_text and number is not None else number

    told = {"maxOutputTokens": written(limit), "candidateCount": written(candidates)}
    told = {SPELLED[key] if snake else key: value for key, value in told.items() if value is not None}
    thinking = {"thinkingConfig": {"thinkingBudget": written(budget)}} if budget is not None else {}
    parsed = WIRE.parse(request({"contents": [{"parts": [{"text": text}]}], "generationConfig": told | thinking}))

    most = ceiling(parsed, Facts(), parsed.output_limit)

    assert most is not None
    each = min(limit or Facts.max_output_tokens, Facts.max_output_tokens) + max(0, budget or 0)
    assert most.output >= (candidates or 1) * each
    assert most.prompt >= len(text.encode("utf-8", "surrogatepass"))


def test_tools_may_fill_the_window_and_write_the_whole_maximum():
    parsed = parse(tools=[{"googleSearch": {}}], generationConfig={"maxOutputTokens": 100})

    most = ceiling(parsed, Facts(), 100)

    assert most is not None
    assert (most.prompt, most.output) == (1_000_000, 100 + 65_536)
    assert most.fees == {Unit.SEARCH_PROMPT: 1}
