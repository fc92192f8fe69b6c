"""Requests of the bench in every metered format, of any size: a long text, or turns of tool use and results."""

from __future__ import annotations

import json
from collections.abc import Callable

_WORDS = "The quick brown fox jumps over the lazy dog, and then it does so again. "
_CODE = "def area(width: int, height: int) -> int:\n    return width * height  # \u2192 m\u00b2\n" * 24
_SMALL = 10_000  # bytes: a smaller body is a question, a larger one the work of a coding agent
_MARGIN = 400  # of a body around its text

type Part = dict[str, object]


def chat(size: int) -> bytes:
    """Make a Chat Completions request."""
    system = {"role": "system", "content": "You are terse."}
    body: Part = {"model": "gpt-4o-mini", "max_tokens": 300, "stream": False}
    if size < _SMALL:
        return _bytes({**body, "messages": [system, {"role": "user", "content": _text(size)}]})
    tools = [{"type": "function", "function": function} for function in _functions("parameters")]
    return _bytes({**body, "tools": tools, "messages": [system, *_turns(size, _chat_turn)]})


def responses(size: int) -> bytes:
    """Make a Responses request."""
    body: Part = {"model": "gpt-5-mini", "max_output_tokens": 300, "stream": False, "store": False}
    if size < _SMALL:
        return _bytes({**body, "input": [_said(_text(size))]})
    tools = [{"type": "function", "strict": False, **function} for function in _functions("parameters")]
    return _bytes({**body, "tools": tools, "input": [_said("Go on."), *_turns(size, _responses_turn)]})


def completions(size: int) -> bytes:
    """Make a Completions request of the older format."""
    return _bytes({"model": "gpt-3.5-turbo-instruct", "max_tokens": 300, "prompt": _text(size)})


def embeddings(size: int) -> bytes:
    """Make an Embeddings request of texts of a kilobyte."""
    texts = [_text(1000 + _MARGIN)] * max(1, size // 1000)
    return _bytes({"model": "text-embedding-3-small", "input": texts})


def messages(size: int) -> bytes:
    """Make a Messages request."""
    body: Part = {"model": "claude-sonnet-4-5", "max_tokens": 1000}
    if size < _SMALL:
        return _bytes({**body, "messages": [{"role": "user", "content": _text(size)}]})
    first = {"role": "user", "content": "Refactor the geometry module."}
    return _bytes({**body, "tools": _functions("input_schema"), "messages": [first, *_turns(size, _messages_turn)]})


def gemini(size: int) -> bytes:
    """Make a generateContent request."""
    body: Part = {"generationConfig": {"maxOutputTokens": 1000}}
    first = {"role": "user", "parts": [{"text": _text(min(size, _SMALL))}]}
    if size < _SMALL:
        return _bytes({**body, "contents": [first]})
    tools = [{"functionDeclarations": _functions("parameters")}]
    return _bytes({**body, "tools": tools, "contents": [first, *_turns(size, _gemini_turn)]})


# The format, whose it is, the path, and what makes a body of about so many bytes.
CALLS: tuple[tuple[str, str, str, Callable[[int], bytes]], ...] = (
    ("Chat Completions", "openai", "/v1/chat/completions", chat),
    ("Responses", "openai", "/v1/responses", responses),
    ("Completions", "openai", "/v1/completions", completions),
    ("Embeddings", "openai", "/v1/embeddings", embeddings),
    ("Messages", "anthropic", "/v1/messages", messages),
    ("Gemini", "gemini", "/v1beta/models/gemini-2.5-pro:generateContent", gemini),
)


def _bytes(body: Part) -> bytes:
    return json.dumps(body).encode()


def _text(size: int) -> str:
    return _WORDS * max(1, (size - _MARGIN) // len(_WORDS))


def _functions(schema_field: str) -> list[Part]:
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string", "description": "words"} for i in range(8)}}
    return [{"name": f"tool_{i}", "description": "Does a thing. " * 20, schema_field: schema} for i in range(20)]


def _turns(size: int, turn: Callable[[int], list[Part]]) -> list[Part]:
    """Make turns of tool use and results up to a size, the tools beside them counted."""
    made: list[Part] = []
    left = size - len(json.dumps(_functions("parameters"))) - _MARGIN
    while left > 0:
        more = turn(len(made))
        left -= len(json.dumps(more))
        made += more
    return made


def _chat_turn(number: int) -> list[Part]:
    function = {"name": "tool_1", "arguments": json.dumps({"p1": f"src/file_{number}.py"})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    result: Part = {"role": "tool", "tool_call_id": f"call_{number}", "content": _CODE}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, result]


def _said(text: str) -> Part:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _responses_turn(number: int) -> list[Part]:
    arguments = json.dumps({"p1": f"src/file_{number}.py"})
    call: Part = {"type": "function_call", "call_id": f"call_{number}", "name": "tool_1", "arguments": arguments}
    return [call, {"type": "function_call_output", "call_id": f"call_{number}", "output": _CODE}]


def _messages_turn(number: int) -> list[Part]:
    use = {"type": "tool_use", "id": f"toolu_{number}", "name": "tool_1", "input": {"p1": f"src/file_{number}.py"}}
    text = {"type": "text", "text": _CODE}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": [text]}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def _gemini_turn(number: int) -> list[Part]:
    call = {"functionCall": {"name": "tool_1", "args": {"p1": f"src/file_{number}.py"}}}
    result = {"functionResponse": {"name": "tool_1", "response": {"output": _CODE}}}
    return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
