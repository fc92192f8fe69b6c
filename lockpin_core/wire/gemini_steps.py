"""The client's tools in Google's conversations. Knows JSON field names of contents and steps and nothing else.

A turn is a content of the model's with function calls; the responses stand in the contents after it, under the call's
id, or without one in the calls' order. Of interactions the history that the provider keeps is not seen.
Source: the provider's reference of generateContent and of interactions, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from lockpin_core.call import ToolStep
from lockpin_core.wire.tool_steps import Members, make_step, objects, texts

# Either spelling is taken there.
_CALL, _RESPONSE = ("functionCall", "function_call"), ("functionResponse", "function_response")


def content_steps(members: Members) -> Iterator[ToolStep]:
    """Give the steps of the contents, the last turn first."""
    results: list[Members] = []  # that no call was seen of, as they stand
    contents = objects(members.get("contents"))
    for turn in range(len(contents) - 1, -1, -1):
        parts = objects(contents[turn].get("parts"))
        results = [*_inside(parts, _RESPONSE), *results]
        calls = _inside(parts, _CALL)
        for call in calls:
            result = next((one for one in results if _is_of(one, call)), None)
            if result is not None:
                results.remove(result)
            yield make_step(turn, call.get("name"), call.get("args"), None if result is None else _given(result))
        if calls:
            results = []


def enveloped_steps(members: Members) -> Iterator[ToolStep]:
    """Do the same for a request in an envelope."""
    inner = members.get("request")
    return content_steps(inner) if isinstance(inner, dict) else iter(())


def _is_of(result: Members, call: Members) -> bool:
    return result.get("id") == call.get("id") and result.get("name") == call.get("name")


def _given(result: Members) -> object:
    """Give what a function gave: under one name, as clients write it, or as it is."""
    response = result.get("response")
    if isinstance(response, dict) and len(response) == 1:
        (name, value), *_ = response.items()
        return response if name == "error" else value
    return response if response is not None else ""


def _inside(parts: list[dict[str, object]], names: tuple[str, ...]) -> list[Members]:
    return [cast("Members", part[name]) for part in parts for name in names if isinstance(part.get(name), dict)]


def interaction_steps(members: Members) -> Iterator[ToolStep]:
    """Give the steps of the input, the last turn first: a turn is the calls that stand before their results."""
    results: dict[object, Members] = {}
    items = objects(members.get("input"))
    turn, has_begun = len(items), False
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if item.get("type") == "function_result":
            has_begun = False
            results[item.get("call_id")] = item
        elif item.get("type") == "function_call":
            turn, has_begun = (turn if has_begun else place), True
            result = results.pop(item.get("id"), None)
            found = None if result is None else texts(result.get("result") or "")
            failed = result is not None and result.get("is_error")
            yield make_step(turn, item.get("name"), item.get("arguments"), found, failed=failed)
        elif item.get("type") != "thought":
            has_begun = False
