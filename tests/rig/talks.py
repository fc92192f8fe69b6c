"""Conversations of agents that grow from call to call, in each format: a task, then turns of calls and their results."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lockpin_core.call import Request

SIGNATURE = "c2lnbmF0dXJl"


@dataclass(frozen=True)
class Turn:
    """What the model says with its calls, and what each of those gave; `calls` None: it calls nothing."""

    results: tuple[str, ...]
    says: str = "so"
    as_parts: bool = False  # results are lists of parts, where the format has them


def _ids(number: int, turn: Turn) -> list[str]:
    return [f"call_{number}_{place}" for place in range(len(turn.results))]


def _messages(task: str, turns: Sequence[Turn]) -> Iterator[dict]:
    yield {"role": "user", "content": task}
    for number, turn in enumerate(turns):
        calls = [{"type": "tool_use", "id": name, "name": "f", "input": {"a": number}} for name in _ids(number, turn)]
        yield {"role": "assistant", "content": [{"type": "text", "text": turn.says}, *calls]}
        results = zip(_ids(number, turn), turn.results, strict=True)
        yield {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": name, "content": _blocks(text, turn)} for name, text in results
            ]
            or "go on",
        }


def _blocks(text: str, turn: Turn) -> object:
    return [{"type": "text", "text": text}] if turn.as_parts else text


def _chat(task: str, turns: Sequence[Turn]) -> Iterator[dict]:
    yield {"role": "developer", "content": "be brief"}
    yield {"role": "user", "content": task}
    for number, turn in enumerate(turns):
        called = {"name": "f", "arguments": json.dumps({"a": number})}
        calls = [{"id": name, "type": "function", "function": called} for name in _ids(number, turn)]
        yield {"role": "assistant", "content": turn.says} | ({"tool_calls": calls} if calls else {})
        for name, text in zip(_ids(number, turn), turn.results, strict=True):
            yield {"role": "tool", "tool_call_id": name, "content": _blocks(text, turn)}


def _items(task: str, turns: Sequence[Turn]) -> Iterator[dict]:
    yield {"role": "user", "content": task}
    for number, turn in enumerate(turns):
        yield {"type": "message", "role": "assistant", "content": turn.says}
        for name in _ids(number, turn):
            yield {"type": "function_call", "call_id": name, "name": "f", "arguments": json.dumps({"a": number})}
        for name, text in zip(_ids(number, turn), turn.results, strict=True):
            given = [{"type": "input_text", "text": text}] if turn.as_parts else text
            yield {"type": "function_call_output", "call_id": name, "output": given}


def _contents(task: str, turns: Sequence[Turn]) -> Iterator[dict]:
    yield {"role": "user", "parts": [{"text": task}]}
    for number, turn in enumerate(turns):
        calls = [{"functionCall": {"name": "f", "args": {"a": number}}} for _ in turn.results]
        yield {"role": "model", "parts": [{"text": turn.says}, *calls]}
        given = [{"name": "f", "response": {"output": [text] if turn.as_parts else text}} for text in turn.results]
        yield {"role": "user", "parts": [{"functionResponse": one} for one in given] or [{"text": "go on"}]}


def _steps(task: str, turns: Sequence[Turn]) -> Iterator[dict]:
    yield {"type": "user_input", "content": [{"type": "text", "text": task}]}
    for number, turn in enumerate(turns):
        yield {"type": "model_output", "content": [{"type": "text", "text": turn.says}]}
        for name in _ids(number, turn):
            yield {"type": "function_call", "id": name, "name": "f", "arguments": {"a": number}}
        for name, text in zip(_ids(number, turn), turn.results, strict=True):
            yield {"type": "function_result", "call_id": name, "name": "f", "result": _blocks(text, turn)}


def _converse(task: str, turns: Sequence[Turn]) -> Iterator[dict]:
    yield {"role": "user", "content": [{"text": task}]}
    for number, turn in enumerate(turns):
        calls = [{"toolUse": {"toolUseId": name, "name": "f", "input": {"a": number}}} for name in _ids(number, turn)]
        yield {"role": "assistant", "content": [{"text": turn.says}, *calls]}
        results = zip(_ids(number, turn), turn.results, strict=True)
        given = [
            {"toolResult": {"toolUseId": name, "content": [{"json": {"a": text}} if turn.as_parts else {"text": text}]}}
            for name, text in results
        ]
        yield {"role": "user", "content": given or [{"text": "go on"}]}


def _whole(**fields: object) -> Callable[[list], dict]:
    """Make the body around a conversation, which stands last in it."""
    return lambda talk: {**{key: talk if item is None else item for key, item in fields.items()}}


SAID = {
    "anthropic_messages": (_messages, _whole(model="m", max_tokens=9000, messages=None)),
    "bedrock_invoke": (_messages, _whole(anthropic_version="x", max_tokens=9000, messages=None)),
    "openai_chat": (_chat, _whole(model="m", messages=None)),
    "openai_responses": (_items, _whole(model="m", input=None)),
    "gemini": (_contents, _whole(contents=None)),
    "code_assist": (_contents, lambda talk: {"model": "m", "request": {"contents": talk}}),
    "gemini_interactions": (_steps, _whole(model="m", input=None)),
    "bedrock_converse": (_converse, _whole(messages=None)),
}
PATHS = {
    "gemini": ("/v1/models/m:generateContent", "m"),
    "bedrock_converse": ("/model/meta.m/converse", "meta.m"),
    "bedrock_invoke": ("/model/anthropic.m/invoke", "anthropic.m"),
}


def body_of(wire: str, task: str, turns: Sequence[Turn]) -> dict:
    """Make the body of the call that follows these turns."""
    say, whole = SAID[wire]
    return whole([*say(task, turns)])


def asked(wire: str, body: object, **headers: str) -> Request:
    """Make a request of a body, be it written or not."""
    path, model = PATHS.get(wire, ("/v1/x", None))
    raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return Request("POST", "h", path, headers, raw, model)


def given(wire: str, body: Any) -> list[str]:
    """List the texts of the tools' results in a body, in their order."""
    return [*_given(body)]


def _given(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        kind = value.get("type")
        if kind in ("tool_result", "function_call_output", "function_result") or value.get("role") == "tool":
            yield from _texts(value.get("content", value.get("output", value.get("result"))))
        elif "functionResponse" in value:
            yield from _texts(value["functionResponse"]["response"])
        elif "toolResult" in value:
            yield from _texts(value["toolResult"]["content"])
        else:
            for item in value.values():
                yield from _given(item)
    elif isinstance(value, list):
        for item in value:
            yield from _given(item)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "type":
                yield from _texts(item)
