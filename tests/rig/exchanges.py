"""Calls that SDKs of any language make, what the origin answers, and what such an answer costs: by hand, from prices
that no two units of can be mixed up."""

import json
from dataclasses import dataclass, field

PROMPT = "word " * 800  # 4,000 bytes: no tokenizer makes more tokens of them, so 1,300 may be reported
TEXT = "hello there"
CONFIG = """
upstreams: {{api.openai.com: "{origin}", api.anthropic.com: "{origin}", generativelanguage.googleapis.com: "{origin}"}}
daily_usd: 100
pricing:
  plain-model: {{input_per_mtok: 1, output_per_mtok: 5, cache_read_per_mtok: 0.1, max_output_tokens: 32000,
    context_tokens: 200000}}
  dear-model: {{input_per_mtok: 1000000, output_per_mtok: 0, max_output_tokens: 32000, context_tokens: 200000}}
"""
REFUSED = 'lockpin: budget "daily" (machine, day) would pass its $100.00 limit: spent $'

# 300 in at 1,000 nanodollars a token, 1,000 cached at 100, 57 out at 5,000.
CACHED, CACHED_NANO = {"input": 300, "cache_read": 1000, "output": 57}, 685_000
# 1,300 in, 57 out.
WHOLE, WHOLE_NANO = {"input": 1300, "output": 57}, 1_585_000
# 1,300 in.
EMBEDDED, EMBEDDED_NANO = {"input": 1300}, 1_300_000


@dataclass(frozen=True)
class Exchange:
    """A call by its dotted name, with arguments that are one and the same in every language."""

    sdk: str
    call: str
    arguments: dict
    order: dict = field(repr=False)
    usage: dict
    nano: int
    shown: str = TEXT  # stands in what the SDK gives back, as JSON without blanks

    def asking(self, model: str) -> dict:
        return self.arguments | {"model": model}


def _json(value: object) -> dict:
    return {"body": json.dumps(value)}


def _events(*events: dict | str, named: bool = False) -> dict:
    """Make a stream that comes in pieces of seven bytes."""
    lines = []
    for event in events:
        lines += [f"event: {event['type']}"] if named and isinstance(event, dict) else []
        lines += [f"data: {event if isinstance(event, str) else json.dumps(event)}", ""]
    return {"body": "\n".join(lines) + "\n", "type": "text/event-stream", "chunk": 7}


MESSAGES = [{"role": "user", "content": PROMPT}]
_CHAT_USAGE = {"prompt_tokens": 1300, "completion_tokens": 57, "total_tokens": 1357,
               "prompt_tokens_details": {"cached_tokens": 1000}}  # fmt: skip
_CHAT = {"id": "chatcmpl-1", "created": 1, "model": "plain-model"}
_MESSAGE = {"role": "assistant", "content": TEXT, "refusal": None}
_CHUNK = _CHAT | {"object": "chat.completion.chunk"}
_COMPLETION = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "plain-model"}
_COMPLETION_USAGE = {"prompt_tokens": 1300, "completion_tokens": 57, "total_tokens": 1357}
_ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": TEXT, "annotations": []}]}  # fmt: skip
_RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "plain-model", "status": "completed",
    "output": [_ITEM], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "service_tier": "default",
    "usage": {"input_tokens": 1300, "input_tokens_details": {"cached_tokens": 1000}, "output_tokens": 57,
              "output_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 1357},
}  # fmt: skip
_STARTED = _RESPONSE | {"status": "in_progress", "output": [], "usage": None}
_DELTA = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0,
          "delta": TEXT, "logprobs": []}  # fmt: skip
_MSG = {"id": "msg_1", "type": "message", "role": "assistant", "model": "plain-model", "stop_reason": "end_turn",
        "stop_sequence": None, "content": [{"type": "text", "text": TEXT}],
        "usage": {"input_tokens": 300, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 0,
                  "output_tokens": 57}}  # fmt: skip
_GEMINI_USAGE = {"promptTokenCount": 1300, "cachedContentTokenCount": 1000, "candidatesTokenCount": 37,
                 "thoughtsTokenCount": 20, "totalTokenCount": 1357}  # fmt: skip
_CANDIDATE = {"content": {"role": "model", "parts": [{"text": TEXT}]}, "index": 0}
_GEMINI = {"modelVersion": "plain-model", "responseId": "r1"}


def _numbered(*events: dict) -> list[dict]:
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _chat(**more: object) -> dict:
    return {"messages": MESSAGES, "max_completion_tokens": 700} | more


def _cached(sdk: str, call: str, arguments: dict, order: dict) -> Exchange:
    return Exchange(sdk, call, arguments, order, CACHED, CACHED_NANO)


EXCHANGES = {
    "chat": _cached(
        "openai", "chat.completions.create", _chat(),
        _json(_CHAT | {"object": "chat.completion", "usage": _CHAT_USAGE, "choices": [
            {"index": 0, "finish_reason": "stop", "logprobs": None, "message": _MESSAGE}]}),
    ),
    "chat stream": _cached(
        "openai", "chat.completions.create", _chat(stream=True),
        _events(
            _CHUNK | {"choices": [{"index": 0, "delta": {"content": TEXT}, "finish_reason": None}]},
            _CHUNK | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            _CHUNK | {"choices": [], "usage": _CHAT_USAGE}, "[DONE]",
        ),
    ),
    "responses": _cached(
        "openai", "responses.create", {"input": PROMPT, "max_output_tokens": 700}, _json(_RESPONSE)
    ),
    "responses stream": _cached(
        "openai", "responses.create", {"input": PROMPT, "max_output_tokens": 700, "stream": True},
        _events(*_numbered(
            {"type": "response.created", "response": _STARTED}, _DELTA,
            {"type": "response.completed", "response": _RESPONSE}), named=True),
    ),
    "completions": Exchange(
        "openai", "completions.create", {"prompt": PROMPT, "max_tokens": 700},
        _json(_COMPLETION | {"usage": _COMPLETION_USAGE, "choices": [
            {"index": 0, "text": TEXT, "finish_reason": "stop", "logprobs": None}]}),
        WHOLE, WHOLE_NANO,
    ),
    "completions stream": Exchange(
        "openai", "completions.create", {"prompt": PROMPT, "max_tokens": 700, "stream": True},
        _events(
            _COMPLETION | {"choices": [{"index": 0, "text": TEXT, "finish_reason": "stop", "logprobs": None}]},
            _COMPLETION | {"choices": [], "usage": _COMPLETION_USAGE}, "[DONE]",
        ),
        WHOLE, WHOLE_NANO,
    ),
    "embeddings": Exchange(
        "openai", "embeddings.create", {"input": PROMPT},
        _json({"object": "list", "model": "plain-model", "usage": {"prompt_tokens": 1300, "total_tokens": 1300},
               "data": [{"object": "embedding", "index": 0, "embedding": "AACAPwAAgD8="}]}),  # 1.0 and 1.0
        EMBEDDED, EMBEDDED_NANO, '"embedding":[1',
    ),
    "messages": _cached("anthropic", "messages.create", {"messages": MESSAGES, "max_tokens": 700}, _json(_MSG)),
    "messages stream": _cached(
        "anthropic", "messages.create", {"messages": MESSAGES, "max_tokens": 700, "stream": True},
        _events(
            {"type": "message_start", "message": _MSG | {
                "content": [], "stop_reason": None, "usage": _MSG["usage"] | {"output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
             "usage": {"output_tokens": 57}},
            {"type": "message_stop"}, named=True,
        ),
    ),
    "gemini": _cached(
        "gemini", "models.generate_content", {"contents": PROMPT, "config": {"max_output_tokens": 700}},
        _json(_GEMINI | {"candidates": [_CANDIDATE | {"finishReason": "STOP"}], "usageMetadata": _GEMINI_USAGE}),
    ),
    "gemini stream": _cached(
        "gemini", "models.generate_content_stream", {"contents": PROMPT, "config": {"max_output_tokens": 700}},
        _events(
            _GEMINI | {"candidates": [_CANDIDATE]},
            _GEMINI | {"candidates": [_CANDIDATE | {"finishReason": "STOP"}], "usageMetadata": _GEMINI_USAGE},
        ),
    ),
    "gemini embed": Exchange(
        "gemini", "models.embed_content", {"contents": PROMPT},
        _json({"embeddings": [{"values": [0.5, 0.25]}], "usageMetadata": {"promptTokenCount": 1300}}),
        EMBEDDED, EMBEDDED_NANO, '"values":[0.5,0.25]',
    ),
}  # fmt: skip
