"""Copies of the addons with something changed: a lock taken out, or a point to raise before every statement."""

import ast
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from processes import ROOT

HOOKS = ("door.py", "gate.py", "tap.py", "layers.py", "identity.py", "route.py")
TEAM_HOOKS = ("credentials.py", "callers.py", "tokens.py", "real_keys.py", "reach.py", "door.py", "gate.py")


def copy(folder: Path) -> Path:
    """Copy the addons beside the real core; give the entry script's path."""
    shutil.copytree(ROOT / "addons", folder / "addons", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("lockpin_core", "pricing"):
        (folder / name).symlink_to(ROOT / name)
    return folder / "addons" / "lockpin.py"


def edit(entry: Path, module: str, change: Callable[[str], str]) -> None:
    """Change one module of a copy; the change must change something."""
    path = entry.parent / "lockpin_addons" / module
    before = path.read_text()
    after = change(before)
    assert after != before, f"{module} is not as the mutation expects"
    path.write_text(after)


def without_permit(entry: Path) -> None:
    """Take the permit lock out of the core."""
    edit(entry, "guard.py", lambda text: text.replace("    _lock_upstream()\n", "", 1))


def without_deny_first(entry: Path) -> None:
    """Let requests start without the refusal that only the gate's last line takes away."""
    deny = "        flow.request.stream = False\n        flow.response = guard.panic_reply()\n"
    edit(entry, "gate.py", lambda text: text.replace(deny, deny.splitlines(keepends=True)[0], 1))


def with_trips(entry: Path, modules: Sequence[str] = HOOKS) -> list[str]:
    """Put a point before every statement of the modules that hooks run through; give the points' names."""
    points: list[str] = []
    for module in modules:
        edit(entry, module, lambda text, module=module: _tripped(text, module, points))
    return points


def _tripped(text: str, module: str, points: list[str]) -> str:
    tree = ast.parse(text)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and not function.name.startswith(
            ("_deny", "__")
        ):
            _put_points(function, f"{module}:{function.name}", points)
    for future in [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]:
        tree.body.insert(tree.body.index(future) + 1, ast.parse("import rig_trip").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _put_points(node: ast.AST, place: str, points: list[str]) -> None:
    for _, body in ast.iter_fields(node):
        if not isinstance(body, list) or not body or not isinstance(body[0], ast.stmt):
            continue
        statements: list[ast.stmt] = []
        for statement in body:
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                point = f"{place}:{statement.lineno}"
                if point not in points:
                    points.append(point)
                    statements.append(ast.parse(f"rig_trip.at({point!r})").body[0])
            statements.append(statement)
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                _put_points(statement, place, points)
        body[:] = statements
    if isinstance(node, ast.Match):
        for case in node.cases:
            _put_points(case, place, points)
