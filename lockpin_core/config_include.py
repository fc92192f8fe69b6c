"""The gateway policy files of `include:`: their `pricing:` and `budgets:`. Every other key of theirs is another's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockpin_core.config_files import content
from lockpin_core.config_near_cap import INSTEAD, named_files
from lockpin_core.config_secrets import masked_keys
from lockpin_core.config_values import folded, listed, text
from lockpin_core.config_yaml import Items, Node, Table, Text, Where, read
from lockpin_core.errors import ConfigError

_KEYS = ("pricing", "budgets")
_MAX_SHOWN = 500  # characters of a path


@dataclass(frozen=True, slots=True)
class Policies:
    """What the included files say, in their order."""

    files: tuple[Path, ...]
    pricing: tuple[Node, ...]  # one of each file that has prices
    budgets: tuple[Node, ...]  # of all of them


def included_files(words: str, file: Path) -> tuple[Path, ...]:
    """Name the files that a configuration includes, or names for a key. Raises ConfigError where it cannot be read."""
    if not any(key in words for key in ("include", *INSTEAD)):
        return ()
    entries = read(words, str(file)).entries
    policies = _files(next((node for key, node in entries.items() if folded(key) == "include"), None), file)
    return (*policies, *named_files(entries, file))


def read_policies(node: Node | None, file: Path | None, included: Mapping[Path, str] | None = None) -> Policies:
    """Read the files that `include:` names; None: there is no such key. Raises ConfigError, naming file and line.

    `included`: their contents, where those are known.
    """
    files = _files(node, file)
    trees = [_policy(path, where, included) for path, where in files.items()]
    pricing = tuple(tree.entries["pricing"] for tree in trees if "pricing" in tree.entries)
    return Policies(tuple(files), pricing, tuple(item for tree in trees for item in _budgets(tree)))


def read_policy(file: Path) -> Table:
    """Read the prices and budgets of one file. Raises ConfigError."""
    return _tree(file, content(file))


def _policy(file: Path, where: Where, included: Mapping[Path, str] | None) -> Table:
    if included is not None and file in included:
        return _tree(file, included[file])
    try:
        words = content(file)
    except ConfigError as error:
        path = masked_keys(str(file))
        why = str(error).removeprefix(f"{path}: ")
        raise where.error(f"names a file that cannot be taken: {_shortened(path)}: {why}") from error
    except ValueError as error:  # no path has a NUL in it
        raise where.error("names no file; the path of a gateway policy file is allowed") from error
    return _tree(file, words)


def _tree(file: Path, words: str) -> Table:
    tree = read(words, str(file), _refuse_others, _KEYS)
    if not tree.entries:
        _refuse_others((), tree.where)
    return tree


def _refuse_others(keys: Sequence[str], where: Where) -> None:
    if not set(keys) & set(_KEYS):
        raise where.error("has neither pricing nor budgets; a gateway policy file with one of them is allowed")


def _files(node: Node | None, file: Path | None) -> dict[Path, Where]:
    """Name the files, each with the place that names it. Paths are relative to the file that includes them."""
    folder = Path() if file is None else file.parent
    found: dict[Path, Where] = {}
    for name, where in _names(node):
        path = folder / name
        if path in found:
            raise where.error(f"names {_shortened(name)} for the second time; one is allowed")
        found[path] = where
    return found


def _names(node: Node | None) -> Iterator[tuple[str, Where]]:
    if node is not None:
        places = [item.where for item in node.items] if isinstance(node, Items) else []
        yield from zip(listed(text)(node), places, strict=True)


def _budgets(tree: Table) -> tuple[Node, ...]:
    node = tree.entries.get("budgets", Text(tree.where, ""))
    return listed(_as_is)(node)


def _as_is(node: Node) -> Node:
    return node


def _shortened(path: str) -> str:
    return path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}…"
