"""What a request holds of a conversation: who began it, and what of it may go near a cap. Knows no field of any format.

A turn is what the model says with its calls of tools, and their results, until it speaks again. Results of the last
three turns stay; of older ones long texts may be left out. Whether a text may go depends on nothing that comes after
it, so that the same number of results gives the same bytes while the conversation grows, and the provider's prompt
cache still has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile

from lockpin_core.call import Request
from lockpin_core.errors import WireError
from lockpin_core.wire.deepsplice import Path, replaced
from lockpin_core.wire.jsonbody import read_known
from lockpin_core.wire.signatures import is_signed
from lockpin_core.wire.textsize import PIECE, utf8_size

KEPT_TURNS = 3
LARGE_BYTES = 2048  # a result with no more text than this stays
_MOST_STEPS = 64  # of a path
_AN_HOUR = (b"1h", b"\\u003", b"\\u006")  # how it may be written, wholly or in part

type Members = Mapping[str, object]
type Texts = tuple[tuple[Path, str], ...]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool of the client's gave.

    `turn` tells turns apart and grows with them. `texts` are those that may be left out, and where each stands: none
    where the result must stay as it is. `is_bound`: the model has since thought, and the provider takes those thoughts
    back only after what they were made of, so that nothing may begin to be left out before them.
    """

    turn: int
    texts: Texts = ()
    is_bound: bool = False


@dataclass(frozen=True, slots=True)
class Talk:
    """How a format holds a conversation, by the members of a request: each finds what there is, in its order."""

    opening: Callable[[Members], object]  # what the first user message says; None: there is none, or it is not here
    results: Callable[[Members], Iterator[ToolResult]]
    long_lives: Callable[[Members], Iterator[Path]]  # where an hour in the cache is asked for, as "1h"

    def conversation(self, request: Request, marks: frozenset[str] = frozenset()) -> bytes | None:
        """Digest the first user message, without members of these names, which move from message to message."""
        members = _members(request)
        said = None if members is None else self.opening(members)
        if said is None:
            return None
        found = hashlib.sha256()
        for piece in _pieces(said, marks):
            found.update(piece)
        return found.digest()

    def trimmable(self, request: Request) -> int:
        """Count the leading results that are older than the last three turns, and not bound."""
        members = _members(request)
        results = [] if members is None else [*self.results(members)]
        kept = sorted({result.turn for result in results})[-KEPT_TURNS:]
        return sum(1 for _ in takewhile(lambda one: one.turn not in kept and not one.is_bound, results))

    def lightened(self, request: Request, *, cache_5m: bool, trim: int) -> bytes | None:
        """Give the body with shorter lives in the cache and without long texts of leading results; None: as it is."""
        if is_signed(request):
            return None
        body = read_known(request.body)
        values: dict[Path, str] = {}
        if cache_5m and any(way in request.body for way in _AN_HOUR):
            values |= dict.fromkeys(self.long_lives(body.members), '"5m"')
        for result in islice(self.results(body.members), trim):
            values |= _shortened(result)
        return replaced(body, values) if values else None


def strings_in(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Find every text in a value, and where it stands; no further down than anybody nests what is meant to be read."""
    if isinstance(value, str):
        yield path, value
    elif len(path) > _MOST_STEPS:
        return
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings_in(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from strings_in(item, (*path, number))


def objects_in(value: object) -> Iterator[tuple[int, dict[str, object]]]:
    """List the objects of a list, each with its position; what is no list has none."""
    if isinstance(value, list):
        yield from ((number, item) for number, item in enumerate(value) if isinstance(item, dict))


def no_lives(members: Members) -> Iterator[Path]:
    """Find nothing: the format has no marks for the cache, or none that lasts an hour."""
    yield from ()


def lives_long(mark: object) -> bool:
    """Say whether a mark asks for an hour in the cache."""
    return isinstance(mark, dict) and mark.get("ttl") == "1h"


def _members(request: Request) -> Members | None:
    """Read the members of a request; `model` is the one that is called, wherever it is named."""
    try:
        members = read_known(request.body).members
    except (ValueError, RecursionError, WireError):
        return None  # no JSON object: a form
    return members if request.path_model is None else {**members, "model": request.path_model}


def _shortened(result: ToolResult) -> Mapping[Path, str]:
    sizes = [utf8_size(text) for _, text in result.texts]
    if sum(sizes) <= LARGE_BYTES:
        return {}
    notes = [f"[lockpin: tool result of {size} bytes left out to stay in the budget]" for size in sizes]
    each = zip(result.texts, sizes, notes, strict=True)
    return {path: f'"{note}"' for (path, _), size, note in each if size > len(note)}


def _pieces(value: object, marks: frozenset[str]) -> Iterator[bytes]:
    """Give what tells a value from others, however it is written, in pieces of a fair size."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            yield b"s%d:" % len(item)
            for at in range(0, len(item), PIECE):
                yield item[at : at + PIECE].encode("utf-8", "surrogatepass")
        elif isinstance(item, dict):
            kept = sorted(key for key in item if key not in marks)
            yield b"o%d:" % len(kept)
            for key in kept:
                left += (item[key], key)
        elif isinstance(item, list):
            yield b"l%d:" % len(item)
            left += item
        else:
            yield b"%b;" % repr(item).encode()
