"""What Amazon Bedrock's own formats share: the model that a path names, counts. Knows no prices, no I/O.

The path names a model, an inference profile (`us.`, `eu.`, `global.` before the model's name) or an ARN. The ARN of a
model or of a profile that Amazon defines ends in that name; what stands behind any other is known to the customer
alone, and its price to nobody but him. Source: Amazon Bedrock's API reference, `modelId` of Converse and InvokeModel,
and its guide to inference profiles, read 2026-11.
"""

from __future__ import annotations

import re

from lockpin_core.call import Request
from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import model_name
from lockpin_core.wire.replies import UnreadableCount, count, read_object, word
from lockpin_core.wire.tally import unpriced

LATENCY = "x-amzn-bedrock-performanceconfig-latency"
TIER = "x-amzn-bedrock-service-tier"
_ARN = re.compile(r"arn:[a-z-]+:bedrock:[a-z0-9-]*:[0-9]*:(?P<kind>[a-z-]+)/(?P<id>.+)")
_OPEN = ("foundation-model", "inference-profile")  # kinds of ARN that end in a name of Amazon's
_ANTHROPIC = re.compile(r"(?:[a-z-]+\.)?anthropic\.")


def bedrock_model(request: Request) -> str:
    """Give the name of the model that the path names. Raises WireError, also for a prompt that is kept elsewhere."""
    name = model_name(request.path_model)
    found = _ARN.fullmatch(name)
    if found is not None and found["kind"] == "prompt":
        unpriced("a prompt that Amazon keeps (its text, its model and its limits stand there)")
    return found["id"] if found is not None and found["kind"] in _OPEN else name


def is_claude(name: str) -> bool:
    """Say whether a name is that of a model of Anthropic's."""
    return _ANTHROPIC.match(name) is not None


def is_opaque(name: str) -> bool:
    """Say whether a name tells nothing of the model behind it."""
    return name.startswith("arn:")


def streams(request: Request) -> bool:
    """Say whether the path asks for a stream."""
    return request.path.rstrip("/").lower().endswith(("/converse-stream", "/invoke-with-response-stream"))


def count_path(request: Request) -> str | None:
    """Give the path that counts a prompt's tokens for nothing: of the model itself, whatever profile serves it.

    It counts for Anthropic's models. Source: Amazon Bedrock's API reference of CountTokens, read 2026-11.
    """
    try:
        name = bedrock_model(request)
    except WireError:
        return None
    return f"/model/{name[name.index('anthropic.') :]}/count-tokens" if is_claude(name) else None


def stated_count(body: bytes) -> int | None:
    """Read `inputTokens` of a counting endpoint's answer; None: it says nothing. Never raises."""
    found = (read_object(body) or {}).get("inputTokens")
    try:
        return None if found is None else count(found)
    except UnreadableCount:
        return None


def bedrock_error(body: bytes) -> str | None:
    """Give the name of an error where its body has it; None where it stands in a header. Never raises."""
    return word((read_object(body) or {}).get("__type"))
