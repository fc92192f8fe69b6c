"""Whether an agent goes round in a circle, by the conversation in its request. Pure: knows no ledger and no format.

A *turn* is all the tool calls that the model asked for at once. A turn *repeats* the one before it where both call the
same tools as often, and each call repeats one of those before, which it does

 - where its arguments and its result are the same; or
 - nearly: where its arguments are others and at least a third of their words are shared (each word with a digit in it
   counts as the same one), and both results are empty or failures.

Turns that repeat each other, up to the end of the conversation, are a *row*; what is written between them does not
matter. The request itself is one more call of that row: with `repeats` 20 a loop is found in the request that follows
the 19th turn of a row, and in each later one. So a tool that is polled, with the same arguments and results that
change, is no loop, whatever the results say; nor are pages, files or searches that give something.

The same request sent again and again is a loop of its own, from the `repeats`th time on, where no hour passes between
one and the next and none is sent while an earlier one still runs: those are asked for side by side.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from lockpin_core.call import ToolStep

TOOL, NEAR, REQUEST = "same_tool_call", "near_repeats", "same_request"
LEAST_TURNS = 2  # of a row: one turn repeats nothing
APART = timedelta(hours=1)  # the same request later than that is another matter

type Turn = Sequence[ToolStep]


@dataclass(frozen=True, slots=True)
class Loop:
    """A row that is long enough. `mark` is by what its conversation's loop is known again while it goes on."""

    what: str
    repeats: int  # calls of the row, this one included
    mark: bytes
    tools: tuple[str, ...] = ()  # names, as the client gave them


@dataclass(frozen=True, slots=True)
class Row:
    """The turns at the end of a conversation that repeat each other, newest first; one of them is none."""

    turns: int
    is_exact: bool = True
    oldest: Turn = ()

    def loop(self, whose: str, repeats: int) -> Loop | None:
        """Give the loop that it is of a task, as `whose` names it; None: it is none yet."""
        if self.turns < max(repeats - 1, LEAST_TURNS):
            return None
        steps = [
            b"%d %b %b" % (step.turn, step.name.encode("utf-8", "surrogatepass"), step.arguments + step.result)
            for step in self.oldest
        ]
        mark = hashlib.sha256(b"\0".join([b"tools", whose.encode(), *steps])).digest()
        names = tuple(sorted({step.name for step in self.oldest}))
        return Loop(TOOL if self.is_exact else NEAR, self.turns + 1, mark, names)


def row_of(steps: Iterator[ToolStep]) -> Row:
    """Find the row at the end of a conversation whose steps are given newest first; no more of them are asked for."""
    turns = (list(group) for _, group in itertools.groupby(steps, lambda step: step.turn))
    newer = next(turns, None)
    if newer is None:
        return Row(0)
    count, is_exact = 1, True
    for older in turns:
        repeats = _repeats(older, newer)
        if repeats is None:
            break
        count, is_exact, newer = count + 1, is_exact and repeats, older
    return Row(count, is_exact, newer)


def _repeats(older: Turn, newer: Turn) -> bool | None:
    """Say whether a turn repeats the one before it exactly, or nearly (False); None: it does not."""
    if len(older) != len(newer) or Counter(map(_name, older)) != Counter(map(_name, newer)):
        return None
    left, rest = Counter(map(_same, older)), []
    for step in newer:
        if left[_same(step)]:
            left[_same(step)] -= 1
        else:
            rest.append(step)
    if not rest:
        return True
    missed = [step for step in older if _taken(left, _same(step))]
    pairs = zip(sorted(missed, key=_name), sorted(rest, key=_name), strict=True)
    return False if all(_is_near(before, after) for before, after in pairs) else None


def _taken(left: Counter[tuple[str, bytes, bytes]], key: tuple[str, bytes, bytes]) -> bool:
    has = left[key] > 0
    left[key] -= has
    return has


def _is_near(before: ToolStep, after: ToolStep) -> bool:
    if before.arguments == after.arguments or not (_is_vain(before) and _is_vain(after)):
        return False
    shared, both = before.likeness & after.likeness, before.likeness | after.likeness
    return 3 * len(shared) >= len(both)


def _is_vain(step: ToolStep) -> bool:
    return step.is_empty or step.is_error


def _name(step: ToolStep) -> str:
    return step.name


def _same(step: ToolStep) -> tuple[str, bytes, bytes]:
    return step.name, step.arguments, step.result


def request_mark(whose: str, to: str, body: bytes) -> bytes:
    """Digest by what the same request of a task is known again; `to`: provider and path, which may name the model."""
    parts = (b"request", whose.encode(), to.encode("utf-8", "surrogatepass"), hashlib.sha256(body).digest())
    return hashlib.sha256(b"\0".join(parts)).digest()
