"""JSON that keeps exact decimals: Decimal is written as a plain number without exponent, never through a float."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal


def dumps(value: object) -> str:
    """Write `value` as one line of compact ASCII JSON, fit for a body and for an HTTP header.

    Knows None, bool, int, str, Decimal, mappings with text keys and sequences of these.
    """
    match value:
        case None | bool() | int() | str():
            return json.dumps(value).replace("\x7f", "\\u007f")
        case Decimal():
            return format(value, "f")
        case Mapping():
            return "{" + ",".join(f"{json.dumps(str(key))}:{dumps(item)}" for key, item in value.items()) + "}"
        case Sequence() if not isinstance(value, bytes | bytearray):
            return "[" + ",".join(map(dumps, value)) + "]"
    raise TypeError(f"{type(value).__name__} has no place in this JSON")
