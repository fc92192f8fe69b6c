"""The real keys of providers, which agents never have: from the environment, else from the system's keyring.

Knows where a key may be and no key's form. None is ever written down, logged, or shown.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping
from typing import Protocol

from lockpin_core.errors import CommandError

_SENDABLE = re.compile(r"[\x21-\x7e]{1,4096}")


class Store(Protocol):
    """Where keys are kept by provider. Each call may wait: for the system, or for somebody to unlock it.

    Raises CommandError where it cannot be used.
    """

    def get(self, provider: str) -> str | None: ...
    def put(self, provider: str, key: str) -> None: ...
    def remove(self, provider: str) -> bool:
        """Say whether there was one."""


class ProviderKeys:
    """The keys at hand. `env` maps a provider to its variable, which wins; `store` None: there is no keyring.

    `of` gives at once what is known and is fit for an event loop; `read` asks the keyring, and belongs in a thread.
    """

    def __init__(self, env: Mapping[str, str], environ: Mapping[str, str], store: Store | None = None) -> None:
        self._env, self._environ, self._store = env, environ, store
        self._stored: Mapping[str, str] = {}
        self._one_at_a_time = threading.Lock()
        self.fault: str | None = None  # why the keyring could not be read when it was last tried

    def of(self, provider: str) -> str | None:
        """Give a provider's key; None: there is none."""
        return self._named(provider) or self._stored.get(provider)

    def source(self, provider: str) -> str | None:
        """Say in words where a provider's key is from; None: there is none."""
        if self._named(provider) is not None:
            return f"environment: {self._env[provider]}"
        return "keyring" if provider in self._stored else None

    def read(self, providers: Collection[str]) -> None:
        """Read anew what the keyring has for these. Where it fails, what was read before stays."""
        if self._store is None:
            return
        with self._one_at_a_time:
            try:
                found = {name: self._store.get(name) for name in sorted(providers) if self._named(name) is None}
            except CommandError as error:
                self.fault = str(error)
                return
            self._stored = {name: key for name, key in found.items() if key is not None and is_sendable(key)}
            self.fault = None

    def _named(self, provider: str) -> str | None:
        """Read the variable of a provider; one that is empty, or no key at all, is as good as none."""
        key = self._environ.get(self._env[provider], "").strip() if provider in self._env else ""
        return key if is_sendable(key) else None


def is_sendable(key: str) -> bool:
    """Say whether a text may stand in a header as a key."""
    return _SENDABLE.fullmatch(key) is not None
