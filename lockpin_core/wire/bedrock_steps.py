"""The client's tools in a Converse conversation. Knows JSON field names of its messages and nothing else.

A turn is a message of the model's; the results of its `toolUse` blocks stand in the messages after it.
Source: the provider's Converse reference, `ToolUseBlock` and `ToolResultBlock`, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from lockpin_core.call import ToolStep
from lockpin_core.wire.tool_steps import Members, make_step, objects, texts


def tool_steps(members: Members) -> Iterator[ToolStep]:
    """Give the steps of the messages, the last turn first."""
    results: dict[object, Members] = {}
    messages = objects(members.get("messages"))
    for turn in range(len(messages) - 1, -1, -1):
        blocks = objects(messages[turn].get("content"))
        results |= {result.get("toolUseId"): result for result in _inside(blocks, "toolResult")}
        for use in _inside(blocks, "toolUse"):
            result = results.pop(use.get("toolUseId"), None)
            if result is None:
                yield make_step(turn, use.get("name"), use.get("input"))
            else:
                found, failed = _found(result.get("content")), result.get("status") == "error"
                yield make_step(turn, use.get("name"), use.get("input"), found, failed=failed)


def _found(content: object) -> object:
    """Give what a tool gave: as a value where it is one, else as text."""
    parts = objects(content)
    return parts[0]["json"] if len(parts) == 1 and "json" in parts[0] else texts(content if content is not None else "")


def _inside(blocks: list[dict[str, object]], kind: str) -> list[Members]:
    return [cast("Members", block[kind]) for block in blocks if isinstance(block.get(kind), dict)]
