"""The client's tools in an Anthropic conversation. Knows JSON field names of its messages and nothing else.

A turn is a message of the model's; the results of its `tool_use` blocks stand in the messages after it.
Source: the provider's Messages reference, tool use, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockpin_core.call import ToolStep
from lockpin_core.wire.tool_steps import Members, make_step, objects, texts


def tool_steps(members: Members) -> Iterator[ToolStep]:
    """Give the steps of the messages, the last turn first."""
    results: dict[object, Members] = {}
    messages = objects(members.get("messages"))
    for turn in range(len(messages) - 1, -1, -1):
        blocks = objects(messages[turn].get("content"))
        results |= {block.get("tool_use_id"): block for block in blocks if block.get("type") == "tool_result"}
        for block in blocks:
            if block.get("type") == "tool_use":
                yield _step(turn, block, results.pop(block.get("id"), None))


def _step(turn: int, use: Members, result: Members | None) -> ToolStep:
    if result is None:
        return make_step(turn, use.get("name"), use.get("input"))
    found = texts(result.get("content", ""))
    return make_step(turn, use.get("name"), use.get("input"), found, failed=result.get("is_error"))
