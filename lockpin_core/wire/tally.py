"""What a request body holds, counted while its shape is checked. Knows no format: a format is given as shapes.

A shape names every field that an object may have. A field with an object or a list in it must be known by name and
says how it is checked; an unknown one is refused, for it could be a feature that costs, and so is a plain value where
an object or a list belongs. Unknown plain values pass where they can only be text, which is counted; a name that sounds
like a reference hides input; a shape may be warier than that.

Two places are kinder to what is unknown. A message of the history is text that the body shows, so an unknown object or
list in it counts by its bytes as JSON, unless its name sounds like a reference or a cost (ids, addresses, files, cache,
models, tiers, tools). And an empty object or list at the top of a request asks for nothing, under the same condition.
Types are never unknown: a content block, a tool or a tool call of an unknown type is refused wherever it stands.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, cast

from lockpin_core.call import Content, Image
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import Number, json_text, shown, shown_name
from lockpin_core.wire.textsize import sizes

type Rule = Callable[[object, Tally], None]

# Folded names of fields that say where input is kept which the body does not show.
_REFERENCE = re.compile(
    r"(?:previous.*|conversation|thread|prompt|(?:cached?)?con(?:text|tent)|cached?|"
    r"(?:input|output)?(?:file|image|video|audio|document|media|asset|attachment|item|object))"
    r"(?:id|ids|ur[il]|urls|ref|reference|key|name|handle|data|source)|cachedcontent|url|uri"
)

# Parts of folded names that sound like a reference or a cost: an object or a list under them is no mere text.
_COSTLY = re.compile(
    r"ids?$|ur[il]s?$|refs?$|reference|handle|file|image|video|audio|document|media|attach|asset|cach|model|tier|speed|"
    r"tool|search|server|container|plugin|mcp|thread|compact|fallback|prompt|skill|agent|connector"
)
_BYTES = frozenset({"data", "mediatype", "mimetype", "b64json"})  # folded names beside an image or a file in a message
_MARKS = frozenset({"cachecontrol", "promptcachebreakpoint", "cachepoint"})  # folded names that ask for a cache write


class Unknown(enum.Enum):
    """What becomes of an unknown field with a plain value."""

    PASS = "pass"  # counted as text, or hides input where its name sounds like a reference
    HIDE = "hide"  # a text may be a reference, whatever its name
    REFUSE = "refuse"  # may be a feature that costs


class Nested(enum.Enum):
    """What becomes of an unknown field with an object or a list in it."""

    REFUSE = "refuse"
    EMPTY = "empty"  # passes where it is empty and its name does not sound like a cost
    COUNT = "count"  # counted as JSON where its name does not sound like a reference or a cost


@dataclass(slots=True)
class Tally:
    """Counts of one body, as far as it was read."""

    texts: list[str] = field(default_factory=list)  # every string, key and number that may reach a model
    more_strings: int = 0  # strings inside texts that hold several
    schema_bytes: int = 0
    images: list[Image] = field(default_factory=list)
    messages: int = 0
    extra_tokens: int = 0
    explains_tools: bool = False  # in `extra_tokens` is what the provider says to the model about tools
    hidden: str | None = None
    prompt_units: set[Unit] = field(default_factory=lambda: {Unit.INPUT})
    breakpoints: int = 0  # places that ask for a cache write
    tool_sizes: Mapping[str, int] = field(default_factory=dict)  # bytes of each tool by its name

    def hide(self, reason: str) -> None:
        """Note why the body does not show the whole prompt; the first reason stays."""
        self.hidden = self.hidden or reason

    def add_json(self, value: object, *, escaped: bool = False) -> None:
        """Count a value that reaches the model as JSON, whatever is in it: brackets, commas and escapes too.

        `escaped`: nobody says how it is written there, so all that is not ASCII counts as its escape.
        """
        self.texts.append(json_text(value, escaped=escaped))
        self.more_strings += max(0, _strings(value, self.texts) - 1)

    def content(self) -> Content:
        """Give the counts."""
        text_bytes, nfc_bytes = sizes(self.texts)
        strings = len(self.texts) + self.more_strings
        return Content(
            text_bytes,
            nfc_bytes,
            strings,
            self.messages,
            self.schema_bytes,
            tuple(self.images),
            self.extra_tokens,
            self.hidden,
            explains_tools=self.explains_tools,
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of one kind of object: scalars by name, and what holds more by name and rule."""

    name: str  # for messages
    rules: Mapping[str, Rule]
    known: frozenset[str]
    refused: Mapping[str, str]  # fields that cannot be priced in this version, with what they are
    spelled: Mapping[str, str]  # folded name → name, of both
    nested: frozenset[str]  # fields that must have an object or a list
    uncounted: frozenset[str] = frozenset()  # known fields that are no text for the model
    unknown: Unknown = Unknown.PASS
    wary: re.Pattern[str] | None = None  # of folded names: what is unknown and named so is refused
    nested_unknown: Nested = Nested.REFUSE
    effect: Rule | None = None  # what the object does beside being text

    def read(self, value: object, tally: Tally) -> None:
        """Check an object and count its keys and scalars. Raises WireError."""
        if type(value) is not dict:
            raise WireError(f"{self.name} is {shown(value)}; an object is allowed")
        if not value.keys() <= self.known:
            self._check_names(value, tally)
        if self.effect is not None:
            self.effect(value, tally)
        if self.uncounted:
            value = {key: item for key, item in value.items() if key not in self.uncounted}
        texts, rules = tally.texts, self.rules
        texts.extend(value)
        for key, item in value.items():
            kind = type(item)
            if key in self.nested and item is not None and kind is not dict and kind is not list:
                raise WireError(f"{shown_name(key)} of {self.name} is {shown(item)}; an object or a list is allowed")
            if kind is str:
                texts.append(item)
            elif kind is dict or kind is list:
                rule = rules.get(key)
                if rule is not None:
                    rule(item, tally)
                elif item or key not in self.refused:
                    self._count_nested(key, item, tally)
            elif kind is not bool and item is not None:
                texts.append(item.text if kind is Number else str(item))

    def _check_names(self, value: Mapping[str, object], tally: Tally) -> None:
        for key, item in value.items():
            if key in self.known:
                continue
            folded = fold(key)
            if key in self.refused:
                if item is not None and item is not False and item != []:
                    unpriced(f"{shown_name(key)} ({self.refused[key]})")
            elif meant := self.spelled.get(folded):
                raise WireError(f"{self.name} has {shown_name(key)}; it is spelled {shown_name(meant)}")
            elif item is not None and item is not False:
                self._check_unknown(key, folded, item, tally)

    def _count_nested(self, key: str, item: object, tally: Tally) -> None:
        """Count an object or a list that has no rule, or refuse it."""
        passes = self.nested_unknown is Nested.COUNT or (
            self.nested_unknown is Nested.EMPTY and not item and key not in self.known
        )
        if not passes or _COSTLY.search(fold(key)):
            refuse_unknown(f"field {shown_name(key)} of {self.name}")
        if item:
            _look_into(item, tally)
            tally.add_json(item, escaped=True)

    def _check_unknown(self, key: str, folded: str, item: object, tally: Tally) -> None:
        if self.unknown is Unknown.REFUSE or (self.wary is not None and self.wary.search(folded)):
            refuse_unknown(f"field {shown_name(key)} of {self.name}")
        may_refer = self.unknown is Unknown.HIDE and type(item) is str
        if may_refer or (type(item) is not bool and _REFERENCE.fullmatch(folded)):
            tally.hide("reference")


def shape(
    name: str,
    fields: str = "",
    rules: Mapping[str, Rule] | None = None,
    *,
    uncounted: str = "",
    refused: Mapping[str, str] | None = None,
    unknown: Unknown = Unknown.PASS,
    wary: str | None = None,
    nested_unknown: Nested = Nested.REFUSE,
    effect: Rule | None = None,
) -> Shape:
    """Make a shape; `fields` and `uncounted` are names with spaces between. A field in both `fields` and `rules` may
    have a plain value or what its rule allows.
    """
    rules, refused, left_out, plain = rules or {}, refused or {}, frozenset(uncounted.split()), fields.split()
    known = frozenset([*plain, *rules, *left_out])
    return Shape(
        name=name,
        rules=rules,
        known=known,
        refused=refused,
        spelled={fold(key): key for key in (*known, *refused) if not key.startswith("_")},
        nested=frozenset(rules) - frozenset(plain),
        uncounted=left_out,
        unknown=unknown,
        wary=None if wary is None else re.compile(wary),
        nested_unknown=nested_unknown,
        effect=effect,
    )


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


def as_escaped_json(value: object, tally: Tally) -> None:
    """Count anything, where nobody says how it reaches the model."""
    tally.add_json(value, escaped=True)


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


def _look_into(value: object, tally: Tally) -> None:
    """Look for what is no text inside a value that nobody knows: places of input elsewhere, marks for the cache."""
    if isinstance(value, dict):
        for key, item in value.items():
            folded = fold(key)
            if item and folded in _MARKS:
                refuse_unknown(f"{shown_name(key)} in an unknown place")
            if item and item is not True and (folded in _BYTES or _REFERENCE.fullmatch(folded)):
                tally.hide("reference")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _look_into(item, tally)


def _strings(value: object, longer: list[str]) -> int:
    """Count strings, keys and numbers. A number whose text is longer than it is written again goes to `longer`."""
    found, left = 0, [value]
    for item in left:  # which grows by what is inside
        kind = type(item)
        if kind is str or kind is int:
            found += 1
        elif kind is dict:
            members = cast("dict[str, object]", item)
            found += len(members)
            left += members.values()
        elif kind is list:
            left += cast("list[object]", item)
        elif kind is Number:
            number = cast("Number", item)
            found += 1
            if len(number.text) > len(float.__repr__(number)):
                longer.append(number.text)
        elif kind is not bool and item is not None:
            found += 1
    return found
