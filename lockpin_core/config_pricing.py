"""The `pricing:` of the configuration: checked by the price table's own reader, its errors given their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import assert_never

from lockpin_core.config_values import wrong
from lockpin_core.config_yaml import Items, Node, Plain, Table, Text, Where, located, plain
from lockpin_core.errors import ConfigError, PriceError


def read_pricing(*nodes: Node | None) -> Mapping[str, Plain]:
    """Give the entries of one file or several with their scalars as text; None: a file has none.

    Raises ConfigError at the line of what is wrong, and where a model has prices in two files.
    """
    found: dict[str, Plain] = {}
    places: dict[str, Where] = {}
    for node in nodes:
        for model, entry in _models(node).items():
            first = places.setdefault(model, entry.where)
            if first is not entry.where:
                raise entry.where.error(f"has prices on {first.seen_from(entry.where)} too; one of the two is allowed")
            found[model] = _entry(entry)
    return found


def _models(node: Node | None) -> Mapping[str, Node]:
    if node is None or (isinstance(node, Text) and node.is_null):
        return {}
    if not isinstance(node, Table):
        raise wrong(node, "a mapping of models is allowed")
    return node.entries


def _entry(node: Node) -> Plain:
    from lockpin_core.price_entry import read_entry  # commands that need no prices must start fast

    tree = plain(node)
    try:
        read_entry(node.where.path, tree)
    except PriceError as error:
        raise _placed(str(error), node) from error
    return tree


def _placed(message: str, entry: Node) -> ConfigError:
    """Find the line that a message is about: it begins with a value's path, or a mapping's path and then a key."""
    named = [
        (len(_bare(words)), _begins(message, words), inner.where)
        for inner, parent in _walk(entry, entry)
        for words in _beginnings(inner.where.path, parent.where.path)
        if _begins(_bare(message), _bare(words))
    ]
    where = max(named, key=lambda place: place[:2])[2] if named else entry.where
    return located(where.source, where.line, message)


def _beginnings(path: str, parent: str) -> tuple[str, ...]:
    """List how the price reader begins a message about a value, in the file's spelling."""
    key = path.removeprefix(parent).lstrip(".")
    return path, f"{parent}: {key}", f"{parent} is '{key}'"


def _begins(message: str, words: str) -> bool:
    return re.match(rf"{re.escape(words)}(?![\w.\[])", message) is not None


def _bare(words: str) -> str:
    """Take off what differs between the spellings of a key."""
    return re.sub(r"_per_?(?:mtok|million)\b|_", "", words.lower()).replace("permtok", "")


def _walk(node: Node, parent: Node) -> Iterator[tuple[Node, Node]]:
    yield node, parent
    match node:
        case Table(entries=entries):
            for entry in entries.values():
                yield from _walk(entry, node)
        case Items(items=items):
            for item in items:
                yield from _walk(item, node)
        case Text():
            return
        case _:
            assert_never(node)
