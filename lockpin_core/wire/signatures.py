"""Whether a request is signed, so that its body must leave byte for byte. Knows AWS's signatures; no formats, no I/O.

The signature stands in a header, or in the query of an address that was signed beforehand; either way it covers the
body. Source: AWS's reference of Signature Version 4, its header and its query parameters, read 2026-11.
"""

from __future__ import annotations

from urllib.parse import unquote

from lockpin_core.call import Request

_SIGNED = "aws4-"  # how every version of the signature begins
_PARAMETERS = frozenset({"x-amz-algorithm", "x-amz-signature"})


def is_signed(request: Request) -> bool:
    """Say whether a request is signed."""
    return request.presigned or request.headers.get("authorization", "").strip().lower().startswith(_SIGNED)


def is_presigned(query: str) -> bool:
    """Say whether a query, with its question mark or without, holds a signature, or says how one was made."""
    parts = query.removeprefix("?").split("&") if query else ()
    return any(unquote(part.partition("=")[0]).strip().lower() in _PARAMETERS for part in parts)
