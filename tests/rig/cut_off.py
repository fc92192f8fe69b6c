"""Answers that stop at the output limit, whatever it is, and clients that do not leave it at that.

A client sends the whole conversation again each time, with what it got so far and the limit that it always uses, for as
long as its answers are cut off: so do aider (without end) and Claude Code (three times).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

PARTIAL = "half of it"
GO_ON = "Output token limit hit. Resume directly."


def limit_of(body: bytes) -> int:
    """Read the output limit of a request on any of the wires."""
    told = json.loads(body)
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    return next(int(told[name]) for name in names if name in told)


def answer(path: str, body: bytes) -> dict:
    """Give the origin's order for an answer that is cut off at the limit, and bills all of it."""
    request, limit = json.loads(body), limit_of(body)
    end = next(end for end in _WIRES if path.split("?")[0].endswith(end))
    whole, events = _WIRES[end](request["model"], limit)
    if not request.get("stream"):
        return {"body": json.dumps(whole)}
    return {"body": events, "type": "text/event-stream", "chunk": "event"}


def _events(*events: dict) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def _messages(model: str, limit: int) -> tuple[dict, str]:
    usage = {"input_tokens": 10, "output_tokens": limit}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage | {"output_tokens": 1}}  # fmt: skip
    ended = {"stop_reason": "max_tokens", "stop_sequence": None}
    events = _events(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": PARTIAL}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": limit}},
        {"type": "message_stop"},
    )
    return message | ended | {"content": [{"type": "text", "text": PARTIAL}], "usage": usage}, events


def _chat(model: str, limit: int) -> tuple[dict, str]:
    usage = {"prompt_tokens": 10, "completion_tokens": limit, "total_tokens": 10 + limit}
    message = {"role": "assistant", "content": PARTIAL, "refusal": None}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "usage": usage,
             "choices": [{"index": 0, "finish_reason": "length", "logprobs": None, "message": message}]}  # fmt: skip
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    chunks = [
        base | {"choices": [{"index": 0, "delta": {"content": PARTIAL}, "finish_reason": None}]},
        base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
        base | {"choices": [], "usage": usage},
    ]
    return whole, "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def _responses(model: str, limit: int) -> tuple[dict, str]:
    part = {"type": "output_text", "text": PARTIAL, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "incomplete", "content": [part]}
    usage = {"input_tokens": 10, "output_tokens": limit, "total_tokens": 10 + limit,
             "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    started = {"id": "resp_1", "object": "response", "created_at": 1, "status": "in_progress", "model": model,
               "output": [], "service_tier": "default", "usage": None, "incomplete_details": None}  # fmt: skip
    whole = started | {"status": "incomplete", "output": [item], "usage": usage}
    whole["incomplete_details"] = {"reason": "max_output_tokens"}
    return whole, _events(
        {"type": "response.created", "response": started, "sequence_number": 0},
        {"type": "response.output_item.done", "output_index": 0, "item": item, "sequence_number": 1},
        {"type": "response.incomplete", "response": whole, "sequence_number": 2},
    )


_WIRES: dict[str, Callable[[str, int], tuple[dict, str]]] = {
    "/messages": _messages,
    "/chat/completions": _chat,
    "/responses": _responses,
}


STOPPED = (b'"stop_reason": "max_tokens"', b'"finish_reason": "length"', b'"reason": "max_output_tokens"')


def was_cut_off(reply: bytes) -> bool:
    """Say whether a reply, whole or streamed, tells that it stopped at its limit."""
    return any(words in reply for words in STOPPED)


@dataclass
class Talk:
    """A conversation of a client that goes on for as long as it is cut off."""

    path: str
    limit_field: str
    list_field: str  # of the request, that holds the turns
    headers: dict[str, str]
    turns: list[dict] = field(default_factory=list)

    def body(self, model: str, limit: int, *, streamed: bool) -> dict:
        told = {"model": model, self.limit_field: limit, self.list_field: self.turns}
        return told | ({"stream": True} if streamed else {})

    def begin(self, words: str) -> None:
        self.turns = [{"role": "user", "content": words}]

    def go_on(self) -> None:
        """Add what came, and the words by which it asks for the rest."""
        self.turns = [*self.turns, {"role": "assistant", "content": PARTIAL}, {"role": "user", "content": GO_ON}]


_CLAUDE = {"user_agent": "claude-cli/2.1.197 (external, cli)", "x_claude_code_session_id": "s-1"}
_AIDER = {"user_agent": "litellm/1.81.10"}
_AIDER_CHAT = {
    "user_agent": "OpenAI/Python 2.20.0",
    "x_stainless_raw_response": "true",
    "x_stainless_read_timeout": "600.0",
}
CLIENTS: dict[str, Callable[[], Talk]] = {
    "claude code": lambda: Talk("/anthropic/v1/messages", "max_tokens", "messages", dict(_CLAUDE)),
    "aider, messages": lambda: Talk("/anthropic/v1/messages", "max_tokens", "messages", dict(_AIDER)),
    "aider, chat": lambda: Talk("/openai/v1/chat/completions", "max_tokens", "messages", dict(_AIDER_CHAT)),
    "responses": lambda: Talk(
        "/openai/v1/responses", "max_output_tokens", "input", {"user_agent": "OpenAI/Python 3.57"}
    ),
}
