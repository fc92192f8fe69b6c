"""`scripts/test --clients` installs what the locks name, once; stand-ins for npm and Python say what they were asked."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from processes import ROOT

NPM = """#!/bin/sh
echo "$*" >> "$ASKED"
mkdir node_modules
exit ${STATUS:-0}
"""
PYTHON = """#!/bin/sh
case "$3" in
venv) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
pip) echo "$*" >> "$ASKED"; exit ${PIP_STATUS:-0} ;;
esac
"""
KINDS = ("sdks", "agents")
LOCKS = {kind: ROOT / "tests" / "clients" / kind / "package-lock.json" for kind in KINDS}
LOCKS |= {"aider": ROOT / "tests" / "clients" / "aider" / "requirements.lock"}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cmp", "cp", "mkdir", "mv", "rm", "sort"):
        (folder / name).symlink_to(shutil.which(name))
    for name, lines in {"npm": NPM, "python3.12": PYTHON}.items():
        (folder / name).write_text(lines)
        (folder / name).chmod(0o755)
    return folder


def install(tmp_path: Path, tools: Path, **statuses: str) -> subprocess.CompletedProcess[str]:
    lines = 'root=$1; . "$1/scripts/bootstrap"; . "$1/scripts/bootstrap_clients"; ready_clients "$2"'
    environment = {"PATH": str(tools), "ASKED": str(tmp_path / "asked")} | statuses
    command = ["/bin/sh", "-euc", lines, "sh", ROOT, tmp_path / "a folder"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().splitlines()


def test_each_lock_is_installed_once(tmp_path, tools):
    first, second = install(tmp_path, tools), install(tmp_path, tools)

    assert (first.returncode, second.returncode, second.stderr) == (0, 0, "")
    *npm, pip = asked(tmp_path)
    assert len(npm) == len(KINDS)
    assert all(line.startswith("ci --ignore-scripts") for line in npm)
    assert pip.startswith("-I -m pip install")
    assert {"--require-hashes", "--no-deps", str(LOCKS["aider"])} <= set(pip.split())
    for kind, lock in LOCKS.items():
        assert (tmp_path / "a folder" / kind / "made").read_bytes() == lock.read_bytes()
    assert {path.name for path in (tmp_path / "a folder").iterdir()} == LOCKS.keys()


@pytest.mark.parametrize("kind", LOCKS)
def test_a_newer_lock_is_installed_anew(tmp_path, tools, kind):
    install(tmp_path, tools)
    stamp = tmp_path / "a folder" / kind / "made"
    stamp.write_text("older")

    assert install(tmp_path, tools).returncode == 0
    assert len(asked(tmp_path)) == len(LOCKS) + 1
    assert stamp.read_bytes() == LOCKS[kind].read_bytes()


@pytest.mark.parametrize(
    ("failing", "words", "left"),
    [
        ("STATUS", "npm could not install the clients of tests/clients/sdks", set()),
        ("PIP_STATUS", "pip could not install the client of tests/clients/aider", set(KINDS)),
    ],
)
def test_what_is_half_made_is_not_used(tmp_path, tools, failing, words, left):
    failed = install(tmp_path, tools, **{failing: "1"})

    assert failed.returncode == 1
    assert f"lockpin: {words}" in failed.stderr
    assert {path.name for path in (tmp_path / "a folder").iterdir()} == left


@pytest.mark.parametrize("change", ["absent", "another version"])
def test_without_the_python_that_aider_needs_it_is_left_out(tmp_path, tools, change):
    (tools / "python3.12").unlink()
    if change == "another version":
        (tools / "python3").write_text("#!/bin/sh\nexit 1\n")
        (tools / "python3").chmod(0o755)

    done = install(tmp_path, tools)

    assert done.returncode == 0
    assert "lockpin: no Python 3.12 with venv was found, which aider needs: its tests are left out" in done.stderr
    assert {path.name for path in (tmp_path / "a folder").iterdir()} == set(KINDS)


def test_without_npm_it_is_one_line(tmp_path, tools):
    (tools / "npm").unlink()

    done = install(tmp_path, tools)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("lockpin: npm was not found on PATH")


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_has_versions_and_hashes_and_no_address(kind):
    found = json.loads(LOCKS[kind].read_text())
    told = json.loads(LOCKS[kind].with_name("package.json").read_text())
    wanted = told["dependencies"] | told.get("optionalDependencies", {})

    packages = {name: entry for name, entry in found["packages"].items() if name}
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not [name for name, entry in packages.items() if "resolved" in entry]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted


def test_aiders_lock_has_versions_and_hashes_and_nothing_else():
    entries = [entry for entry in re.split(r"\n(?=\S)", LOCKS["aider"].read_text().strip()) if entry[0] != "#"]

    for entry in entries:
        head, *hashes = entry.split(" \\\n")
        assert re.fullmatch(r"[a-z0-9-]+==[^\s;]+( ; [^\\]+)?", head), head
        assert hashes and all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}", line) for line in hashes), head
    (wanted,) = LOCKS["aider"].with_name("requirements.in").read_text().splitlines()
    assert wanted in [entry.partition(" ")[0] for entry in entries]
