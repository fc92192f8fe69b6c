"""Changes members of a JSON object in a body's bytes; every other byte stays. Knows JSON; knows no field of any format.

Where the members stand is known from the strict reading of the body, so that a change is slices and one join.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockpin_core.call import Layout
from lockpin_core.wire.jsonbody import read_known

_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*\Z")  # between a member's name and its value
_NEAR = 256  # how far before its value a member's name is looked for


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

    def name_span(self, key: str) -> tuple[int, int] | None:
        """Say where the name of a member stands, quotes and all; None: it is not there, or in a spelling of its own."""
        name, start = json.dumps(key).encode(), self.layout.spans.get(key, (0, 0))[0]
        near = self.raw[max(0, start - _NEAR) : start]
        colon = _COLON.search(near)
        if colon is None or not near[: colon.start()].endswith(name):
            return None
        end = start - len(colon[0])
        return end - len(name), end

    def having(self, values: Mapping[str, bytes], names: Mapping[str, str] | None = None) -> bytes:
        """Give the bytes with these members set to these JSON texts: replaced where they are, else put first.

        `names` gives members that are there other names; each must have a plain one.
        """
        layout = self.layout
        assert layout.size == len(self.raw), "the layout is of another body"
        edits = [(*layout.spans[key], value) for key, value in values.items() if key in layout.spans]
        for key, name in (names or {}).items():
            span = self.name_span(key)
            assert span is not None, "only a member with a plain name gets another"
            edits.append((*span, json.dumps(name).encode()))
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
