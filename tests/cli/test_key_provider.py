"""`lockpin key provider` with a stand-in for the library: no keyring of this machine is touched."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
STAND_IN = ROOT / "tests" / "data" / "keyring"
KEY = "sk-proj-3kQz9hV2mXw8"


@pytest.fixture
def provider(home, surroundings):
    """Run `lockpin key provider WORDS…` with a keyring that is kept in a file."""

    def run(*words, typed=None, **extra):
        environment = surroundings | {
            "PYTHONPATH": f"{STAND_IN}{os.pathsep}{ROOT}", "FAKE_KEYRING": str(home.path / "kept.json"), **extra,
        }  # fmt: skip
        command = [sys.executable, "-W", "error", "-m", "lockpin_cli.main", "key", "provider", *words]
        return subprocess.run(
            command, cwd=home.path, env=environment, input=typed, capture_output=True, text=True, timeout=60
        )

    return run


def kept(home):
    file = home.path / "kept.json"
    return json.loads(file.read_text()) if file.exists() else {}


def test_key_is_read_from_standard_input_and_kept(provider, home):
    done = provider("set", "openai", typed=f"  {KEY}\n")

    assert (done.returncode, done.stdout) == (
        0,
        "openai: its key is in Test Keyring; a proxy that has another keeps that until it is restarted\n",
    )
    assert kept(home) == {"lockpin/openai": KEY}
    assert provider("rm", "openai").stdout == "openai: its key is out of Test Keyring\n"
    assert kept(home) == {}
    again = provider("rm", "openai")
    assert again.returncode == 1
    assert "Test Keyring has no key of openai; `lockpin key provider list` shows" in again.stderr


def test_keys_are_listed_by_where_they_are_from_and_never_shown(provider, home):
    provider("set", "anthropic", typed=KEY)
    done = provider("list", "--format", "json")

    assert json.loads(done.stdout) == [{"provider": "anthropic", "source": "keyring", "variable": None}]
    assert KEY not in done.stdout + done.stderr + provider("list").stdout
    assert provider("list").stdout.splitlines()[1].split() == ["anthropic", "keyring"]


def test_none_says_how_to_store_one(provider):
    assert provider("list").stdout == "no provider's key is at hand; `lockpin key provider set PROVIDER` stores one\n"


@pytest.mark.parametrize("typed", ["", "\n", "two words", "one\ntwo", "é", "x" * 4097])
def test_what_is_no_key_is_one_line_that_does_not_repeat_it(provider, home, typed):
    done = provider("set", "openai", typed=typed)

    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input: that is no key; one line of 1 to 4096 letters, figures and signs" in done.stderr
    assert not typed.strip() or typed not in done.stderr
    assert kept(home) == {}


def test_unknown_provider_is_one_line_with_what_may_be_meant(provider):
    for verb in ("set", "rm"):
        done = provider(verb, "opanai", typed=KEY)
        assert (done.returncode, done.stdout) == (2, "")
        assert 'no provider "opanai"; there ' in done.stderr and "openai" in done.stderr


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("absent", "no keyring: the library for it is not installed: pip install 'lockpin[keyring]', or name the"),
        ("missing", "no keyring: this system has none that can be used; start one, or name the key's variable"),
        ("plain", "no keyring: file PlaintextKeyring does not keep secrets secret; choose another"),
        ("locked", "the keyring is locked; unlock it"),
        ("broken", "the keyring cannot be written (KeyringError); put that right"),
        ("forgetful", "Test Keyring does not have the key of openai after it was stored; choose another keyring"),
    ],
)
def test_keyring_that_is_of_no_use_is_one_line(provider, home, kind, said):
    done = provider("set", "openai", typed=KEY, FAKE_KEYRING_IS=kind)

    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert KEY not in done.stderr
    listed = provider("list", FAKE_KEYRING_IS=kind)
    assert listed.returncode == 0
    assert KEY not in listed.stdout + listed.stderr


def test_what_is_typed_on_a_terminal_is_not_shown(provider, home, surroundings):
    ours, theirs = pty.openpty()
    environment = surroundings | {
        "PYTHONPATH": f"{STAND_IN}{os.pathsep}{ROOT}",
        "FAKE_KEYRING": str(home.path / "kept.json"),
    }
    command = [sys.executable, "-m", "lockpin_cli.main", "key", "provider", "set", "openai"]
    with subprocess.Popen(
        command, cwd=home.path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as asking:
        os.close(theirs)
        shown = b""
        while b"key of openai: " not in shown:  # the space comes last, when nothing that is typed is dropped any more
            shown += os.read(ours, 1024)
        os.write(ours, f"{KEY}\n".encode())
        while True:
            try:
                more = os.read(ours, 1024)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            shown += more
        assert asking.wait(60) == 0
    os.close(ours)

    assert kept(home) == {"lockpin/openai": KEY}
    assert KEY.encode() not in shown
