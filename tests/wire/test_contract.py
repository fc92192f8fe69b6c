"""What every wire promises, run over all of them."""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
from forms import sent, silence
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Parsed, Reading, Refusal, Request, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.wire import WIRES, wire_named
from lockpin_core.wire.protocol import Wire
from lockpin_core.wire.sse import SseReader

WORDS = st.sampled_from(["type", "text", "content", "role", "tools", "max_tokens", "stream"]) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
each_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)

# Values that a field was never meant to have.
NASTY = (
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "\ud800",
    [],
    [1],
    [[]],
    {},
    {"a": {}},
    {"type": ["x"]},
    {"type": "text"},
)
TEXT_PART = {"type": "text", "text": "hé", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
COMPLETIONS = {
    "model": "m",
    "max_tokens": 9,
    "prompt": ["hé", [1, 2], "x"],
    "n": 2,
    "best_of": 3,
    "echo": True,
    "suffix": "s",
    "stop": ["a"],
    "stream": True,
    "stream_options": {"include_usage": False},
    "logit_bias": {"1": 1},
    "logprobs": 2,
    "brand_new": "x",
}
RICH = {
    "anthropic_messages": {
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "system": [TEXT_PART],
        "tools": [
            {"name": "f", "input_schema": {"type": "object"}, "allowed_callers": ["direct"]},
            {"type": "bash_20250124", "name": "bash"},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 2, "allowed_domains": ["x"]},
            {"type": "advisor_20260301", "name": "advisor", "model": "a", "caching": {"type": "ephemeral"}},
            {"type": "mcp_toolset", "mcp_server_name": "s", "configs": {"t": {"enabled": True}}},
        ],
        "mcp_servers": [{"type": "url", "name": "s", "url": "https://s", "tool_configuration": {"enabled": True}}],
        "container": {"id": "c", "skills": [{"type": "custom", "skill_id": "s"}]},
        "fallbacks": [{"model": "b", "max_tokens": 9, "thinking": {"type": "adaptive"}}],
        "billing_policy": {"type": "billing_policy", "bill_to": "self"},
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 1024, "block_binding": {"a": 1}},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
        "context_management": {
            "edits": [
                {"type": "clear_tool_uses_20250919", "keep": {"type": "a", "value": 1}},
                {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 9}},
            ]
        },
        "metadata": {"user_id": "u"},
        "stop_sequences": ["a"],
        "service_tier": "auto",
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    TEXT_PART,
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "i", "name": "f", "input": {"a": [1]}, "caller": {"type": "direct"}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "s",
                        "content": [{"type": "web_search_result", "url": "u", "encrypted_content": "e"}],
                    },
                    {
                        "type": "bash_code_execution_tool_result",
                        "tool_use_id": "b",
                        "content": {
                            "type": "bash_code_execution_result",
                            "content": [{"type": "bash_code_execution_output", "file_id": "f"}],
                        },
                    },
                    {
                        "type": "compaction",
                        "content": "c",
                        "tool_changes": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}],
                    },
                    {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": None},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "i",
                        "content": [IMAGE, {"type": "tool_reference", "tool_name": "f"}],
                    },
                    {
                        "type": "document",
                        "source": {"type": "content", "content": [IMAGE]},
                        "citations": {"enabled": True},
                    },
                ],
            },
        ],
    },
    "openai_chat": {
        "model": "m",
        "max_tokens": 9,
        "n": 2,
        "stream": True,
        "stream_options": {"include_usage": False},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
        "modalities": ["text", "audio"],
        "audio": {"voice": {"id": "v"}, "format": "wav"},
        "prediction": {"type": "content", "content": [{"type": "text", "text": "p"}]},
        "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
        "prompt_cache_retention": "24h",
        "logit_bias": {"1": 1},
        "messages": [
            {"role": "user", "content": [TEXT_PART, {"type": "image_url", "image_url": {"url": "u", "detail": "low"}}]},
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "A", "format": "wav"}}]},
            {
                "role": "assistant",
                "audio": {"id": "a"},
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        ],
    },
    "openai_embeddings": {
        "model": "m",
        "input": ["hé", [1, 2], "x"],
        "encoding_format": "base64",
        "dimensions": 9,
        "user": "u",
        "brand_new": "x",
    },
    "openai_completions": COMPLETIONS,
    "compatible_completions": COMPLETIONS,
}
RICH["gemini"] = {
    "model": "models/m",
    "contents": [
        {"role": "user", "parts": [{"text": "hé"}, {"inlineData": {"mimeType": "image/png", "data": "AA"}}]},
        {
            "role": "model",
            "parts": [
                {"text": "t", "thought": True, "thoughtSignature": "c2ln"},
                {"function_call": {"name": "f", "args": {"a": [1]}, "id": "c"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"b": {}}, "parts": [{"inline_data": {"data": "AA"}}]}},
                {"fileData": {"fileUri": "u", "mimeType": "video/mp4"}, "mediaResolution": {"level": "L"}},
            ],
        },
    ],
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [{"functionDeclarations": [{"name": "f", "parameters": {}}]}, {"google_search": {"searchTypes": {}}}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    "generationConfig": {
        "maxOutputTokens": 9,
        "candidateCount": 2,
        "responseModalities": ["TEXT", "AUDIO"],
        "responseSchema": {"type": "OBJECT"},
        "speechConfig": {"languageCode": "de"},
        "thinkingConfig": {"thinkingBudget": 5, "includeThoughts": True},
    },
    "safetySettings": [{"category": "C", "threshold": "T"}],
    "serviceTier": "flex",
    "cachedContent": "cachedContents/x",
}
RICH["code_assist"] = {"model": "m", "project": "p", "user_prompt_id": "u", "request": RICH["gemini"]}
RICH["gemini_embed"] = {
    "requests": [
        {
            "model": "models/m",
            "content": {"parts": [{"text": "a"}, {"fileData": {"fileUri": "u"}}]},
            "taskType": "T",
            "embedContentConfig": {"autoTruncate": True},
        },
        {"model": "models/m", "content": {"parts": [{"executableCode": {"code": "c"}}]}},
    ],
}
RICH["gemini_interactions"] = {
    "model": "models/m",
    "system_instruction": "s",
    "stream": True,
    "store": False,
    "background": False,
    "service_tier": "flex",
    "cached_content": "cachedContents/x",
    "response_format": [{"type": "text", "mime_type": "application/json", "schema": {"a": 1}}],
    "response_modalities": ["text", "audio"],
    "safety_settings": [{"type": "harassment", "threshold": "off"}],
    "generation_config": {
        "max_output_tokens": 9,
        "thinking_level": "low",
        "stop_sequences": ["a"],
        "speech_config": [{"voice": "v"}],
        "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["f"]}},
    },
    "tools": [
        {"type": "function", "name": "f", "parameters": {"type": "object"}},
        {"type": "computer_use", "environment": "browser", "excluded_predefined_functions": ["a"]},
    ],
    "input": [
        {"type": "user_input", "content": [{"type": "text", "text": "hé"}, {"type": "image", "data": "AA"}]},
        {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "t"}]},
        {"type": "function_call", "id": "c", "name": "f", "arguments": {"a": [1]}},
        {"type": "function_result", "call_id": "c", "name": "f", "result": [{"type": "text", "text": "r"}]},
        {"type": "function_result", "call_id": "c", "name": "f", "result": {"b": {}}},
        {"type": "google_search_result", "call_id": "s", "result": [{"search_suggestions": "x"}]},
        {"type": "audio", "uri": "u", "processing": {"type": "static"}},
        {"type": "document", "mime_type": "text/csv", "data": "YQ=="},
        {"role": "user", "content": [{"type": "video", "uri": "u", "mime_type": "video/mp4"}]},
    ],
}
RICH["openai_responses"] = {
    "model": "m",
    "instructions": "s",
    "max_output_tokens": 99,
    "max_tool_calls": 2,
    "stream": True,
    "store": False,
    "background": False,
    "previous_response_id": "resp_1",
    "reasoning": {"effort": "low", "mode": "pro", "context": "all_turns"},
    "text": {"format": {"type": "json_schema", "name": "s", "schema": {}}, "verbosity": "low"},
    "prompt_cache_options": {"mode": "explicit", "ttl": "12h"},
    "context_management": [{"type": "compaction", "compact_threshold": 9}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function"}]},
    "tools": [
        {"type": "function", "name": "f", "parameters": {"type": "object"}},
        {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c", "format": {"type": "text"}}]},
        {"type": "web_search", "filters": {"allowed_domains": ["a"]}},
        {"type": "mcp", "server_label": "l", "allowed_tools": ["t"]},
    ],
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hé", "prompt_cache_breakpoint": {"mode": "explicit"}},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
                {"type": "input_file", "file_id": "f"},
            ],
        },
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "t"}]},
        {"type": "shell_call", "call_id": "d", "action": {"commands": ["ls"]}},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "g"}]},
        {"id": "msg_1"},
    ],
}
RICH["openai_compact"] = RICH["openai_responses"]
RICH["anthropic_batches"] = {
    "requests": [
        {
            "custom_id": "a",
            "params": {
                "model": "m",
                "max_tokens": 9,
                "system": [TEXT_PART],
                "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                "thinking": {"type": "disabled"},
                "messages": [{"role": "user", "content": [TEXT_PART, IMAGE]}],
            },
        },
        {
            "custom_id": "b",
            "params": {
                "model": "m",
                "max_tokens": 9,
                "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}],
                "messages": [{"role": "user", "content": [TEXT_PART]}],
            },
        },
    ]
}
CLAUDE = RICH["anthropic_messages"]
RICH["bedrock_invoke"] = {key: CLAUDE[key] for key in CLAUDE if key not in ("model", "stream", "service_tier")} | {
    "anthropic_version": "bedrock-2023-05-31",
    "anthropic_beta": ["context-1m-2025-08-07"],
}
PICTURE = {"image": {"format": "png", "source": {"bytes": "AA"}}}
RICH["bedrock_converse"] = {
    "system": [{"text": "s"}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"text": "hé"},
                PICTURE,
                {"document": {"format": "pdf", "name": "d", "source": {"bytes": "AA"}, "citations": {"enabled": True}}},
                {"document": {"name": "d", "source": {"content": [{"text": "t"}]}}},
                {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/k", "bucketOwner": "1"}}}},
                {"guardContent": {"text": {"text": "g", "qualifiers": ["query"]}}},
                {"searchResult": {"source": "s", "title": "t", "content": [{"text": "c"}]}},
                {"cachePoint": {"type": "default"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "r", "signature": "s"}}},
                {"citationsContent": {"content": [{"text": "c"}], "citations": [{"title": "t"}]}},
                {"toolUse": {"toolUseId": "i", "name": "f", "input": {"a": [1]}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "i", "content": [{"json": {"b": {}}}, {"text": "t"}, PICTURE]}},
            ],
        },
    ],
    "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "stopSequences": ["a"]},
    "toolConfig": {
        "tools": [
            {"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": {"type": "object"}}}},
            {"cachePoint": {"type": "default"}},
        ],
        "toolChoice": {"tool": {"name": "f"}},
    },
    "additionalModelRequestFields": {
        "thinking": {"type": "enabled", "budget_tokens": 5},
        "anthropic_beta": ["x"],
        "top_k": 5,
        "tools": [{"type": "bash_20250124", "name": "bash"}],
    },
    "additionalModelResponseFieldPaths": ["/stop_sequence"],
    "requestMetadata": {"a": "b"},
    "performanceConfig": {"latency": "standard"},
    "serviceTier": {"type": "flex"},
    "outputConfig": {
        "effort": "low",
        "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{}", "name": "s"}}},
    },
    "projectIdentifier": "default",
}
RICH["openai_images"] = {
    "model": "m",
    "prompt": "hé",
    "n": 2,
    "size": "1024x1536",
    "quality": "low",
    "partial_images": 1,
    "stream": True,
    "background": "opaque",
    "output_format": "webp",
    "output_compression": 50,
    "images": [{"image_url": "data:image/png;base64,AA"}, {"file_id": "f"}],
    "mask": {"file_id": "g"},
    "user": "u",
}
RICH["openai_speech"] = {
    "model": "m",
    "input": "hé",
    "voice": {"id": "v"},
    "instructions": "calmly",
    "response_format": "wav",
    "speed": 1.5,
    "stream_format": "sse",
}
RICH["openai_transcriptions"] = {
    "model": "m",
    "file": silence(2),
    "prompt": "hé",
    "keywords": ["a", "b"],
    "languages": ["de"],
    "language": "de",
    "temperature": 0.5,
    "response_format": "json",
    "stream": True,
    "include": ["logprobs"],
    "timestamp_granularities": ["word"],
}
# A small request of each format that has no `messages`, and the only member of it that a rewrite may touch.
PLAIN: dict[str, dict] = {
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "é\u2028"}]}]},
    "code_assist": {"request": {"contents": [{"role": "user", "parts": [{"text": "é\u2028"}]}]}},
    "bedrock_converse": {"messages": [{"role": "user", "content": [{"text": "é\u2028"}]}]},
}
PLAIN["anthropic_batches"] = {
    "requests": [{"custom_id": "a", "params": {"model": "m", "max_tokens": 5, "messages": []}}]
}
PLAIN["openai_responses"] = PLAIN["openai_compact"] = {"input": [{"role": "user", "content": "é\u2028"}]}
PLAIN["gemini_interactions"] = {"input": [{"type": "text", "text": "é\u2028"}]}
TOUCHED = {
    "gemini_interactions": {"generation_config"},
    "gemini": {"generationConfig"},
    "code_assist": {"request"},
    "bedrock_converse": {"inferenceConfig"},
    "openai_responses": {"max_output_tokens"},
}
STREAMED_BY_PATH = ("gemini", "code_assist", "bedrock_converse", "bedrock_invoke")
LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens"}
SAME_DATA = {"compatible_completions": "openai_completions", "openai_compact": "openai_responses"}
NAMED = dict.fromkeys(("bedrock_converse", "bedrock_invoke"), "anthropic.m")  # models that a path names
WITHOUT_OUTPUT = (  # or without a limit for it
    *("openai_embeddings", "gemini_embed", "openai_compact", "anthropic_batches"),
    *("openai_images", "openai_speech", "openai_transcriptions"),
)
DATA = Path(__file__).resolve().parent.parent / "data"


def mutations(tree: object) -> Iterator[object]:
    """Give the tree with each of its nodes replaced by each nasty value, one at a time."""
    yield from NASTY
    match tree:
        case dict():
            for key, item in tree.items():
                yield from ({**tree, key: other} for other in mutations(item))
        case list():
            for place, item in enumerate(tree):
                yield from ([*tree[:place], other, *tree[place + 1 :]] for other in mutations(item))


def request(body: bytes, path: str = "/p", wire: Wire | None = None) -> Request:
    return Request("POST", "h", path, {}, body, NAMED.get(wire.name) if wire is not None else None)


def limits(tree: object) -> set[object]:
    """Give the output limits in a body, wherever they stand."""
    if not isinstance(tree, dict):
        return set()
    own = {value for key, value in tree.items() if key in LIMITS and not isinstance(value, dict | list)}
    return own.union(*map(limits, tree.values()))


@each_wire
@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=60))
def test_parse_raises_wire_error_only_on_any_bytes(wire: Wire, body: bytes):
    with pytest.raises(WireError) as refused:
        wire.parse(request(body, wire=wire))

    begins_as_object = body.lstrip(b" \t\r\n").startswith(b"{")  # then a field that is not known may be named first
    assert refused.value.code == "bad_request" or (begins_as_object and refused.value.code == "unpriced_tool")


def parsed_or_code(wire: Wire, body: object) -> str:
    raw, headers = sent(wire.name, body)
    try:
        parsed = wire.parse(replace(request(raw, wire=wire), headers=headers))
    except WireError as error:
        assert len(str(error)) < 300
        return error.code
    assert isinstance(parsed, Parsed)
    assert parsed.content.nfc_bytes >= parsed.content.text_bytes >= 0
    return "parsed"


@each_wire
def test_parse_raises_wire_error_only_whatever_stands_in_a_field(wire: Wire):
    found = {parsed_or_code(wire, body) for body in mutations(RICH[wire.name])}

    assert parsed_or_code(wire, RICH[wire.name]) == "parsed"
    assert found == {"parsed", "bad_request", "unpriced_tool"}


@each_wire
@settings(max_examples=60, deadline=None)
@given(body=st.dictionaries(WORDS, JSON, max_size=4))
def test_parse_raises_wire_error_only_on_any_json(wire: Wire, body: dict):
    parsed_or_code(wire, {"model": "m", "messages": [body], **body})


def parsed_of(wire: Wire, raw: bytes) -> Parsed | None:
    try:
        return wire.parse(request(raw, wire=wire))
    except WireError:
        return None


@each_wire
@settings(max_examples=150, deadline=None)
@given(
    more=st.dictionaries(WORDS.filter(lambda key: key not in ("model", "messages")), JSON, max_size=4),
    limit=st.integers(1, 10**6),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 3, "\t"]),
    asks=st.booleans(),
)
def test_rewrite_changes_what_it_was_asked_and_nothing_else(
    wire: Wire, more: dict, limit: int, ascii_only: bool, indent: int | str | None, asks: bool
):
    more.pop("thinking", None)
    for key in [key for key in LIMITS & more.keys() if type(more[key]) is int and more[key] < limit]:
        del more[key]  # a lower one stays
    plain = PLAIN.get(wire.name, {"messages": [{"role": "user", "content": "é\u2028"}]})
    body = {**plain, **more, "model": "m"}
    raw = json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "replace")
    body = json.loads(raw)
    if wire.name in WITHOUT_OUTPUT:
        assert wire.rewrite(request(raw, wire=wire), Rewrite(limit, asks)) == raw
        return

    changed = wire.rewrite(request(raw, wire=wire), Rewrite(limit, asks), output_field="max_tokens")
    if (parsed := parsed_of(wire, raw)) is not None:
        assert (
            wire.rewrite(request(raw, wire=wire), Rewrite(limit, asks), output_field="max_tokens", parsed=parsed)
            == changed
        )

    after = json.loads(changed)
    touched = {key for key in {*body, *after} if body.get(key, "absent") != after.get(key, "absent")}
    assert touched <= TOUCHED.get(wire.name, {"max_tokens", "max_completion_tokens", "stream_options"})
    assert limit in limits(after)
    inside = body.get("request", body)
    kept = json.dumps(
        inside.get("contents") or inside.get("input") or inside["messages"], ensure_ascii=ascii_only, indent=indent
    ).encode("utf-8", "replace")
    assert indent is not None or kept in changed
    if asks and wire.usage_filter():
        assert after["stream_options"]["include_usage"] is True


@each_wire
@pytest.mark.parametrize("streamed", [True, False])
@settings(max_examples=150, deadline=None)
@given(chunks=st.lists(st.binary(max_size=40) | JSON.map(lambda v: b"data: " + json.dumps(v).encode() + b"\n\n")))
def test_scanner_never_raises_and_does_not_mind_chunks(wire: Wire, streamed: bool, chunks: list[bytes]):
    whole, single = wire.scanner(streamed=streamed), wire.scanner(streamed=streamed)
    body = b"".join(chunks)
    whole.feed(body)
    for i in range(len(body)):
        single.feed(body[i : i + 1])
        if i % 16 == 0:
            single.result()

    assert single.result() == whole.result() == whole.result()


def words(value: object) -> Iterator[str]:
    """Give every text in a value."""
    match value:
        case str():
            yield value
        case Mapping():
            yield from (word for item in value.items() for word in words(item))
        case tuple() | frozenset():
            yield from (word for item in value for word in words(item))
        case _ if is_dataclass(value):
            yield from (word for one in fields(value) for word in words(getattr(value, one.name)))


NAMES = st.text(st.characters(), max_size=4) | st.sampled_from(["\ud800", "a\r\nb", "m", "x" * 300, "\x7f", "é"]) | JSON
USAGE_WORDS = ("service_tier", "speed", "inference_geo")


@each_wire
@settings(max_examples=200, deadline=None)
@given(said=st.fixed_dictionaries(dict.fromkeys(("model", "id", "code", "stop", *USAGE_WORDS), NAMES)))
def test_every_word_of_a_reading_can_be_written_anywhere(wire: Wire, said: dict):
    counts = {"input_tokens": 1, "output_tokens": 1, "prompt_tokens": 1, "completion_tokens": 1}
    usage = {**counts, **{key: said[key] for key in USAGE_WORDS}, "iterations": [{**counts, "model": said["model"]}]}
    names = {"model": said["model"], "id": said["id"], "service_tier": said["service_tier"]}
    error = {"type": said["code"], "code": said["stop"]}
    bodies = (
        {"type": "message", **names, "usage": usage, "stop_reason": said["stop"], "choices": []},
        {"type": "error", "error": error, **names},
        {"type": "message_start", "message": {**names, "usage": usage}, "error": error},
        {"type": "message_delta", "delta": {"stop_reason": said["stop"]}, "usage": usage, "choices": []},
    )
    for streamed, raw in [
        *((False, json.dumps(body).encode()) for body in bodies),
        (True, b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies)),
    ]:
        scanner = wire.scanner(streamed=streamed)
        scanner.feed(raw)
        found = list(words(scanner.result()))
        assert all(word.isascii() and word.isprintable() and 0 < len(word) <= 128 for word in found)
    code = wire.error_code(json.dumps({"error": error}).encode())
    assert code is None or (code.isascii() and code.isprintable() and len(code) <= 128)


@each_wire
@settings(max_examples=200, deadline=None)
@given(said=st.fixed_dictionaries({}, optional=dict.fromkeys(("model", *USAGE_WORDS), NAMES)))
def test_every_word_of_a_parsed_request_and_of_a_refusal_can_be_written(wire: Wire, said: dict):
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "\ud800"}], **said}).encode()
    try:
        parsed = wire.parse(request(raw, wire=wire))
    except WireError as error:
        assert str(error).encode()
    else:
        assert all(len(word.encode()) <= 1024 and word.isprintable() for word in words(parsed))


@each_wire
def test_reply_that_is_no_stream_is_kept_up_to_a_limit_where_a_stream_was_asked_for(wire: Wire):
    if wire.name in WITHOUT_OUTPUT:
        return

    def reading(*, streamed: bool) -> Reading:
        asks = PLAIN.get(wire.name) or {"max_tokens": 5, "messages": []}
        asks = asks if wire.name in STREAMED_BY_PATH else {**asks, "stream": streamed}
        raw = json.dumps({"model": "m", **asks}).encode()
        path = "/p:streamGenerateContent" if streamed else "/p:generateContent"
        path = ("/model/m/converse-stream" if streamed else "/model/m/converse") if wire.name in NAMED else path
        scanner = wire.scanner(streamed=False, asked=wire.parse(request(raw, path, wire)))
        scanner.feed(b'{"long": "')
        for _ in range(17):
            scanner.feed(b" " * (1 << 20))
        scanner.feed(b'", "usage": {}}')
        return scanner.result()

    assert not reading(streamed=True).readable
    assert not reading(streamed=True).complete
    assert reading(streamed=False).readable


@each_wire
def test_scanner_never_raises_whatever_stands_in_an_event(wire: Wire):
    if wire.name in (*WITHOUT_OUTPUT, *NAMED):  # whose events come in frames: see their own tests
        return
    folder = DATA / SAME_DATA.get(wire.name, wire.name)
    names = (
        "*thinking_tooluse.sse",
        "sse_crlf_split.sse",
        "*gemini_stream*.sse",
        "code_assist*.sse",
        "*actions_stream.sse",
    )
    streams = [path for name in names for path in folder.glob(name)]
    events = [event.data for path in streams for event in SseReader().feed(path.read_bytes())]
    assert len(events) > 5
    start = wire.scanner(streamed=True)
    for data in events:
        for event in mutations(json.loads(data) if data.startswith(b"{") else []):
            scanner = copy.deepcopy(start)
            scanner.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
            reading = scanner.result()
            assert all(count >= 0 for portion in reading.portions for count in portion.usage.values())
        start.feed(b"data: " + data + b"\n\n")


@each_wire
def test_scanner_never_raises_whatever_stands_in_a_body(wire: Wire):
    for path in (DATA / SAME_DATA.get(wire.name, wire.name)).glob("*.json"):
        if ".expect" not in path.name and path.stat().st_size < 2000:
            for body in mutations(json.loads(path.read_bytes())):
                scanner = wire.scanner(streamed=False)
                scanner.feed(json.dumps(body).encode())
                scanner.result()


@each_wire
@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=30) | JSON.map(lambda value: json.dumps({"error": value}).encode()))
def test_error_code_never_raises(wire: Wire, body: bytes):
    assert isinstance(wire.error_code(body), str | None)


@each_wire
def test_refusal_is_json_with_the_message_and_the_lockpin_object(wire: Wire):
    reply = wire.refuse(Refusal("budget_exceeded", 402, "lockpin: too much"), {"code": "budget_exceeded", "call": "c"})

    body = json.loads(reply.body)
    assert reply.status == 402
    assert reply.headers["x-should-retry"] == "false"
    assert body.get("error", body)["message"] == "lockpin: too much"
    assert body["lockpin"] == {"code": "budget_exceeded", "call": "c"}


def test_wires_have_different_names_and_are_found_by_them():
    assert [wire_named(wire.name) for wire in WIRES] == list(WIRES)
    assert len({wire.name for wire in WIRES}) == len(WIRES)
    assert all(wire.min_output >= 1 and wire.cut_rule in ("observed", "hold") for wire in WIRES)
