"""The wheel as a user gets it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (built,) = folder.glob("lockpin-*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run_beside(folder: Path, code: str) -> str:
    """Run code that finds the unpacked wheel and not the checkout."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def test_wheel_adds_three_packages_and_no_more(names: list[str]):
    top = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}

    assert top == {"lockpin_core", "lockpin_cli", "lockpin_addons"}


def test_entry_lies_alone_in_its_folder(names: list[str]):
    assert [name for name in names if "/entry/" in name] == ["lockpin_addons/entry/lockpin.py"]


def test_wheel_has_every_price_file(names: list[str]):
    shipped = {name.removeprefix("lockpin_core/_pricing/") for name in names if "/_pricing/" in name}

    pricing = ROOT / "pricing"
    assert shipped == {path.relative_to(pricing).as_posix() for path in pricing.rglob("*") if path.is_file()}
    assert "anthropic.yaml" in shipped


def test_wheel_has_every_module(names: list[str]):
    for package, folder in (("lockpin_core", ROOT), ("lockpin_cli", ROOT), ("lockpin_addons", ROOT / "addons")):
        modules = {path.relative_to(folder).as_posix() for path in (folder / package).rglob("*.py")}
        assert modules <= set(names)


def test_wheel_brings_the_command_and_no_tests(wheel: Path, names: list[str]):
    (entry_points,) = [name for name in names if name.endswith(".dist-info/entry_points.txt")]

    with zipfile.ZipFile(wheel) as archive:
        assert "lockpin = lockpin_cli.main:main" in archive.read(entry_points).decode()
    assert not [name for name in names if "tests" in name or name.endswith((".lock", ".pyc"))]


def test_unpacked_wheel_reads_its_own_prices(unpacked: Path):
    shown = run_beside(unpacked, "from lockpin_core.prices import shipped_dir; print(shipped_dir())")

    assert Path(shown) == unpacked / "lockpin_core" / "_pricing"


def test_nothing_importable_is_called_lockpin(unpacked: Path):
    shown = run_beside(unpacked, "import importlib.machinery as m; print(m.PathFinder.find_spec('lockpin'))")

    assert not (unpacked / "lockpin").exists() and not (unpacked / "lockpin.py").exists()
    assert str(unpacked) not in shown
