"""Refusals in the error shapes of the formats (SPEC §8). Knows JSON; knows no reasons."""

from __future__ import annotations

from collections.abc import Mapping

from lockpin_core.call import Refusal, Reply
from lockpin_core.jsontext import dumps

_MAY_WAIT = (429, 503)  # SDKs sleep as long as Retry-After says, so it goes only where waiting is meant


def openai_refusal(refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
    """Put a refusal into the error shape of OpenAI and of most that speak like it."""
    error = {"code": refusal.code, "message": refusal.message, "param": None, "type": refusal.code}
    return _reply(refusal, {"error": error, "lockpin": lockpin})


def anthropic_refusal(refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
    """Put a refusal into Anthropic's error shape."""
    error = {"type": refusal.code, "message": refusal.message}
    return _reply(refusal, {"type": "error", "error": error, "lockpin": lockpin})


def _reply(refusal: Refusal, body: Mapping[str, object]) -> Reply:
    headers = {"content-type": "application/json"}
    if refusal.status != 503:
        headers["x-should-retry"] = "false"
    if refusal.status in _MAY_WAIT and refusal.retry_after_s is not None:
        headers["retry-after"] = str(refusal.retry_after_s)
    return Reply(refusal.status, headers, dumps(body).encode())
