"""Refusals in the error shapes of the formats (SPEC §8). Knows JSON; knows no reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockpin_core.call import Refusal, Reply
from lockpin_core.jsontext import dumps

# What each provider calls a quota that is used up, by its error shape (`refusal: provider`).
QUOTA_CODES = {
    "openai": "insufficient_quota",
    "anthropic": "rate_limit_error",
    "gemini": "RESOURCE_EXHAUSTED",
    "bedrock": "ThrottlingException",
}
# What Google calls an error of each status; where ours is none of its own, the one that its clients do not retry.
_GOOGLE_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
# What Amazon calls an error of each status: its SDKs raise it by this name, and retry none but the last three.
_AMAZON_ERROR = {
    401: "AccessDeniedException",
    402: "ServiceQuotaExceededException",
    403: "AccessDeniedException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
_MAY_WAIT = (429, 503)  # SDKs sleep as long as Retry-After says, so it goes only where waiting is meant


def openai_refusal(refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
    """Put a refusal into the error shape of OpenAI and of most that speak like it."""
    error = {"code": refusal.code, "message": refusal.message, "param": None, "type": refusal.code}
    return _reply(refusal, {"error": error, "lockpin": lockpin})


def anthropic_refusal(refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
    """Put a refusal into Anthropic's error shape."""
    error = {"type": refusal.code, "message": refusal.message}
    return _reply(refusal, {"type": "error", "error": error, "lockpin": lockpin})


def gemini_refusal(refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
    """Put a refusal into the error shape of Google's services."""
    status = _GOOGLE_STATUS.get(refusal.status, "FAILED_PRECONDITION")
    error = {"code": refusal.status, "message": refusal.message, "status": status}
    return _reply(refusal, {"error": error, "lockpin": lockpin})


def bedrock_refusal(refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
    """Put a refusal into the error shape of Amazon Bedrock, which names the error in a header."""
    reply = _reply(refusal, {"message": refusal.message, "lockpin": lockpin})
    name = _AMAZON_ERROR.get(refusal.status, "ValidationException")
    return replace(reply, headers={**reply.headers, "x-amzn-errortype": name})


def failed_response(refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
    """Put a refusal into a Responses stream that ends as failed, for a client that does not retry that."""
    response: dict[str, object] = {
        "id": f"resp_{lockpin.get('call', '')}",
        "object": "response",
        "status": "failed",
        "error": {"code": "invalid_prompt", "message": refusal.message},
        "output": [],
        "usage": None,
    }
    event = {"type": "response.failed", "sequence_number": 0, "response": response, "lockpin": lockpin}
    body = f"event: response.failed\ndata: {dumps(event)}\n\n".encode()
    return Reply(200, {"content-type": "text/event-stream", "x-should-retry": "false"}, body)


def _reply(refusal: Refusal, body: Mapping[str, object]) -> Reply:
    headers = {"content-type": "application/json"}
    if refusal.status != 503:
        headers["x-should-retry"] = "false"
    if refusal.status in _MAY_WAIT and refusal.retry_after_s is not None:
        headers["retry-after"] = str(refusal.retry_after_s)
    return Reply(refusal.status, headers, dumps(body).encode())
