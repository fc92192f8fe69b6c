"""Takes work out of mitmproxy's core that changes nothing: walks over addons without a hook, copies of plain values.

Each shortcut stands in for a few functions whose source must be exactly the one it was written for; where mitmproxy
has moved, its own code stays in place and only speed is lost. Errors of addons are handled as mitmproxy does.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from inspect import isawaitable
from typing import Any

from mitmproxy import addonmanager, hooks, http, optmanager
from mitmproxy.addonmanager import AddonManager, safecall
from mitmproxy.coretypes import multidict
from mitmproxy.exceptions import AddonHalt
from mitmproxy.flow import Flow

from lockpin_core.aside import take_short_turns

_in_place: set[str] = set()

type Handler = Callable[..., object]

_OBJECTS_UNTIL_SEARCH = 10_000
_PLAIN = frozenset({bool, int, str, type(None)})  # values that nobody can change in place

# What is replaced, and what it leans on, with the beginning of the SHA-256 of its source.
_DISPATCH = (
    (AddonManager.handle_lifecycle, "38c97e792d1db5b7"),
    (AddonManager.trigger_event, "b763c59bc4992e33"),
    (AddonManager.invoke_addon, "13180532440359de"),
    (AddonManager._iter_hooks, "350b419ab7284091"),
    (addonmanager.traverse, "bad3d9f88bdf9269"),
    (addonmanager.safecall, "f2052c18340e99b0"),
)
_ARGUMENTS = ((hooks.Hook.args, "5bab95f7aa358e18"),)
_OPTIONS = ((optmanager._Option.current, "6859c2d9c826806e"),)
_HEADERS = (
    (http.Headers.get_all, "367b3317bc2ba45c"),
    (http.Headers._reduce_values, "d808a4075a1f266d"),
    (http.Headers._kconv, "dd59639eb7c46701"),
    (multidict._MultiDict.get_all, "5bff03c1afa25bb7"),
    (multidict._MultiDict.__getitem__, "482e7414c932e3e8"),
    (http._native, "0ba4541fc6fa15ce"),
)
_CHECKS = ((getattr(http.MessageData, "__post_init__", None), "f65088e210cd9cc1"),)


def quicken(addons: AddonManager) -> list[str]:
    """Put in every shortcut that mitmproxy is as expected for; give the names of those that were left out."""
    steps: dict[str, tuple[Sequence[tuple[Any, str]], Callable[[], None]]] = {
        "hook dispatch": (_DISPATCH, lambda: _quicken_dispatch(addons)),
        "hook arguments": (_ARGUMENTS, _quicken_arguments),
        "options": (_OPTIONS, _quicken_options),
        "headers": (_HEADERS, _quicken_headers),
        "message checks": (_CHECKS, _drop_checks),
    }
    left_out: list[str] = []
    for name, (known, put_in) in steps.items():
        if name in _in_place:
            continue
        if all(_is_known(*entry) for entry in known):
            put_in()
            _in_place.update({name} - {"hook dispatch"})  # that is one for each chain, the others one for the process
        else:
            left_out.append(name)
    return left_out


def spare_the_loop() -> None:
    """Keep what runs beside the loop from making it wait: the search for garbage, and threads that hold on."""
    _spare_the_collector()
    take_short_turns()


def _spare_the_collector() -> None:
    """Take what a start has made out of Python's search for garbage, and let it begin a search less often.

    Otherwise each full search walks over all modules and prices while calls wait: tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_UNTIL_SEARCH)


def _is_known(function: Any, digest: str) -> bool:
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return False
    return hashlib.sha256(source.encode()).hexdigest().startswith(digest)


class Dispatch:
    """Calls the addons that have a hook, in the chain's order, from a list that is made once for each chain.

    An addon with addons of its own is asked anew each time: it may have others by then.
    """

    def __init__(self, addons: AddonManager) -> None:
        self._addons = addons
        self._chain: list[object] = []
        self._groups: dict[str, list[list[Handler] | object]] = {}

    async def handle_lifecycle(self, event: hooks.Hook) -> None:
        """Trigger an event and, where it is about a flow, the update that follows it."""
        message = event.args()[0]
        await self.trigger_event(event)
        if isinstance(message, Flow) and self._handlers("update"):
            await self.trigger_event(hooks.UpdateHook([message]))

    async def trigger_event(self, event: hooks.Hook) -> None:
        """Trigger an event: one top-level addon after the other, an error in one being logged and left behind."""
        arguments = event.args()
        for group in self._handlers(event.name):
            try:
                if not isinstance(group, list):
                    await self._addons.invoke_addon(group, event)
                    continue
                for handler in group:
                    result = handler(*arguments)
                    if result is not None and isawaitable(result):
                        await result
            except AddonHalt:
                return
            except Exception:
                with safecall():
                    raise

    def _handlers(self, name: str) -> list[list[Handler] | object]:
        if self._addons.chain != self._chain:
            self._chain = list(self._addons.chain)
            self._groups = {}
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = list(_groups(self._chain, name))
        return found


def _groups(chain: Iterable[object], name: str) -> Iterable[list[Handler] | object]:
    """Give what handles an event, by top-level addon: its bound method, or an addon that has to be asked anew."""
    for addon in chain:
        handler = getattr(addon, name, None)
        if hasattr(addon, "addons") or (handler and not callable(handler)):
            yield addon
        elif handler:
            yield [handler]


def _quicken_dispatch(addons: AddonManager) -> None:
    dispatch = Dispatch(addons)
    addons.handle_lifecycle = dispatch.handle_lifecycle  # type: ignore[method-assign]
    addons.trigger_event = dispatch.trigger_event  # type: ignore[method-assign]


def _quicken_arguments() -> None:
    names: dict[type, list[str]] = {}

    def args(self: Any) -> list[Any]:
        kind = type(self)
        if kind not in names:
            names[kind] = [field.name for field in fields(self)]
        return [getattr(self, name) for name in names[kind]]

    hooks.Hook.args = args  # type: ignore[method-assign]


def _quicken_options() -> None:
    def current(self: optmanager._Option) -> Any:
        value = self._default if self.value is optmanager.unset else self.value
        return value if type(value) in _PLAIN else copy.deepcopy(value)

    optmanager._Option.current = current  # type: ignore[method-assign]


def _quicken_headers() -> None:
    def get_all(self: http.Headers, name: str | bytes) -> list[str]:
        key = http._always_bytes(name).lower()
        return [value.decode("utf-8", "surrogateescape") for field, value in self.fields if field.lower() == key]

    def get(self: http.Headers, name: str | bytes, default: Any = None) -> Any:
        values = get_all(self, name)
        return ", ".join(values) if values else default

    def __contains__(self: http.Headers, name: str | bytes) -> bool:
        key = http._always_bytes(name).lower()
        for field, _ in self.fields:  # noqa: SIM110 - a third of the time that a generator takes
            if field.lower() == key:
                return True
        return False

    http.Headers.get_all = get_all  # type: ignore[method-assign]
    http.Headers.get = get  # type: ignore[assignment,method-assign]
    http.Headers.__contains__ = __contains__  # type: ignore[assignment,method-assign]


def _drop_checks() -> None:
    """Let messages be made without a check of each field's type, as `python -O` does."""

    def __post_init__(self: http.MessageData) -> None:
        return

    http.MessageData.__post_init__ = __post_init__  # type: ignore[method-assign]
