"""Whether a task's calls depart from what its first ones were like. Pure: knows no ledger and no format.

The first calls whose cost the provider reported make a profile: their models, the digests of their tools and system
prompts, the size of their prompts, what each model's calls cost, and how much of the prompts came from the cache. After
that a departure is told of once for a task, a kind and what it departs to:

 - `model`: a call of a model that none of the first had, and that its client has not beside its own by nature;
 - `tools`, `system`: others than the first calls', where those all had the same;
 - `cost`: a call that cost more than three times the median of its model's first calls, of which there were three;
 - `cache`: at least half of the first prompts came from the cache, and less than a tenth of the last five did.

Nothing here ever keeps a call from going.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

FIRST = 10  # calls that make the profile
LAST = 5  # calls over which a lost cache shows
_LEAST_OF_MODEL = 3
_TIMES = 3
_TOLD_MOST = 100  # departures of a task that are told of
MODEL, TOOLS, SYSTEM, COST, CACHE = "model", "tools", "system", "cost", "cache"

type Part = tuple[int, int]
"""Tokens of a prompt that came from the cache, and all of them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A call that was charged as its provider reported. Digests are in hexadecimal; None: they were not looked at."""

    model: str
    nano: int
    prompt: Part
    tools: str | None = None
    system: str | None = None
    beside: tuple[str, ...] = ()  # globs of the models that its client has beside its own


@dataclass(frozen=True, slots=True)
class Drift:
    """A departure, with what was before and what is now: JSON-ready."""

    kind: str
    was: object
    now: object

    @property
    def key(self) -> str:
        """Name what is told of once."""
        return f"{self.kind} {self.now}" if self.kind in (MODEL, TOOLS, SYSTEM) else f"{self.kind} {self.was}"


@dataclass(frozen=True, slots=True)
class Profile:
    """What a task's calls were like at first, which of its departures were told, and its last prompts."""

    models: tuple[str, ...] = ()  # of each of the first calls
    nano: tuple[int, ...] = ()
    prompts: tuple[Part, ...] = ()
    tools: frozenset[str] = frozenset()
    systems: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    last: tuple[Part, ...] = ()  # of those after the first; not kept

    @property
    def is_whole(self) -> bool:
        return len(self.models) >= FIRST

    def data(self) -> dict[str, object]:
        """Write it as JSON-ready data."""
        return {
            "models": list(self.models), "nano": list(self.nano), "prompts": [list(part) for part in self.prompts],
            "tools": sorted(self.tools), "systems": sorted(self.systems), "told": sorted(self.told),
        }  # fmt: skip

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Profile:
        """Read back what `data` gave; of nothing it is that of a task without a call."""
        if not data:
            return cls()
        parts = tuple((read, whole) for read, whole in data["prompts"])
        tools, systems, told = (frozenset(data[name]) for name in ("tools", "systems", "told"))
        return cls(tuple(data["models"]), tuple(data["nano"]), parts, tools, systems, told)


def after(profile: Profile, seen: Seen) -> tuple[Profile, tuple[Drift, ...]]:
    """Give a task's profile with a call more, and in what the call departs from it for the first time."""
    if not profile.is_whole:
        return _with(profile, seen), ()
    profile = replace(profile, last=(*profile.last, seen.prompt)[-LAST:])
    new = [drift for drift in _departures(profile, seen) if drift.key not in profile.told]
    new = new[: max(_TOLD_MOST - len(profile.told), 0)]
    return replace(profile, told=profile.told | {drift.key for drift in new}), tuple(new)


def _with(profile: Profile, seen: Seen) -> Profile:
    return replace(
        profile,
        models=(*profile.models, seen.model),
        nano=(*profile.nano, seen.nano),
        prompts=(*profile.prompts, seen.prompt),
        tools=profile.tools | ({seen.tools} if seen.tools is not None else set()),
        systems=profile.systems | ({seen.system} if seen.system is not None else set()),
    )


def _departures(profile: Profile, seen: Seen) -> Iterator[Drift]:
    models = sorted(set(profile.models))
    if seen.model not in models and not any(fnmatchcase(seen.model, glob) for glob in seen.beside):
        yield Drift(MODEL, models, seen.model)
    for kind, first, now in ((TOOLS, profile.tools, seen.tools), (SYSTEM, profile.systems, seen.system)):
        if now is not None and len(first) == 1 and now not in first:
            yield Drift(kind, next(iter(first)), now)
    cost = _cost_of(profile, seen.model)
    if cost and seen.nano > _TIMES * cost:
        yield Drift(COST, {"model": seen.model, "median_nano": cost}, seen.nano)
    if len(profile.last) == LAST and 2 * _share(profile.prompts)[0] >= _share(profile.prompts)[1] > 0:
        read, whole = _share(profile.last)
        if 10 * read < whole:
            yield Drift(CACHE, _percent(profile.prompts), _percent(profile.last))


def _cost_of(profile: Profile, model: str) -> int:
    """Give the median cost of a model's first calls; 0: there are too few."""
    costs = [nano for name, nano in zip(profile.models, profile.nano, strict=True) if name == model]
    return statistics.median_high(costs) if len(costs) >= _LEAST_OF_MODEL else 0


def _share(parts: Sequence[Part]) -> Part:
    return sum(read for read, _ in parts), sum(whole for _, whole in parts)


def _percent(parts: Sequence[Part]) -> str:
    read, whole = _share(parts)
    return f"{100 * read // whole}%"
