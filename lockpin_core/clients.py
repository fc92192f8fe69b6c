"""Clients that are known by name: how long they wait, which refusal they show best, how they name a session. Data.

Measured with the clients themselves, 2026-11: Claude Code 2.1, Codex 0.171, Gemini CLI 0.61, opencode 1.18, pi 0.73,
aider 0.86, and the SDKs of OpenAI, Anthropic and Google in Python and JavaScript.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

PATIENCE_S = 50  # of clients that nobody knows: Gemini CLI and boto3 give up after a minute of silence
_LONG_S = 280  # fetch of Node and of Bun gives up after 300 s, Python SDKs after 600 s


@dataclass(frozen=True, slots=True)
class Client:
    """A client and its ways. `agents`: how its user agent or `originator` begins, in lower case.

    `signs`: by which headers besides it is told from others of that name, each by a pattern of the whole value.
    """

    agents: tuple[str, ...]
    session_header: str | None = None  # the id that it sends by itself with each call of a session
    patience_s: int = PATIENCE_S  # silence that it bears before the reply
    refusal: str = "plain"  # "plain": 402 | "at_once": 402 | "failed_response": a stream that ends as failed | "400"
    beside: tuple[str, ...] = ()  # globs of models that it calls beside the chosen one by nature: titles, summaries
    signs: tuple[tuple[str, str], ...] = ()


_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# litellm, and so aider, speaks to OpenAI through its SDK: it asks for raw replies and names a time-out with a fraction.
_LITELLM = (("x-stainless-raw-response", "true"), ("x-stainless-read-timeout", r"[0-9]+\.[0-9]+"))
# pi too; it names its session twice.
_PI = (("session_id", _UUID), ("x-client-request-id", _UUID))
# The first that fits.
CLIENTS = (
    Client(("claude-cli/",), "x-claude-code-session-id", _LONG_S, beside=("*haiku*",)),
    Client(("codex",), "session-id", _LONG_S, "failed_response"),  # it retries a 402 five times
    # It retries a 402 five times, within a minute, where any figure of the refusal has a 429, 500, 502, 503 or 504.
    Client(("opencode/",), "x-session-id", _LONG_S, "at_once", beside=("*haiku*", "*-nano*")),
    Client(("geminicli",), beside=("*flash-lite*",)),
    Client(("aider", "litellm/"), None, _LONG_S, "400"),  # aider retries a 402 for minutes
    Client(("openai/python", "asyncopenai/python"), None, _LONG_S, "400", signs=_LITELLM),
    Client(("openai/js",), "session_id", _LONG_S, signs=_PI),
    Client(("openai/", "asyncopenai/", "anthropic/", "asyncanthropic/"), None, _LONG_S),
)
_SIGNS = [(name, re.compile(pattern)) for client in CLIENTS for name, pattern in client.signs]
_TIMEOUTS = ("x-stainless-read-timeout", "x-stainless-timeout")  # in seconds, or words
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_MARGIN_S = 1.0  # in which the answer reaches it
_UNKNOWN = Client(())
_START = 32  # characters of a name that tell whose it is


def client_of(headers: Mapping[str, str]) -> Client:
    """Find the client by its headers, names in lower case; one that nobody knows is as impatient as the worst."""
    names = headers.get("user-agent", "")[:_START].lower(), headers.get("originator", "")[:_START].lower()
    signs = ((name, pattern.pattern) for name, pattern in _SIGNS if pattern.fullmatch(headers.get(name, "")))
    return _named(names, frozenset(signs))


def patience_s(headers: Mapping[str, str]) -> float:
    """Say how many seconds of silence a client bears before the reply: as it is known to, and no longer than it says.

    The SDKs of OpenAI and Anthropic say after how long they give up, and that is their caller's to set.
    """
    said = [seconds for name in _TIMEOUTS if (seconds := _seconds(headers.get(name, ""))) is not None]
    return max(0.0, min([client_of(headers).patience_s, *(seconds - _MARGIN_S for seconds in said)]))


def _seconds(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


@functools.lru_cache(maxsize=128)
def _named(names: tuple[str, ...], signs: frozenset[tuple[str, str]]) -> Client:
    for client in CLIENTS:
        if signs.issuperset(client.signs) and any(name.startswith(client.agents) for name in names):
            return client
    return _UNKNOWN
