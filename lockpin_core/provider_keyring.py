"""The system's keyring, by the `keyring` library: macOS Keychain, Secret Service, KWallet. Knows no provider."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lockpin_core.errors import CommandError

SERVICE = "lockpin"
OTHERWISE = "or name the key's variable under keys.provider_env of lockpin.yaml"
_FAULTS = (OSError, RuntimeError, ImportError, AttributeError)  # the last two: another backend was named than there is
_OPEN_FILES = ("PlaintextKeyring", "null")  # backends that write keys as they are, or nowhere


class Keyring:
    """Keys of providers, each under the provider's name. See `provider_keys.Store`."""

    def __init__(self, load: Callable[[str], Any] = importlib.import_module) -> None:
        """Find the library and what it stands on. Raises CommandError, saying what is missing."""
        try:
            self._library, self._errors = load("keyring"), load("keyring.errors")
        except ImportError:
            words = "the library for it is not installed: pip install 'lockpin[keyring]'"
            raise CommandError(f"no keyring: {words}, {OTHERWISE}") from None
        with self._told("opened"):
            backend = self._library.get_keyring()
            backend = next(iter(getattr(backend, "backends", ())), backend)  # of several the first is written to
        kind = type(backend)
        self.name = str(getattr(backend, "name", kind.__name__))
        if kind.__module__.startswith("keyring.backends.fail"):
            raise CommandError(f"no keyring: this system has none that can be used; start one, {OTHERWISE}")
        if kind.__name__ in _OPEN_FILES or kind.__module__.rpartition(".")[2] in _OPEN_FILES:
            raise CommandError(f"no keyring: {self.name} does not keep secrets secret; choose another, {OTHERWISE}")

    def get(self, provider: str) -> str | None:
        """See Store."""
        with self._told("read"):
            found = self._library.get_password(SERVICE, provider)
        return found if isinstance(found, str) else None

    def put(self, provider: str, key: str) -> None:
        """See Store."""
        with self._told("written"):
            self._library.set_password(SERVICE, provider, key)

    def remove(self, provider: str) -> bool:
        """See Store."""
        if self.get(provider) is None:
            return False
        with self._told("written"):
            self._library.delete_password(SERVICE, provider)
        return True

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        # Of its words nothing is repeated: a backend may put what it was given into them.
        except self._errors.KeyringLocked:
            raise CommandError(f"the keyring is locked; unlock it, {OTHERWISE}") from None
        except (self._errors.KeyringError, *_FAULTS) as error:
            words = f"the keyring cannot be {what} ({type(error).__name__}); put that right, {OTHERWISE}"
            raise CommandError(words) from None
