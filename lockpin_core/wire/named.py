"""The same call to another model: named where the request names its model, in the body, in the path, or in both.

Knows no prices, no I/O.
"""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import quote

from lockpin_core.call import Request
from lockpin_core.wire.jsonbody import json_text
from lockpin_core.wire.signatures import is_signed
from lockpin_core.wire.splice import Splice

_ARN = "arn:"  # a name of Amazon's, which may have slashes in it
_BEFORE = "(?:(?<=/models/)|(?<=/model/)|(?<=/deployments/))"  # where paths name a model


def with_model(request: Request, model: str) -> Request | None:
    """Give the call to another model; None: it is signed, or the name cannot stand where the request has it."""
    if is_signed(request):
        return None
    if request.path_model is None:
        return replace(request, body=body_naming(request.body, model))
    path = _path_naming(request.path, request.path_model, model)
    if path is None:
        return None
    body = request.body
    if (Splice.of(body).get("model") or b"").startswith(b'"'):
        body = body_naming(body, model)
    return replace(request, path=path, path_model=model, body=body)


def body_naming(body: bytes, model: str) -> bytes:
    """Give a body in which the member `model` says another one; every other byte stays."""
    return Splice.of(body).having({"model": json_text(model, escaped=True).encode()})


def _path_naming(path: str, old: str, new: str) -> str | None:
    """Put a name in the place of the one that a path has, in whichever spelling."""
    if "/" in new and not new.startswith(_ARN):
        return None
    spelled = "".join(f"(?:{re.escape(one)}|{quote(one, safe='')})" for one in old)
    found = re.search(f"{_BEFORE}{spelled}(?=/|:|%3A|$)", path, re.IGNORECASE)
    return None if found is None else f"{path[: found.start()]}{quote(new, safe='')}{path[found.end() :]}"
