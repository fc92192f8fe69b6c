"""What a request body holds, counted while its shape is checked. Knows no format: a format is given as shapes.

A shape names every field that an object may have. A field with an object or a list in it must be known by name and
says how it is checked; an unknown one is refused, for it could be a feature that costs. Unknown scalars pass: they are
counted as text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from lockpin_core.call import Content
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import Number, json_text, shown, shown_name

type Rule = Callable[[object, Tally], None]


@dataclass(slots=True)
class Tally:
    """Counts of one body, as far as it was read."""

    texts: list[str] = field(default_factory=list)  # every string, key and number that may reach a model
    more_strings: int = 0  # strings inside texts that hold several
    schema_bytes: int = 0
    images: int = 0
    messages: int = 0
    extra_tokens: int = 0
    hidden: str | None = None
    prompt_units: set[Unit] = field(default_factory=lambda: {Unit.INPUT})
    breakpoints: int = 0  # places that ask for a cache write
    tool_sizes: Mapping[str, int] = field(default_factory=dict)  # bytes of each tool by its name

    def hide(self, reason: str) -> None:
        """Note why the body does not show the whole prompt; the first reason stays."""
        self.hidden = self.hidden or reason

    def add_json(self, value: object) -> None:
        """Count a value that reaches the model as JSON, whatever is in it: brackets, commas and escapes too."""
        self.texts.append(json_text(value))
        self.more_strings += max(0, _strings(value) - 1)

    def content(self) -> Content:
        """Give the counts."""
        text = "\n".join(self.texts)
        between = max(0, len(self.texts) - 1)
        if text.isascii():
            text_bytes = nfc_bytes = len(text) - between
        else:
            text_bytes = _utf8(text) - between
            # A line feed composes with nothing, so the joined text has the same NFC as its parts.
            is_nfc = unicodedata.is_normalized("NFC", text)
            nfc_bytes = text_bytes if is_nfc else max(text_bytes, _utf8(unicodedata.normalize("NFC", text)) - between)
        strings = len(self.texts) + self.more_strings
        return Content(
            text_bytes,
            nfc_bytes,
            strings,
            self.messages,
            self.schema_bytes,
            self.images,
            self.extra_tokens,
            self.hidden,
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of one kind of object: scalars by name, and what holds more by name and rule."""

    name: str  # for messages
    rules: Mapping[str, Rule]
    known: frozenset[str]
    refused: Mapping[str, str]  # fields that cannot be priced in this version, with what they are
    spelled: Mapping[str, str]  # folded name → name, of both
    uncounted: frozenset[str] = frozenset()  # known fields that are no text for the model
    effect: Rule | None = None  # what the object does beside being text

    def read(self, value: object, tally: Tally) -> None:
        """Check an object and count its keys and scalars. Raises WireError."""
        if type(value) is not dict:
            raise WireError(f"{self.name} is {shown(value)}; an object is allowed")
        if not value.keys() <= self.known:
            self._check_names(value)
        if self.effect is not None:
            self.effect(value, tally)
        if self.uncounted:
            value = {key: item for key, item in value.items() if key not in self.uncounted}
        texts, rules = tally.texts, self.rules
        texts.extend(value)
        for key, item in value.items():
            kind = type(item)
            if kind is str:
                texts.append(item)
            elif kind is dict or kind is list:
                rule = rules.get(key)
                if rule is not None:
                    rule(item, tally)
                elif item or key not in self.refused:
                    refuse_unknown(f"field {shown_name(key)} of {self.name}")
            elif kind is not bool and item is not None:
                texts.append(item.text if kind is Number else str(item))

    def _check_names(self, value: Mapping[str, object]) -> None:
        for key, item in value.items():
            if key in self.known:
                continue
            if key in self.refused:
                if item is not None and item is not False and item != []:
                    unpriced(f"{shown_name(key)} ({self.refused[key]})")
            elif meant := self.spelled.get(fold(key)):
                raise WireError(f"{self.name} has {shown_name(key)}; it is spelled {shown_name(meant)}")


def shape(
    name: str,
    fields: str = "",
    rules: Mapping[str, Rule] | None = None,
    *,
    uncounted: str = "",
    refused: Mapping[str, str] | None = None,
    effect: Rule | None = None,
) -> Shape:
    """Make a shape; `fields` and `uncounted` are names with spaces between."""
    rules, refused, left_out = rules or {}, refused or {}, frozenset(uncounted.split())
    known = frozenset([*fields.split(), *rules, *left_out])
    spelled = {fold(key): key for key in (*known, *refused)}
    return Shape(name, rules, known, refused, spelled, left_out, effect)


def variant(kinds: Mapping[str, Shape], refused: Mapping[str, str], noun: str, default: str | None = None) -> Rule:
    """Make the rule for an object whose `type` says its shape; the start of a refused type says what it is."""

    def read(value: object, tally: Tally) -> None:
        if type(value) is not dict:
            raise WireError(f"a {noun} is {shown(value)}; an object is allowed")
        kind = value.get("type", default)
        if kind is None:
            kind = default
        if type(kind) is not str:
            raise WireError(f"the type of a {noun} is {shown(kind)}; a string is allowed")
        found = kinds.get(kind)
        if found is None:
            what = next((words for start, words in refused.items() if kind.startswith(start)), None)
            if what is None:
                refuse_unknown(f"{noun} {shown_name(kind)}")
            unpriced(f"{noun} {shown_name(kind)} ({what})")
        found.read(value, tally)

    return read


def each(rule: Rule, noun: str) -> Rule:
    """Make the rule for a list."""

    def read(value: object, tally: Tally) -> None:
        if type(value) is not list:
            raise WireError(f"{noun} is {shown(value)}; a list is allowed")
        for item in value:
            rule(item, tally)

    return read


def as_json(value: object, tally: Tally) -> None:
    """Count anything."""
    tally.add_json(value)


def skip(value: object, tally: Tally) -> None:
    """Count nothing: it is counted elsewhere."""


def scalars(value: object, tally: Tally) -> None:
    """Count an object or a list of scalars; anything deeper is refused."""
    items = value.values() if isinstance(value, dict) else value
    assert isinstance(items, Iterable)
    if any(type(item) in (dict, list) for item in items):
        refuse_unknown("a nested object where plain values are expected")
    tally.add_json(value)


def refuse_unknown(what: str) -> NoReturn:
    """Refuse a part of a request that this version does not know."""
    raise WireError(f"{what} is not known, so its cost cannot be bounded", "unpriced_tool")


def unpriced(what: str) -> NoReturn:
    """Refuse a part of a request that is known and cannot be bounded in this version."""
    raise WireError(f"{what} cannot be priced in this version, so no cap could hold", "unpriced_tool")


def fold(key: str) -> str:
    """Bring a name to the form in which careless readers compare names."""
    return key.casefold().replace("_", "").replace("-", "")


def _utf8(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _strings(value: object) -> int:
    """Count strings, keys and numbers."""
    if isinstance(value, dict):
        return len(value) + sum(map(_strings, value.values()))
    if isinstance(value, list):
        return sum(map(_strings, value))
    return 0 if value is None or isinstance(value, bool) else 1
