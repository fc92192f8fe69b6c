"""A stand-in for the `keyring` library in tests of commands: it keeps keys in the file that FAKE_KEYRING names.

`FAKE_KEYRING_IS` says what it is like: "locked", "missing" (no backend), "plain" (a backend that hides nothing), "absent"
(not installed), "broken", "forgetful".
"""

import json
import os
import sys
import types
from pathlib import Path

_IS = os.environ.get("FAKE_KEYRING_IS", "")
if _IS == "absent":
    raise ImportError("no such library")


class KeyringError(Exception):
    pass


class KeyringLocked(KeyringError):
    pass


errors = types.ModuleType("keyring.errors")
errors.KeyringError, errors.KeyringLocked = KeyringError, KeyringLocked
sys.modules["keyring.errors"] = errors


class Good:
    name = "Test Keyring"


class Fail:
    __module__ = "keyring.backends.fail"


class PlaintextKeyring:
    name = "file PlaintextKeyring"


def get_keyring():
    return {"missing": Fail, "plain": PlaintextKeyring}.get(_IS, Good)()


def get_password(service, name):
    _check()
    return _kept().get(f"{service}/{name}")


def set_password(service, name, password):
    _check(password)
    if _IS != "forgetful":
        _keep(_kept() | {f"{service}/{name}": password})


def delete_password(service, name):
    _check()
    _keep({key: value for key, value in _kept().items() if key != f"{service}/{name}"})


def _check(words=""):
    if _IS == "locked":
        raise KeyringLocked("it is locked")
    if _IS == "broken":
        raise KeyringError(f"it does not work: {words}")


def _kept():
    file = Path(os.environ["FAKE_KEYRING"])
    return json.loads(file.read_text()) if file.exists() else {}


def _keep(keys):
    Path(os.environ["FAKE_KEYRING"]).write_text(json.dumps(keys))
