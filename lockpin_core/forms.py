"""In which form a client gets a refusal: `refusal: auto | lockpin | provider` (SPEC §8). Knows clients and wires.

A form changes status and envelope only; the message and the `lockpin` object stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockpin_core.call import Refusal, Reply
from lockpin_core.clients import Client
from lockpin_core.wire import refusal_shape
from lockpin_core.wire.protocol import Wire
from lockpin_core.wire.refusals import QUOTA_CODES, failed_response

_OF_AMOUNTS = frozenset({"budget_exceeded", "loop_stopped", "spend_rate_exceeded"})  # the others are as they are
_QUOTA = 429


def put(
    refusal: Refusal, lockpin: Mapping[str, object], wire: Wire | None, *, shape: str, setting: str, client: Client
) -> Reply:
    """Make the reply for a refusal in the format that was called; where none was, in the error shape of this name."""
    refuse = refusal_shape(shape) if wire is None else wire.refuse
    if refusal.code not in _OF_AMOUNTS or setting == "lockpin":
        return refuse(refusal, lockpin)
    if setting == "provider":
        code = QUOTA_CODES[shape if wire is None else wire.error_shape]
        seconds = refusal.detail.get("retry_after_s")
        retry_after_s = seconds if isinstance(seconds, int) else None
        return refuse(replace(refusal, status=_QUOTA, code=code, retry_after_s=retry_after_s), lockpin)
    if client.refusal == "failed_response" and wire is not None and wire.name == "openai_responses":
        return failed_response(refusal, lockpin)
    if client.refusal == "400":
        return refuse(replace(refusal, status=400), lockpin)
    reply = refuse(refusal, lockpin)
    return _with_pause(reply, refusal.detail) if client.refusal == "at_once" else reply


def _with_pause(reply: Reply, detail: Mapping[str, object]) -> Reply:
    """Say when a client is to try again that does so whatever we say: once held money may have come free, else at once,
    so that it shows the refusal. `Retry-After`, where there is one, says it already.
    """
    if "retry-after" in reply.headers:
        return reply
    seconds = detail.get("retry_after_s") if detail.get("transient") is True else None
    milliseconds = seconds * 1000 if isinstance(seconds, int) else 0
    return replace(reply, headers={**reply.headers, "retry-after-ms": str(milliseconds)})
