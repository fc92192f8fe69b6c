"""Changes members of a JSON object in a body's bytes; every other byte stays. Knows JSON; knows no field of any format.

Where the members stand is known from the strict reading of the body, so that a change is slices and one join.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from lockpin_core.call import Layout
from lockpin_core.wire.jsonbody import read_known


@dataclass(frozen=True, slots=True)
class Splice:
    """A JSON object's bytes, and where its members stand in them."""

    raw: bytes
    layout: Layout

    @classmethod
    def of(cls, raw: bytes, layout: Layout | None = None) -> Splice:
        """Take the layout, or find every member. The bytes were read strictly before."""
        return cls(raw, read_known(raw).layout() if layout is None else layout)

    def get(self, key: str) -> bytes | None:
        """Give a member's value as it is written; None where there is no such member."""
        return self.raw[slice(*self.layout.spans[key])] if key in self.layout.spans else None

    def having(self, values: Mapping[str, bytes]) -> bytes:
        """Give the bytes with these members set to these JSON texts: replaced where they are, else put first."""
        layout = self.layout
        assert layout.size == len(self.raw), "the layout is of another body"
        edits = [(*layout.spans[key], value) for key, value in values.items() if key in layout.spans]
        absent = [json.dumps(key).encode() + b":" + value for key, value in values.items() if key not in layout.spans]
        if absent:
            edits.append((layout.opening, layout.opening, b",".join(absent) + (b"" if layout.is_empty else b",")))
        pieces: list[bytes | memoryview] = []
        raw, at = memoryview(self.raw), 0
        for start, end, new in sorted(edits):
            pieces += (raw[at:start], new)
            at = end
        return b"".join([*pieces, raw[at:]])


def lowered(written: bytes | None, most: int) -> bytes | None:
    """Give what a limit is to be, by how it is written, be it as digits in a text; None: it stays, being as low."""
    value = None if written is None else json.loads(written)
    given = int(value) if type(value) is str and value.isdecimal() else value
    return None if type(given) is int and given <= most else b"%d" % most
