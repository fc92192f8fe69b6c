"""How a Converse request holds a conversation: see `talk`. Knows JSON field names; knows no prices, no I/O.

Newer models of Anthropic's take thoughts back only after the very messages that they were made of (`is_bound`).
Sources: Amazon Bedrock's API reference of Converse and its guide to prompt caching, Anthropic's reference of preserved
thinking, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lockpin_core.wire.anthropic_talk import binds_thoughts
from lockpin_core.wire.deepsplice import Path
from lockpin_core.wire.talk import Members, Talk, Texts, ToolResult, lives_long, objects_in, strings_in

_MARK = "cachePoint"


def _opening(members: Members) -> object:
    said = (one.get("content") for _, one in objects_in(members.get("messages")) if one.get("role") == "user")
    content = next(said, None)
    return None if content is None else [block for _, block in objects_in(content) if block.keys() != {_MARK}]


def _results(members: Members) -> Iterator[ToolResult]:
    """Count a turn with each message of the model's."""
    turn, messages = 0, [*objects_in(members.get("messages"))]
    thoughts = (number for number, message in messages if _thinks(message))
    thought = max(thoughts, default=0) if binds_thoughts(members.get("model")) else 0
    for number, message in messages:
        turn += message.get("role") == "assistant"
        for place, block in objects_in(message.get("content")):
            if isinstance(result := block.get("toolResult"), dict):
                path = ("messages", number, "content", place, "toolResult", "content")
                yield ToolResult(turn, _texts(result.get("content"), path), number < thought)


def _thinks(message: Mapping[str, object]) -> bool:
    """Say whether a message has a thought that its model has signed."""
    thoughts = (block.get("reasoningContent") for _, block in objects_in(message.get("content")))
    return any(isinstance(one, dict) and ("redactedContent" in one or _is_signed(one)) for one in thoughts)


def _is_signed(thought: Mapping[str, object]) -> bool:
    text = thought.get("reasoningText")
    return isinstance(text, dict) and bool(text.get("signature"))


def _texts(content: object, path: Path) -> Texts:
    """Find the texts of a result; images whose bytes are here stay beside them, and with anything else all stays."""
    found: list[tuple[Path, str]] = []
    for place, block in objects_in(content):
        if block.keys() <= {"text", "json"}:
            found += strings_in(block, (*path, place))
        elif not _is_image(block):
            return ()
    return tuple(found)


def _is_image(block: Mapping[str, object]) -> bool:
    image = block.get("image")
    source = image.get("source") if isinstance(image, dict) else None
    return block.keys() == {"image"} and isinstance(source, dict) and source.keys() == {"bytes"}


def _long_lives(members: Members) -> Iterator[Path]:
    config = members.get("toolConfig")
    places: list[tuple[Path, object]] = [(("system",), members.get("system"))]
    places.append((("toolConfig", "tools"), config.get("tools") if isinstance(config, dict) else None))
    for number, message in objects_in(members.get("messages")):
        places.append((("messages", number, "content"), message.get("content")))
    for path, blocks in places:
        for place, block in objects_in(blocks):
            if lives_long(block.get(_MARK)):
                yield (*path, place, _MARK, "ttl")


TALK = Talk(_opening, _results, _long_lives)
