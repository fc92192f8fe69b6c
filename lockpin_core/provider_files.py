"""Provider files (`pricing/*.yaml`) as text, and the kinds of value that stand in them. Knows no provider and no price.

Every scalar is read as text: a price must never be a float. Errors name the file and the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lockpin_core.errors import PriceError

_LEFT_OUT = "left_out.yaml"  # beside the provider files, but a list of models without a price


def read_files(folder: Path) -> list[tuple[str, Mapping[str, object]]]:
    """Read the provider files of a folder, every scalar as text; a block of `models:` stays one text, unread.

    There are thousands of models and a start needs none of them. Raises PriceError naming the file.
    """
    trees: list[tuple[str, Mapping[str, object]]] = []
    for path in sorted(folder.glob("*.yaml")):
        if path.name == _LEFT_OUT:
            continue
        head, _, models = path.read_text("utf-8").partition("\nmodels:\n")
        tree = read_yaml(path.name, head)
        if not isinstance(tree, dict) or tree.get("provider") != path.stem:
            raise PriceError(f"{path.name} must be a mapping with provider: {path.stem}")
        trees.append((path.name, {**tree, "models": models} if models else tree))
    if not trees:
        raise PriceError(f"{folder} holds no price files")
    return trees


def read_yaml(file: str, text: str) -> object:
    """Read YAML with every scalar as text: a price must never be a float. Raises PriceError naming the file."""
    import yaml  # commands that need no prices must start fast

    try:
        return yaml.load(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except yaml.YAMLError as error:
        raise PriceError(f"{file} is not YAML: {error}") from error


def text(file: str, tree: Mapping[str, object], key: str) -> str:
    """Read a text that must be there. Raises PriceError."""
    value = tree.get(key)
    if not isinstance(value, str) or not value:
        raise PriceError(f"{file}: {key} is {value!r}; text is allowed")
    return value


def texts(file: str, tree: Mapping[str, object], key: str) -> list[str]:
    """Read a list of texts; an absent one is empty. Raises PriceError."""
    value = tree.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise PriceError(f"{file}: {key} is {value!r}; a list of texts is allowed")
    return value


def table(file: str, tree: Mapping[str, object], key: str) -> dict[str, str]:
    """Read a mapping of texts; an absent one is empty. Raises PriceError."""
    value = tree.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise PriceError(f"{file}: {key} is {value!r}; a mapping of texts is allowed")
    return value


def choice(file: str, tree: Mapping[str, object], key: str, allowed: tuple[str, ...]) -> str:
    """Read one of these words; the first where nothing is said. Raises PriceError."""
    value = tree.get(key, allowed[0])
    if value not in allowed:
        raise PriceError(f"{file}: {key} is {value!r}; {' or '.join(allowed)} is allowed")
    return str(value)


def whole(file: str, key: str, value: object) -> int:
    """Read a whole number above zero. Raises PriceError."""
    if not isinstance(value, str) or not value.isdecimal() or int(value) == 0:
        raise PriceError(f"{file}: {key} is {value!r}; a whole number above zero is allowed")
    return int(value)
