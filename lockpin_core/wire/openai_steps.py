"""The client's tools in OpenAI's conversations. Knows JSON field names of messages and items and nothing else.

In Chat Completions a turn is a message of the model's with `tool_calls`; in Responses it is the calls that stand before
their outputs with no other output between. What a conversation that the provider keeps has in it is not seen.
Source: the provider's reference of both, `messages` and `input`, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from lockpin_core.call import ToolStep
from lockpin_core.wire.tool_steps import Members, make_step, objects, texts

_ENDS = "_output"  # with which the type of an item ends that is what a tool gave
_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
# Where an item keeps what a tool is asked: the first of these that it has.
_ASKED = ("arguments", "input", "action", "operation", "actions")


def chat_steps(members: Members) -> Iterator[ToolStep]:
    """Give the steps of the messages, the last turn first."""
    results: dict[object, Members] = {}
    messages = objects(members.get("messages"))
    for turn in range(len(messages) - 1, -1, -1):
        message = messages[turn]
        if message.get("role") == "tool":
            results[message.get("tool_call_id")] = message
        for call in objects(message.get("tool_calls")):
            asked = cast("Members", call.get("custom" if call.get("type") == "custom" else "function") or {})
            result = results.pop(call.get("id"), None)
            found = None if result is None else texts(result.get("content") or "")
            yield make_step(turn, asked.get("name"), asked.get("arguments", asked.get("input")), found)


def responses_steps(members: Members) -> Iterator[ToolStep]:
    """Give the steps of the input's items, the last turn first."""
    results: dict[object, Members] = {}
    items = objects(members.get("input"))
    turn, has_begun = len(items), False
    for place in range(len(items) - 1, -1, -1):
        kind = str(items[place].get("type"))
        if kind.endswith(_ENDS):
            has_begun = False
            results[items[place].get("call_id")] = items[place]
        elif kind.endswith("_call") and kind not in _HOSTED:
            turn, has_begun = (turn if has_begun else place), True
            yield _item_step(turn, kind, items[place], results.pop(items[place].get("call_id"), None))
        elif kind != "reasoning":
            has_begun = False


def _item_step(turn: int, kind: str, call: Members, result: Members | None) -> ToolStep:
    asked = next((call[key] for key in _ASKED if key in call), None)
    found = None if result is None else texts(result.get("output") or "")
    failed = result is not None and result.get("status") == "failed"
    return make_step(turn, call.get("name") or kind, asked, found, failed=failed)
