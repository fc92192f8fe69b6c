"""The floors of the code: a module imports what lies below it, and its own package; never up, never sideways."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Lowest first. An entry is one package of the core, or the modules that one glob names; inside an entry all may import
# each other, side by side two entries may not. A new module gets its place here before it gets an import.
FLOORS = (
    ("secret_forms",),
    ("__init__", "money", "clock", "errors", "jsontext", "names", "aside"),
    ("usage", "windows", "addresses", "keys", "oidc"),
    ("call", "clients", "owners"),
    ("budgets", "wire", "provider*"),
    ("price*",),
    ("sizing", "config*"),
    ("attempts", "substitutes", "ladder", "observers", "settlement", "refusals", "forms", "receipt"),
    ("ledger",),
    ("admission*",),
    ("settler",),
    ("engine",),
    ("engine_attempts",),
    ("readers",),
)

# What no module of a top-level package may import; besides, `mitmproxy` is for lockpin_addons alone.
BANNED = {
    "lockpin_core": {"lockpin_addons", "lockpin_cli", "mitmproxy", "typer", "rich", "click"},
    "lockpin_cli": {"lockpin_addons", "mitmproxy"},
    "lockpin_addons": {"lockpin_cli", "typer"},
}

MAX_FILE_LINES, MAX_FUNCTION_LINES = 450, 60
LONG_FILES: dict[str, str] = {}  # path → why it is one story nonetheless
LONG_FUNCTIONS: dict[str, str] = {}  # path::name → why it is one job nonetheless

CORE = sorted((ROOT / "lockpin_core").rglob("*.py"))
EDGES = sorted([*(ROOT / "lockpin_cli").rglob("*.py"), *(ROOT / "addons").rglob("*.py")])
SCRIPTS = [p for p in sorted((ROOT / "scripts").iterdir()) if p.is_file() and "python" in p.read_text().split("\n")[0]]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def place(module: str) -> tuple[int, str]:
    """Find the floor and the entry of `lockpin_core.MODULE`."""
    first = module.split(".")[1] if "." in module else "__init__"
    for floor, entries in enumerate(FLOORS):
        for entry in entries:
            if fnmatchcase(first, entry):
                return floor, entry
    raise AssertionError(f"lockpin_core/{first} has no floor: give it a place in FLOORS of tests/test_floors.py")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def core_module(imported: str) -> str:
    """Cut `lockpin_core.money.Money` down to the module; a name of the root package itself is the root's."""
    parts = imported.split(".")
    is_module = len(parts) > 1 and any((ROOT / parts[0] / f"{parts[1]}{end}").exists() for end in (".py", ""))
    return ".".join(parts[:2]) if is_module else parts[0]


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_module_imports_only_what_lies_below_it(path: Path):
    floor, entry = place(module_of(path))
    for imported in imports(ast.parse(path.read_text("utf-8"))):
        if imported.split(".")[0] == "lockpin_core":
            below, other = place(core_module(imported))
            assert below < floor or other == entry, (
                f"{name_of(path)} (floor {floor}) imports {imported} (floor {below})"
            )


@pytest.mark.parametrize("path", [*CORE, *EDGES], ids=name_of)
def test_package_imports_nothing_that_is_not_for_it(path: Path):
    package = next((part for part in path.relative_to(ROOT).parts if part in BANNED), "lockpin_addons")
    for imported in imports(ast.parse(path.read_text("utf-8"))):
        assert imported.split(".")[0] not in BANNED[package], f"{name_of(path)} imports {imported}"


@pytest.mark.parametrize("path", [*CORE, *EDGES, *SCRIPTS], ids=name_of)
def test_long_files_and_functions_have_a_reason(path: Path):
    text = path.read_text("utf-8")
    lines = text.count("\n")
    assert lines <= MAX_FILE_LINES or name_of(path) in LONG_FILES, f"{name_of(path)} has {lines} lines"

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            key = f"{name_of(path)}::{node.name}"
            assert length <= MAX_FUNCTION_LINES or key in LONG_FUNCTIONS, f"{key} has {length} lines"
