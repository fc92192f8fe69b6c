"""Very many portions of usage, kept as a few numbers each. Knows no format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from lockpin_core.call import Doubt, Portion, Terms
from lockpin_core.usage import Unit

type _Kind = tuple[str | None, Terms, tuple[Doubt, ...], tuple[Unit, ...]]


class Portions(Sequence[Portion]):
    """What very many results are billed for, each a few numbers until somebody comes to it.

    As objects they would be hundreds of thousands, and looking through those for garbage would stop everybody.
    """

    __slots__ = ("_kinds", "_rows")

    def __init__(self, kinds: Iterable[_Kind] = (), rows: Iterable[tuple[int, ...]] = ()) -> None:
        self._kinds = {kind: number for number, kind in enumerate(kinds)}
        self._rows = [*rows]  # the number of a kind, then its units' counts

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Portion]:
        return _portions([*self._kinds], self._rows)

    @overload
    def __getitem__(self, index: int) -> Portion: ...
    @overload
    def __getitem__(self, index: slice) -> Portions: ...
    def __getitem__(self, index: int | slice) -> Portion | Portions:
        if isinstance(index, slice):
            return Portions(self._kinds, self._rows[index])
        return next(_portions([*self._kinds], [self._rows[index]]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def also(self, portions: Iterable[Portion]) -> Portions:
        """Give these and more."""
        more = Portions(self._kinds, self._rows)
        more.extend(portions)
        return more

    def extend(self, portions: Iterable[Portion]) -> None:
        """Keep more of them."""
        for one in portions:
            kind = (one.model, one.terms, one.doubts, tuple(one.usage))
            self._rows.append((self._kinds.setdefault(kind, len(self._kinds)), *one.usage.values()))


def _portions(kinds: Sequence[_Kind], rows: Iterable[tuple[int, ...]]) -> Iterator[Portion]:
    for number, *counts in rows:
        model, terms, doubts, units = kinds[number]
        yield Portion(model, dict(zip(units, counts, strict=True)), doubts, terms)
