"""How chats and Responses requests hold a conversation: see `talk`. Knows JSON field names; knows no prices, no I/O.

Where the provider keeps a part of the conversation nothing is left out of the rest. Cache marks are Anthropic's, which
providers of several vendors' models pass on. Sources: OpenAI's references of both and the request types of its SDK,
read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lockpin_core.wire.anthropic_talk import binds_thoughts
from lockpin_core.wire.deepsplice import Path
from lockpin_core.wire.talk import Members, Talk, Texts, ToolResult, lives_long, no_lives, objects_in

MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_TEXTS = ("text", "input_text", "output_text")
_TEXT = frozenset({"type", "text", *MARKS})
_IMAGES = ("image_url", "input_image")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "apply_patch_call_output")
_SHELL = "shell_call_output"
_SCREEN = "computer_call_output"
_OF_MODEL = ("reasoning", "agent_message", "program")  # and every call


def _parts(said: object, kind: str) -> object:
    """Give what a message says as a list of parts: text alone is one part of it."""
    return [{"type": kind, "text": said}] if isinstance(said, str) else said


def _texts(content: object, path: Path) -> Texts:
    """Find the texts of a result; images whose bytes are here stay beside them, and with anything else all stays."""
    if isinstance(content, str):
        return ((path, content),)
    found: list[tuple[Path, str]] = []
    for place, part in objects_in(content):
        if part.get("type") in _TEXTS and isinstance(text := part.get("text"), str) and part.keys() <= _TEXT:
            found.append(((*path, place, "text"), text))
        elif not _is_image(part):
            return ()
    return tuple(found)


def _is_image(part: Mapping[str, object]) -> bool:
    image = part.get("image_url")
    address = image.get("url") if isinstance(image, dict) else image
    return part.get("type") in _IMAGES and isinstance(address, str) and address[:5].lower() == "data:"


# Chats


def _opening_of_chat(members: Members) -> object:
    said = (one.get("content") for _, one in objects_in(members.get("messages")) if one.get("role") == "user")
    return _parts(next(said, None), "text")


def _results_of_chat(members: Members) -> Iterator[ToolResult]:
    """Count a turn with each message of the model's."""
    turn, messages = 0, [*objects_in(members.get("messages"))]
    thoughts = (number for number, message in messages if _thinks(message))
    thought = max(thoughts, default=0) if binds_thoughts(members.get("model")) else 0
    for number, message in messages:
        role = message.get("role")
        turn += role == "assistant"
        if role in ("tool", "function"):
            texts = _texts(message.get("content"), ("messages", number, "content"))
            yield ToolResult(turn, texts, number < thought)


def _thinks(message: Mapping[str, object]) -> bool:
    """Say whether a message has a thought that its model has signed, as Anthropic's do, also behind other hosts."""
    details = (one for _, one in objects_in(message.get("reasoning_details")))
    return bool(message.get("thinking_blocks")) or any(one.get("signature") for one in details)


def _long_lives(members: Members) -> Iterator[Path]:
    if lives_long(members.get("cache_control")):
        yield ("cache_control", "ttl")
    for key in ("tools", "messages"):
        for number, item in objects_in(members.get(key)):
            if lives_long(item.get("cache_control")):
                yield (key, number, "cache_control", "ttl")
            for place, part in objects_in(item.get("content")):
                if lives_long(part.get("cache_control")):
                    yield (key, number, "content", place, "cache_control", "ttl")


CHAT = Talk(_opening_of_chat, _results_of_chat, _long_lives)


# Responses


def _opening_of_response(members: Members) -> object:
    """Find the first user message, or what the provider keeps the conversation under."""
    if members.get("previous_response_id") is not None:
        return None
    kept = members.get("conversation")
    if kept is not None:
        return kept.get("id") if isinstance(kept, dict) else kept
    given = members.get("input")
    if isinstance(given, str):
        return _parts(given, "input_text")
    said = (
        item.get("content")
        for _, item in objects_in(given)
        if item.get("role") == "user" and item.get("type") in (None, "message")
    )
    return _parts(next(said, None), "input_text")


def _results_of_response(members: Members) -> Iterator[ToolResult]:
    """Count a turn where the model begins to say or to call something."""
    if any(members.get(key) is not None for key in ("previous_response_id", "conversation", "prompt")):
        return
    turn, speaks = 0, False
    for number, item in objects_in(members.get("input")):
        kind, did_speak = item.get("type"), speaks
        speaks = _is_of_model(item)
        turn += speaks and not did_speak
        if kind in _OUTPUTS:
            yield ToolResult(
                turn, () if _is_in_program(item) else _texts(item.get("output"), ("input", number, "output"))
            )
        elif kind == _SHELL:
            yield ToolResult(turn, tuple(_streams(item.get("output"), ("input", number, "output"))))
        elif kind == _SCREEN:
            yield ToolResult(turn)


def _is_of_model(item: Mapping[str, object]) -> bool:
    kind = item.get("type")
    if kind in (None, "message"):
        return item.get("role") == "assistant"
    return isinstance(kind, str) and (kind in _OF_MODEL or kind.endswith("_call"))


def _is_in_program(item: Mapping[str, object]) -> bool:
    """Say whether a program of the provider's called the tool: it reads the result, and the model may never."""
    caller = item.get("caller")
    return isinstance(caller, dict) and caller.get("type") not in (None, "direct")


def _streams(output: object, path: Path) -> Iterator[tuple[Path, str]]:
    for place, one in objects_in(output):
        for key in ("stdout", "stderr"):
            if isinstance(text := one.get(key), str):
                yield (*path, place, key), text


RESPONSE = Talk(_opening_of_response, _results_of_response, no_lives)
