"""Replies read leniently: they are the provider's and pass as they are; what cannot be read is left out. Never raises.

Knows JSON and numbers; knows no field of any format.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from lockpin_core.call import Parsed

_FEW_BYTES = 16 * 1024  # of a reply that nobody has to wait for
MAX_COUNT = 10**15  # no provider counts more tokens in a reply
MAX_KEPT_BYTES = 16 << 20  # of a body that passes while the client has it already
UNREADABLE = "unreadable"  # a tier, speed or region that no price table knows: the dearest counts

_DIGITS = re.compile(r"[0-9]{1,16}(?:\.0+)?")
_WORD = re.compile(r"[!-~](?:[ -~]{0,126}[!-~])?")  # what goes on to prices, books and headers


class Figure(float):
    """A number with a fraction or an exponent; keeps its text, which alone is exact."""

    __slots__ = ("text",)
    text: str


class UnreadableCount(Exception):
    """A usage figure that is no count. Stays inside this package: the usage it stands in counts as absent."""


def read_object(data: bytes) -> dict[str, Any] | None:
    """Read a JSON object, blank lines before it allowed; None where it is none."""
    try:
        found = _reader(data).decode(data.decode("utf-8", "replace").lstrip("\ufeff \t\r\n"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_value(data: bytes) -> object:
    """Read the JSON value that bytes begin with, whatever follows; None where there is none."""
    try:
        return _reader(data).raw_decode(data.decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None


def _figure(text: str) -> Figure:
    figure = Figure(text)
    figure.text = text
    return figure


def _whole(text: str) -> int:
    return int(text)


def _as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


_JSON = json.JSONDecoder(parse_float=_figure)
# Steps through a function of ours for each object and number, so that a long reply lets other threads run in between.
_JSON_STEPS = json.JSONDecoder(parse_float=_figure, parse_int=_whole, object_pairs_hook=_as_dict)


def _reader(data: bytes) -> json.JSONDecoder:
    return _JSON if len(data) <= _FEW_BYTES else _JSON_STEPS


def members(value: object) -> dict[str, Any]:
    """Give an object's members; anything else has none."""
    return value if isinstance(value, dict) else {}


def count(value: object) -> int:
    """Read a count: a whole number, an integral float or a numeric string; null is 0. Raises UnreadableCount."""
    if value is None:
        return 0
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value.partition(".")[0])
    elif isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise UnreadableCount
    return value


def first_count(*values: object) -> int:
    """Read the first that is not null; 0 where all are."""
    return count(next((value for value in values if value is not None), None))


def word(value: object) -> str | None:
    """Give a name of printable ASCII, at most 128 characters long; anything else was not said."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def term(value: object) -> str | None:
    """Give a tier, speed or region; what is said and cannot be read is one that nobody knows."""
    return None if value is None or value == "" else word(value) or UNREADABLE


def text_bytes(*values: object) -> int:
    """Count the UTF-8 bytes of those that are texts."""
    return sum(len(value.encode("utf-8", "surrogatepass")) for value in values if isinstance(value, str))


def json_bytes(value: object) -> int:
    """Count the bytes of a value as JSON, without escapes where none are needed."""
    try:
        return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    except RecursionError:
        return 0


def error_type(error: object, *keys: str) -> str | None:
    """Give the first of these members that names an error; "error" where it names nothing, None where there is none."""
    if not error:
        return None
    for key in keys:
        found = members(error).get(key)
        name = word(str(found) if type(found) is int else found)
        if name is not None:
            return name
    return "error"


def stated_error(body: bytes, *keys: str) -> str | None:
    """Give what an error body calls its error, as `error_type` does; None where there is none."""
    found = read_object(body)
    return None if found is None else error_type(found.get("error"), *keys)


class WholeBody:
    """Collects a reply that is one JSON object."""

    __slots__ = ("_kept", "_most", "_too_long")

    def __init__(self, asked: Parsed | None) -> None:
        # Where the call asked for a stream the reply passes as it comes, and is kept beside it only to be read.
        self._most = MAX_KEPT_BYTES if asked is not None and asked.streamed else None
        self._kept, self._too_long = bytearray(), False

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the body; a body that is too long is forgotten."""
        if self._too_long:
            return
        self._kept += chunk
        if self._most is not None and len(self._kept) > self._most:
            self._kept, self._too_long = bytearray(), True

    def read(self) -> dict[str, Any] | None:
        """Read the body as far as it came; None where it is no object, or was too long."""
        return read_object(bytes(self._kept))
