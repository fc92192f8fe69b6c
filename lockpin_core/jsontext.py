"""JSON that keeps exact decimals: Decimal is written as a plain number without exponent, never through a float."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring_ascii


def dumps(value: object) -> str:
    """Write `value` as one line of compact ASCII JSON, fit for a body and for an HTTP header.

    Knows None, bool, int, str, Decimal, mappings with text keys and sequences of these. Raises TypeError for another.
    """
    write = _WRITERS.get(type(value))
    return _other(value) if write is None else write(value)


def _text(value: str) -> str:
    return encode_basestring_ascii(value).replace("\x7f", "\\u007f")


def _mapping(value: Mapping[object, object]) -> str:
    return "{" + ",".join([f"{_text(str(key))}:{dumps(item)}" for key, item in value.items()]) + "}"


def _sequence(value: Sequence[object]) -> str:
    return "[" + ",".join(map(dumps, value)) + "]"


def _decimal(value: Decimal) -> str:
    return format(value, "f")


# By their exact types: this runs for some hundred values of each refusal.
_WRITERS: Mapping[type, Callable[..., str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: int.__repr__,
    str: _text,
    Decimal: _decimal,
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
}


def _other(value: object) -> str:
    """Write what is of one of these kinds though not of its type itself."""
    match value:
        case str():
            return _text(value)
        case int():
            return int.__repr__(value)
        case Decimal():
            return _decimal(value)
        case Mapping():
            return _mapping(value)
        case Sequence() if not isinstance(value, bytes | bytearray):
            return _sequence(value)
    raise TypeError(f"{type(value).__name__} has no place in this JSON")
