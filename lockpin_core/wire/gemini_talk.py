"""How Gemini's requests hold a conversation: see `talk`. Knows JSON field names; knows no prices, no I/O.

Where the provider keeps a part of the conversation nothing is left out of the rest. Caches have no marks here.
Sources: the provider's references of `generateContent`, of function calling and of interactions, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lockpin_core.wire.deepsplice import Path
from lockpin_core.wire.talk import Members, Talk, Texts, ToolResult, no_lives, objects_in, strings_in

NO_MARKS: frozenset[str] = frozenset()
_KEPT = ("continuationToken", "continuation_token")
_OF_MODEL = ("model_output", "thought", "function_call")


# Contents


def _contents(members: Members) -> Iterator[tuple[Path, dict[str, object]]]:
    """List the contents, and where each stands: one may stand for a list of it."""
    yield from _some(members.get("contents"), ("contents",))


def _some(value: object, path: Path) -> Iterator[tuple[Path, dict[str, object]]]:
    if isinstance(value, dict):
        yield path, value
    for number, item in objects_in(value):
        yield (*path, number), item


def _opening(members: Members) -> object:
    said = (content.get("parts") for _, content in _contents(members) if content.get("role") in (None, "user"))
    parts = next(said, None)
    return [parts] if isinstance(parts, dict) else parts


def _results(members: Members) -> Iterator[ToolResult]:
    """Count a turn with each content of the model's."""
    turn = 0
    if any(members.get(key) for key in _KEPT):
        return
    for path, content in _contents(members):
        turn += content.get("role") == "model"
        for place, part in _some(content.get("parts"), (*path, "parts")):
            key = next(
                (key for key in ("functionResponse", "function_response") if isinstance(part.get(key), dict)), ""
            )
            if key:
                yield ToolResult(turn, _texts(part[key], (*place, key)))


def _texts(response: object, path: Path) -> Texts:
    """Find the texts of a result; what it holds beside them stays, and where that is a file elsewhere, all stays."""
    assert isinstance(response, dict), "nothing else is asked for"
    if any(key in part for _, part in objects_in(response.get("parts")) for key in ("fileData", "file_data")):
        return ()
    return tuple(strings_in(response.get("response"), (*path, "response")))


CONTENTS = Talk(_opening, _results, no_lives)


def _enveloped(members: Members) -> Mapping[str, object]:
    inner = members.get("request")
    return inner if isinstance(inner, dict) else {}


def _results_inside(members: Members) -> Iterator[ToolResult]:
    for result in _results(_enveloped(members)):
        yield ToolResult(result.turn, tuple((("request", *path), text) for path, text in result.texts))


ENVELOPE = Talk(lambda members: _opening(_enveloped(members)), _results_inside, no_lives)


# Interactions


def _opening_step(members: Members) -> object:
    """Find what the user says first: the input itself, a content, a turn or a step."""
    if members.get("previous_interaction_id") is not None:
        return None
    given = members.get("input")
    if isinstance(given, str | dict):
        return _contents_of(given)
    pieces = [piece for _, piece in objects_in(given)]
    said = (piece for piece in pieces if piece.get("type") == "user_input" or piece.get("role") == "user")
    first = next(said, None)
    if first is not None:
        return _contents_of(first.get("content"))
    return given if pieces and not any(_is_step(piece) for piece in pieces) else None


def _contents_of(said: object) -> object:
    """Give what is said as a list of contents: text alone is one of them."""
    if isinstance(said, str):
        return [{"type": "text", "text": said}]
    return [said] if isinstance(said, dict) else said


def _is_step(piece: Mapping[str, object]) -> bool:
    kind = piece.get("type")
    return "role" in piece or kind in _OF_MODEL or (isinstance(kind, str) and kind.endswith(("_call", "_result")))


def _function_results(members: Members) -> Iterator[ToolResult]:
    """Count a turn where the model begins to say or to call something."""
    if members.get("previous_interaction_id") is not None:
        return
    turn, speaks = 0, False
    for number, step in objects_in(members.get("input")):
        did_speak, speaks = speaks, step.get("type") in _OF_MODEL
        turn += speaks and not did_speak
        if step.get("type") == "function_result":
            yield ToolResult(
                turn, () if step.get("signature") else _given(step.get("result"), ("input", number, "result"))
            )


def _given(result: object, path: Path) -> Texts:
    """Find the texts of a result; images whose bytes are here stay beside them, and with anything else all stays."""
    if not isinstance(result, list):
        return tuple(strings_in(result, path))
    found: list[tuple[Path, str]] = []
    for place, content in objects_in(result):
        if content.get("type") == "text" and isinstance(text := content.get("text"), str):
            found.append(((*path, place, "text"), text))
        elif content.get("type") != "image" or content.get("uri") is not None:
            return ()
    return tuple(found)


INTERACTION = Talk(_opening_step, _function_results, no_lives)
