"""The hand-kept facts of one provider, which stand in `pricing/overlay/<provider>.yaml`. Knows no sources and no files.

Lists of [pattern, value] give the first value whose pattern fits a model's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from lockpin_core.price_sources import Facts

# What nobody's calls of are priced, whoever serves it.
_LEFT_OUT = (("*grok-*multi-agent*", "the provider runs agents, each of which reads the prompt"),)


@dataclass(frozen=True, slots=True)
class Overlay:
    """The hand-kept facts of one provider, scalars as text."""

    provider: str
    tree: Mapping[str, Any]

    @property
    def checked(self) -> date:
        """Give the day of the last check."""
        return date.fromisoformat(self.tree["checked"])

    def write(self, name: str) -> tuple[str, ...]:
        """Give the lifetimes that a source's plain cache-write price of a model is for: "5m", "5m+30m"."""
        said = self.tree.get("write", "5m")
        return tuple(str(said if isinstance(said, str) else self.first("write", name)).split("+"))

    @property
    def models(self) -> Mapping[str, Any]:
        """Give the facts of single models."""
        found: Mapping[str, Any] = self.tree.get("models") or {}
        return found

    def first(self, key: str, name: str, default: Any = None) -> Any:
        """Give the first value of a list of [pattern, value] whose pattern fits."""
        return next((value for pattern, value in self.tree.get(key) or () if fnmatchcase(name, pattern)), default)

    def taken(self, facts: Facts | None) -> Facts | None:
        """Take prices of seconds and characters where this provider's calls that bill by them are metered."""
        if facts is not None and self.tree.get("pieces") == "true":
            facts.take_pieces()
        return facts

    def left_out(self, name: str) -> str | None:
        """Say why a model is left out; None: it is not."""
        everywhere = (reason for pattern, reason in _LEFT_OUT if fnmatchcase(name, pattern))
        said: str | None = self.first("left_out", name)
        return said or next(everywhere, None)

    def renamed(self, name: str) -> str:
        """Give the name that calls use for a source's name."""
        for start in self.tree.get("strip") or ():
            name = name.removeprefix(start)
        for end in self.tree.get("strip_end") or ():
            name = name.removesuffix(end)
        return str((self.tree.get("rename") or {}).get(name, name))
