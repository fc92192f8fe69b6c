"""YAML as text with line numbers: the tree that `config` reads. Knows no keys and no values but null.

Scalars stay as written, so that an amount never passes through a float. Anchors, aliases and tags are refused: what a
file means must be readable where it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from lockpin_core.config_secrets import masked, masked_keys
from lockpin_core.errors import ConfigError

if TYPE_CHECKING:  # most have no file, and commands must start fast
    import yaml

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_DEFAULT_TAGS = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"})
_MAX_SHOWN = 80
_LONGEST_KEY = 256  # longer than any name of a model, and short enough to be told whole
_FROM_FILE = re.compile(
    r"""(alias|anchor|handle) (['"]).*\2"""
)  # what yaml repeats of the file, beside single characters


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file, or an option (`line` None)."""

    source: str  # "lockpin.yaml" | "option"
    line: int | None
    path: str = ""  # "budgets[0].limit_usd"

    def at(self, line: int, step: str) -> Where:
        """Give the place one step deeper: a key, or "[0]"."""
        dot = "." if self.path and not step.startswith("[") else ""
        return Where(self.source, line, f"{self.path}{dot}{step}")

    def seen_from(self, other: Where) -> str:
        """Name the line, and the file where the other place is in another one."""
        return f"line {self.line}" + ("" if self.source == other.source else f" of {self.source}")

    def error(self, fact: str) -> ConfigError:
        """Make the error of this place; `fact` goes on after the path."""
        return located(self.source, self.line, f"{self.path or 'the file'} {fact}")


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar as written. `plain`: without quotes."""

    where: Where
    text: str
    plain: bool = True

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    where: Where
    items: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping, keys as written."""

    where: Where
    entries: Mapping[str, Node] = field(default_factory=dict)


def located(source: str, line: int | None, fact: str) -> ConfigError:
    """Make the error of a line in a file, or of an option; what may be a secret is hidden, the file's name stays."""
    place = f"{masked_keys(source)} " if line is None else f"{masked_keys(source)}:{line}: "
    return ConfigError(one_line(f"{place}{masked(fact)}"))


type Node = Text | Items | Table
type Plain = str | list[Plain] | dict[str, Plain] | None


type Check = Callable[[Sequence[str], Where], None]
"""Told the keys at the top of a file and where they are; raises ConfigError where they are another program's."""


def read(text: str, file: str, check: Check | None = None, only: Collection[str] | None = None) -> Table:
    """Read a file's text. Raises ConfigError naming file, line and what is wrong.

    Of a file that is none of ours no word is repeated: it may be a secret. `only`: the keys at the top that are read,
    whatever may stand under the others.
    """
    import yaml

    try:
        root = yaml.compose(text, yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        raise located(file, _line(error, text), f"not {_kind(file)}: {_problem(error)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise located(file, line, f"not {_kind(file)}: the character U+{code:04X} is not allowed") from error
    except RecursionError as error:
        raise located(file, 1, "nested too deeply; lists and mappings a few levels deep are allowed") from error
    where = Where(file, 1)
    if isinstance(root, yaml.MappingNode):
        keys = [key.value for key, _ in root.value if isinstance(key, yaml.ScalarNode)]
        if keys and check is not None:
            check(keys, where)
        return Table(where, _entries(root, where, {id(root)}, only)) if root.tag in _DEFAULT_TAGS else _untagged(where)
    if root is not None and not (isinstance(root, yaml.ScalarNode) and root.style is None and root.value in _NULLS):
        kind = "a text" if isinstance(root, yaml.ScalarNode) else "a list"
        raise where.error(f"is {kind}; a mapping of keys is allowed")
    return Table(where)


def _kind(file: str) -> str:
    """Name what a file should be: JSON is read as the YAML that it is."""
    return "JSON" if file.lower().endswith(".json") else "YAML"


def _untagged(where: Where) -> Table:
    raise where.error("has a tag; a mapping without a tag is allowed")


def shown(node: Node) -> str:
    """Write a node for an error: a scalar in quotes and shortened, secrets left out."""
    match node:
        case Table():
            return "a mapping"
        case Items():
            return "a list"
        case Text(text=text) if node.is_null:
            return text or "null"
        case Text(text=text):
            return quoted(text)
        case _:
            assert_never(node)


def quoted(text: str) -> str:
    """Write a text for an error, in quotes and on one line, secrets left out."""
    safe = masked(text)
    return json.dumps(safe if len(safe) <= _MAX_SHOWN else f"{safe[:_MAX_SHOWN]}…", ensure_ascii=False)


def one_line(text: str) -> str:
    """Write what cannot be printed as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def plain(node: Node) -> Plain:
    """Give the node without its places: text, None for null, list, dict."""
    match node:
        case Table(entries=entries):
            return {key: plain(entry) for key, entry in entries.items()}
        case Items(items=items):
            return [plain(item) for item in items]
        case Text(text=text):
            return None if node.is_null else text
        case _:
            assert_never(node)


def _node(node: yaml.Node, where: Where, seen: set[int]) -> Node:
    import yaml

    if id(node) in seen:
        raise where.error("is an alias of another place; aliases are not allowed here, write the value out")
    seen.add(id(node))
    if node.tag not in _DEFAULT_TAGS:
        raise where.error(f"has the tag {quoted(node.tag)}; values without a tag are allowed")
    if isinstance(node, yaml.ScalarNode):
        return Text(where, node.value, node.style is None)
    if isinstance(node, yaml.SequenceNode):
        steps = enumerate(node.value)
        return Items(where, tuple(_node(item, where.at(_start(item), f"[{i}]"), seen) for i, item in steps))
    assert isinstance(node, yaml.MappingNode)
    return Table(where, _entries(node, where, seen))


def _entries(
    node: yaml.MappingNode, where: Where, seen: set[int], only: Collection[str] | None = None
) -> dict[str, Node]:
    import yaml

    entries: dict[str, Node] = {}
    for key, value in node.value:
        if only is not None and key.value not in only:
            continue
        if not isinstance(key, yaml.ScalarNode):
            raise where.at(_start(key), "a key").error("is a list or a mapping; a name is allowed")
        if len(one_line(key.value)) > _LONGEST_KEY:
            words = f"is {quoted(key.value)}; a name of at most {_LONGEST_KEY} characters is allowed"
            raise where.at(_start(key), "a key").error(words)
        place = where.at(_start(key), key.value)
        if key.value in entries:
            first = entries[key.value].where.line
            raise place.error(f"is given a second time, first on line {first}; one is allowed")
        entries[key.value] = _node(value, place, seen)
    return entries


def _start(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1


def _line(error: yaml.MarkedYAMLError, text: str) -> int:
    mark = error.problem_mark or error.context_mark
    last = text.rstrip().count("\n") + 1
    return last if mark is None else min(mark.line + 1, last)


def _problem(error: yaml.MarkedYAMLError) -> str:
    words = " ".join(part for part in (error.context, error.problem) if part)
    words = _FROM_FILE.sub(r"\1", words)
    if "'\\t'" in words:
        words += "; spaces are allowed for indentation, tabs are not"
    return one_line(words)
