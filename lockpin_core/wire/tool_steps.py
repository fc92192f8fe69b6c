"""What a client's tool was asked and what it gave, as a step of a conversation. Knows no format's field names.

Nothing of either is kept but digests: of the arguments, whatever order and spaces they are written with, and of the
result. A failure is what the format calls one, or a text that begins like one; an empty result has nothing in it, or
says just that.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from lockpin_core.call import Request, ToolStep
from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import read_known

type Members = Mapping[str, object]

_WORDS_FROM = 4096  # characters of the arguments whose words are looked at
_BEGINNING = 600  # characters of a result in which a failure shows
_WORD = re.compile(r"[a-z0-9]+|[^\x00-\x7f]")
_DIGIT = re.compile(r"[0-9]")
_NOTHING = re.compile(
    r"\W{0,9}(?:none|null|nil|undefined|empty|nothing(?: found)?|"
    r"no (?:\w+ )?(?:results?|matches|match|output|content|data|files?|rows?|items?|entries|hits)"
    r"(?: (?:were )?(?:found|returned|yet|available))?|"
    r"0 (?:\w+ )?(?:results?|matches|rows?|items?|hits|files?)(?: found)?|"
    r"(?:tool|command) (?:ran|completed|succeeded) (?:without|with no) output(?: or errors)?)?\W{0,9}",
    re.IGNORECASE,
)
_NONE = r"(?!\W{0,3}(?:0\b|none\b|null\b))"  # "error: null" is no failure
_COUNTS = r"(?!\W{0,3}(?:[0-9]|none\b|null\b))"  # nor is any number of them
_FAILURE = re.compile(
    rf"\W*(?:\w+(?:\.\w+)*(?:error|exception)\b|(?:error|exception|failure)\b{_NONE}|"
    rf"(?:errors|exceptions|failures|failed)\b{_COUNTS}|traceback\b|fatal\b|"
    r"panic\b|permission denied\b|access denied\b|command not found\b|no such\b|(?:\S+ ){0,3}not found\b|"
    r"timed out\b|timeout\b|invalid\b|unable to\b|could not\b|couldn't\b|cannot\b|can't\b)",
    re.IGNORECASE,
)
_EXITED = re.compile(r"^(?:exit(?:ed)?(?: with)?(?: code| status)?:? ?|process exited with code )[1-9]", re.I | re.M)
_FAILED = frozenset({"error", "errored", "failed", "failure"})
_FINE = frozenset({"", "ok", "success", "succeeded"})
# What agents write around a result that is another each time, though the tool gave the same.
_VOLATILE = re.compile(r"^(?:Wall time|Chunk ID|Process Group PGID|Background PIDs): .*\n?", re.M)
_VOLATILE_MEMBERS = frozenset({"duration_seconds"})


def make_step(turn: int, name: object, arguments: object, result: object = None, *, failed: object = None) -> ToolStep:
    """Make a step: `arguments` are JSON as a value or as text, the result too; None: there is none yet.

    `failed` is what the format says of the result, where it says it.
    """
    asked = _canonical(arguments)
    if result is None:
        return ToolStep(turn, str(name), _digest(asked), _words(asked), b"", is_empty=False, is_error=False)
    value = _value(result)
    found = result if isinstance(result, str) and value is None else json.dumps(value, sort_keys=True)
    found = _steady(found)
    is_error = failed is True or _fails(result if isinstance(result, str) else found) or _states_failure(value)
    is_empty = not is_error and (_is_nothing(value) if value is not None else _says_nothing(found))
    return ToolStep(turn, str(name), _digest(asked), _words(asked), _digest(found), is_empty, is_error)


def steps_of(request: Request, read: Callable[[Members], Iterator[ToolStep]]) -> Iterator[ToolStep]:
    """Give what a format's reader finds in a body that was read before; it ends where the body is not as it should be.

    The reader is asked for no more than is taken.
    """
    try:
        yield from read(read_known(request.body).members)
    except (ValueError, TypeError, AttributeError, RecursionError, WireError):
        return


def objects(value: object) -> list[dict[str, object]]:
    """Give the objects of a list; of anything else nothing."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]


def texts(parts: object) -> object:
    """Give the text of a result that may be a list of parts, as formats write it; anything else as it is."""
    if not isinstance(parts, list) or not all(isinstance(part, dict) and "text" in part for part in parts):
        return parts
    return "\n".join(str(part["text"]) for part in parts)


def _canonical(value: object) -> str:
    """Write arguments in one way, however the client or the model wrote them."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return cast("str", value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _value(result: object) -> object:
    """Give a result that is a JSON object or list as a value, without what is another each time; None: it is a text."""
    if isinstance(result, str):
        if result.lstrip()[:1] not in ("{", "["):
            return None
        try:
            result = json.loads(result)
        except (ValueError, RecursionError):
            return None
    return _without_volatile(result)


def _without_volatile(value: object) -> object:
    if not isinstance(value, dict):
        return value
    inner = value.get("metadata")
    kept = {**value, "metadata": _without_volatile(inner)} if isinstance(inner, dict) else value
    return {key: item for key, item in kept.items() if key not in _VOLATILE_MEMBERS}


def _steady(found: str) -> str:
    """Give a text without the lines that are others each time, which stand at its beginning or its end."""
    if len(found) <= 2 * _BEGINNING:
        return _VOLATILE.sub("", found)
    middle = found[_BEGINNING:-_BEGINNING]
    return _VOLATILE.sub("", found[:_BEGINNING]) + middle + _VOLATILE.sub("", found[-_BEGINNING:])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _words(text: str) -> frozenset[int]:
    """Hash the words of arguments; each that has a digit in it counts as the same one."""
    if len(text) > _WORDS_FROM:
        text = text[: _WORDS_FROM // 2] + text[-_WORDS_FROM // 2 :]
    return frozenset(hash("0" if _DIGIT.search(word) else word) for word in _WORD.findall(text.casefold()))


def _says_nothing(found: str) -> bool:
    return len(found) <= _BEGINNING and _NOTHING.fullmatch(found.strip()) is not None


def _is_nothing(value: object) -> bool:
    """Say whether nothing is in a value but what says that there is nothing."""
    if isinstance(value, dict):
        return all(_is_nothing(item) for item in value.values())
    if isinstance(value, list):
        return all(_is_nothing(item) for item in value)
    return not value or (isinstance(value, str) and (value.casefold() in _FINE or _says_nothing(value)))


def _fails(found: str) -> bool:
    beginning = found[:_BEGINNING]
    return _FAILURE.match(beginning) is not None or _EXITED.search(beginning) is not None


def _states_failure(value: object) -> bool:
    """Say whether a result that is an object says of itself that it is a failure."""
    if not isinstance(value, dict):
        return False
    inner, status = value.get("metadata"), value.get("status")
    codes = (value.get("exit_code"), inner.get("exit_code") if isinstance(inner, dict) else None)
    return bool(
        value.get("error")
        or value.get("success") is False
        or value.get("ok") is False
        or (isinstance(status, str) and status.casefold() in _FAILED)
        or any(type(code) is int and code for code in codes)
    )
