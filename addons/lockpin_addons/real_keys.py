"""What providers themselves take, which goes in the place of a Lockpin key: looked up beside the loop, kept in memory.

Knows no form of a key, and says in no line more of one than where it was looked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from lockpin_addons.banner import say
from lockpin_addons.identity import IdentityError
from lockpin_addons.terms import InForce
from lockpin_core.provider_keyring import Keyring
from lockpin_core.provider_keys import ProviderKeys, Store

WAIT_S = 2  # for a keyring, which may wait until somebody unlocks it
LOOK_AGAIN_S = 10  # so often it is asked for a key that it did not have


class RealKeys:
    """Gives the keys of providers by the configuration in force; the environment stays what it was at the start."""

    def __init__(
        self, in_force: InForce, environ: Mapping[str, str], *, open_store: Callable[[], Store] = Keyring
    ) -> None:  # fmt: skip
        self._in_force, self._environ = in_force, environ
        self._store = _Lazy(open_store)
        self._env: Mapping[str, str] | None = None  # of the configuration that `_keys` are of
        self._keys = ProviderKeys({}, {})
        self._wanted: dict[str, float] = {}  # providers that the keyring was asked for, and when
        self._asking: asyncio.Task[None] | None = None
        self._said: str | None = None

    async def of(self, provider: str) -> str:
        """Give a provider's own key. Raises IdentityError, naming what to set, where there is none."""
        env = self._in_force.terms.config.provider_env
        if env != self._env:
            self._env, self._keys, self._wanted = env, ProviderKeys(env, self._environ, self._store), {}
        keys = self._keys  # the configuration may be another one when the keyring has answered
        if (found := keys.of(provider)) is not None:
            return found
        await self._ask(keys, provider)
        if (found := keys.of(provider)) is not None:
            return found
        raise IdentityError(_missing(provider, env.get(provider)))

    async def _ask(self, keys: ProviderKeys, provider: str) -> None:
        """Ask the keyring, for no longer than a call can wait; what comes later serves the next one."""
        end_s = time.monotonic() + WAIT_S
        while keys.of(provider) is None and (now_s := time.monotonic()) < end_s:
            if self._asking is None or self._asking.done():  # else it is asked for another one's, and then for this
                if now_s - self._wanted.get(provider, -LOOK_AGAIN_S) < LOOK_AGAIN_S:
                    break
                self._wanted[provider] = now_s
                self._asking = asyncio.create_task(asyncio.to_thread(keys.read, list(self._wanted)))
            await asyncio.wait([self._asking], timeout=end_s - now_s)
        if keys.fault is not None and keys.fault != self._said:
            self._said = keys.fault
            say(f"a provider's own key was looked for: {keys.fault}")


class _Lazy:
    """A keyring that is opened when it is first asked, which takes long, and again where that failed."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._opened: Store | None = None

    def get(self, provider: str) -> str | None:
        return self._found().get(provider)

    def put(self, provider: str, key: str) -> None:
        self._found().put(provider, key)

    def remove(self, provider: str) -> bool:
        return self._found().remove(provider)

    def _found(self) -> Store:
        if self._opened is None:
            self._opened = self._open()
        return self._opened


def _missing(provider: str, variable: str | None) -> str:
    how = f"set {variable} where it runs"
    if variable is None:
        how = f"name the variable that has it in lockpin.yaml: keys: {{provider_env: {{{provider}: VARIABLE}}}}"
    return f"the proxy has no key of {provider}'s own to put in the place of the Lockpin key; {how}"
