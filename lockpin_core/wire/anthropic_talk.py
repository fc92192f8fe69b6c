"""How a Messages request holds a conversation: see `talk`. Knows JSON field names; knows no prices, no I/O.

What the provider's own tools gave is no result here, nor what a program of the provider's reads: both must come back
as they are. Newer models take thoughts back only after the very messages that they were made of (`is_bound`).
Source: the provider's references of Messages, of tool use, of prompt caching and of preserved thinking, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from lockpin_core.wire.deepsplice import Path
from lockpin_core.wire.talk import Members, Talk, Texts, ToolResult, lives_long, objects_in

MARKS = frozenset({"cache_control"})
_MARKS = frozenset({"cache_control", "caching"})
# Where blocks stand in blocks. Nothing else is looked into: arguments, schemas and data may have members of any name.
_INSIDE = frozenset({"content", "source", "tool", "definition", "tool_changes", "tool_references"})
_TEXT = frozenset({"type", "text", *MARKS})
_THOUGHTS = ("thinking", "redacted_thinking")
# Models whose thoughts are not bound.
_FREE = re.compile(r"claude-(?:instant|[123]\b|(?:opus|sonnet|haiku)-4)", re.IGNORECASE)


def _opening(members: Members) -> object:
    if _continues(members):
        return None
    said = (one.get("content") for _, one in objects_in(members.get("messages")) if one.get("role") == "user")
    content = next(said, None)  # text alone is one block of it
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _continues(members: Members) -> bool:
    """Say whether the provider keeps what was said before."""
    thread = members.get("thread")
    return isinstance(thread, dict) and thread.get("type") == "continue"


def _results(members: Members) -> Iterator[ToolResult]:
    """Count a turn with each message of the model's."""
    turn, in_programs = 0, set[object]()
    if _continues(members):
        return
    messages = [*objects_in(members.get("messages"))]
    thought = _last_thought(messages) if binds_thoughts(members.get("model")) else 0
    for number, message in messages:
        content = message.get("content")
        if message.get("role") == "assistant":
            turn += 1
            in_programs.update(block.get("id") for _, block in objects_in(content) if _is_in_program(block))
            continue
        for place, block in objects_in(content):
            if block.get("type") == "tool_result":
                stays = block.get("tool_use_id") in in_programs
                path = ("messages", number, "content", place, "content")
                yield ToolResult(turn, () if stays else _texts(block.get("content"), path), number < thought)


def binds_thoughts(model: object) -> bool:
    """Say whether a model may be one that binds its thoughts: a newer one of Anthropic's, or of whom no name tells."""
    if not isinstance(model, str) or model.startswith("arn:"):
        return True
    return "claude" in model.lower() and _FREE.search(model) is None


def has_bound_thoughts(model: str, members: Members) -> bool:
    """Say whether a request gives back thoughts that its model takes back only with the same tools and messages."""
    return binds_thoughts(model) and _last_thought([*objects_in(members.get("messages"))]) > 0


def _last_thought(messages: Sequence[tuple[int, Mapping[str, object]]]) -> int:
    """Give the position of the last message with a thought; 0: there is none."""
    having = (
        number
        for number, message in reversed(messages)
        if any(block.get("type") in _THOUGHTS for _, block in objects_in(message.get("content")))
    )
    return next(having, 0)


def _is_in_program(block: Mapping[str, object]) -> bool:
    """Say whether a program of the provider's called the tool: it reads the result, and the model may never."""
    caller = block.get("caller")
    return isinstance(caller, dict) and caller.get("type") not in (None, "direct")


def _texts(content: object, path: Path) -> Texts:
    """Find the texts of a result; images whose bytes are here stay beside them, and with anything else all stays."""
    if isinstance(content, str):
        return ((path, content),)
    found: list[tuple[Path, str]] = []
    for place, block in objects_in(content):
        if block.get("type") == "text" and isinstance(text := block.get("text"), str) and block.keys() <= _TEXT:
            found.append(((*path, place, "text"), text))
        elif not _is_image(block):
            return ()
    return tuple(found)


def _is_image(block: Mapping[str, object]) -> bool:
    source = block.get("source")
    return block.get("type") == "image" and isinstance(source, dict) and source.get("type") == "base64"


def _long_lives(members: Members) -> Iterator[Path]:
    if lives_long(members.get("cache_control")):
        yield ("cache_control", "ttl")
    for key in ("system", "tools", "messages"):
        yield from _marked(members.get(key), (key,))


def _marked(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, list):
        for number, item in objects_in(value):
            yield from _marked(item, (*path, number))
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in _INSIDE:
                yield from _marked(item, (*path, key))
            elif key in _MARKS and lives_long(item):
                yield (*path, key, "ttl")


TALK = Talk(_opening, _results, _long_lives)
