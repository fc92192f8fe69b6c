"""What the repository may hold, whatever the code does."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MADE_HERE = {"dist", "htmlcov", "__pycache__", "_pricing"}  # never part of it
DOTTED = {".ci", ".github", ".gitignore"}

# Written in parts, so that this file does not name them itself.
HOSTS = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "proxy." + "golang.org",
    "deb." + "debian.org",
    "crates" + ".io",
)
MACHINE_PATH = re.compile(r"(?<![\w$}.~*])/(?:home/\w|Users/\w|root/|work/|tmp/b)|pyenv/versions/\d")


def is_ours(name: str) -> bool:
    return name not in MADE_HERE and (not name.startswith(".") or name in DOTTED)


def files() -> Iterator[Path]:
    for folder, folders, names in ROOT.walk():
        folders[:] = sorted(filter(is_ours, folders))
        yield from (folder / name for name in sorted(filter(is_ours, names)))


def own_texts() -> Iterator[tuple[Path, str]]:
    """Give what was written here: recorded bodies in tests/data are others' words."""
    for path in files():
        if (ROOT / "tests" / "data") not in path.parents:
            yield path, path.read_bytes().decode("utf-8", "replace")


def pythons() -> list[Path]:
    return [path for path, text in own_texts() if path.suffix == ".py" or re.match(r"#!.*python", text)]


def test_no_file_names_a_path_of_one_machine():
    found = [f"{path}: {match.group()}" for path, text in own_texts() for match in MACHINE_PATH.finditer(text)]

    assert not [line for line in found if not line.startswith(str(Path(__file__)))]


def test_no_file_names_the_host_of_a_package_registry():
    assert not [f"{path}: {host}" for path, text in own_texts() for host in HOSTS if host in text]


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_lock_has_versions_and_hashes_and_nothing_else(lock: str):
    text = (ROOT / lock).read_text("utf-8")
    entries = [entry for entry in re.split(r"\n(?=\S)", text.strip()) if not entry.startswith("#")]

    assert entries
    for entry in entries:
        head, *hashes = entry.split(" \\\n")
        assert re.fullmatch(r"[a-z0-9-]+==[^\s;]+( ; [^\\]+)?", head), head
        assert hashes and all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}", line) for line in hashes), head


def test_both_locks_agree():
    pins = [
        dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / lock).read_text("utf-8"), re.M))
        for lock in ("requirements.lock", "requirements-dev.lock")
    ]

    assert pins[0].items() <= pins[1].items()


@pytest.mark.parametrize("folder", ["addons", "pricing", "scripts", "tests"])
def test_root_folder_is_never_a_package(folder: str):
    found = [path for path in files() if path.name == "__init__.py" and path.relative_to(ROOT).parts[0] == folder]

    assert not [path for path in found if folder == "tests" or path.parent == ROOT / folder]


@pytest.mark.parametrize("path", pythons(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_file_says_what_it_is(path: Path):
    tests = path.relative_to(ROOT).parts[0] == "tests"

    assert tests or ast.get_docstring(ast.parse(path.read_text("utf-8")))


@pytest.mark.parametrize("name", ["lockpin", "test", "make_environment"])
def test_script_can_be_run(name: str):
    assert (ROOT / "scripts" / name).stat().st_mode & 0o111
