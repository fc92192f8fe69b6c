"""`scripts/test --clients` installs what the locks name, once; a stand-in for npm says what it was asked."""

import json
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
KINDS = ("sdks", "agents")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cmp", "cp", "mkdir", "mv", "rm"):
        (folder / name).symlink_to(shutil.which(name))
    (folder / "npm").write_text(NPM)
    (folder / "npm").chmod(0o755)
    return folder


def install(tmp_path: Path, tools: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    lines = 'root=$1; . "$1/scripts/bootstrap"; . "$1/scripts/bootstrap_clients"; ready_clients "$2"'
    environment = {"PATH": str(tools), "ASKED": str(tmp_path / "asked"), "STATUS": str(status)}
    command = ["/bin/sh", "-euc", lines, "sh", ROOT, tmp_path / "a folder"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().splitlines()


def test_each_lock_is_installed_once(tmp_path, tools):
    first, second = install(tmp_path, tools), install(tmp_path, tools)

    assert (first.returncode, second.returncode, second.stderr) == (0, 0, "")
    assert len(asked(tmp_path)) == len(KINDS)
    assert all(line.startswith("ci --ignore-scripts") for line in asked(tmp_path))
    for kind in KINDS:
        assert (tmp_path / "a folder" / kind / "made").read_bytes() == lock(kind).read_bytes()


def test_a_newer_lock_is_installed_anew(tmp_path, tools):
    install(tmp_path, tools)
    stamp = tmp_path / "a folder" / "agents" / "made"
    stamp.write_text("older")

    assert install(tmp_path, tools).returncode == 0
    assert len(asked(tmp_path)) == len(KINDS) + 1
    assert stamp.read_bytes() == lock("agents").read_bytes()


def test_what_is_half_made_is_not_used(tmp_path, tools):
    failed = install(tmp_path, tools, status=1)

    assert failed.returncode == 1
    assert "lockpin: npm could not install the clients of tests/clients/sdks" in failed.stderr
    assert not list((tmp_path / "a folder").iterdir())


def test_without_npm_it_is_one_line(tmp_path, tools):
    (tools / "npm").unlink()

    done = install(tmp_path, tools)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("lockpin: npm was not found on PATH")


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_has_versions_and_hashes_and_no_address(kind):
    found = json.loads(lock(kind).read_text())
    wanted = json.loads(lock(kind).with_name("package.json").read_text())["dependencies"]

    packages = {name: entry for name, entry in found["packages"].items() if name}
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not [name for name, entry in packages.items() if "resolved" in entry]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted


def lock(kind: str) -> Path:
    return ROOT / "tests" / "clients" / kind / "package-lock.json"
