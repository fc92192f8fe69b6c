"""What is made from the program is as the program is now."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockpin_cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("script", ["make_docs", "make_picture"])
def test_what_a_script_made_is_up_to_date(script):
    environment = {"PATH": os.environ["PATH"]}
    command = [sys.executable, ROOT / "scripts" / script, "--check"]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr


def test_page_has_every_command():
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")

    assert all(f"\n## `lockpin {name}`\n" in page for name in COMMANDS)


def test_picture_fetches_nothing():
    picture = (ROOT / "docs" / "report.svg").read_text("utf-8")

    assert "@font-face" not in picture
    assert "url(http" not in picture
    assert "claude-opus-5-5" in picture
