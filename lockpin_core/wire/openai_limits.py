"""The output limit of a chat, which has two names: a host that speaks the format obeys one of them, the other, or both.

A host ignores the name that it does not know, so a limit under it bounds nothing. Knows no prices, no I/O.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import replace

from lockpin_core.call import Request
from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import whole
from lockpin_core.wire.splice import Splice, lowered

LIMITS = ("max_completion_tokens", "max_tokens")


def obeyed(request: Request, model: str) -> tuple[str, ...]:
    """Say under which names the host obeys a limit for this model, first the one that it is set under."""
    name = model.lower()
    found = (fields for glob, fields in request.output_fields if fnmatch.fnmatchcase(name, glob))
    return next(found, LIMITS)


def read_limit(members: Mapping[str, object], heeded: tuple[str, ...]) -> tuple[int | None, int | None]:
    """Read the limit that the host obeys, and one that it does not obey where there is no other. Raises WireError.

    Of a limit under each name the larger one bounds whatever the host does. Where it knows both it refuses that.
    """
    limits = {field: limit for field in LIMITS if (limit := whole(members.get(field), field)) is not None}
    if len(limits) == len(LIMITS) and set(LIMITS) <= set(heeded):
        raise WireError("max_completion_tokens and max_tokens are both set; one of them is allowed")
    most = max(limits.values(), default=None)
    return (most, None) if any(field in limits for field in heeded) else (None, most)


def limits_set(body: Splice, most: int, heeded: tuple[str, ...], own: str) -> tuple[dict[str, bytes], dict[str, str]]:
    """Say how the members that limit the output change, in value and in name: one that the host obeys, none higher.

    It is the one that the client used, first one with a value, else one that is null. One that the host does not obey
    gets the name of the host's own, for hosts that know both refuse them together; else that is put first.
    """
    used = [field for field in LIMITS if body.get(field) is not None]
    valued = [field for field in used if body.get(field) != b"null"]
    kept = [field for field in (*valued, *used) if field in heeded]
    names = {valued[0]: own} if not kept and valued and body.name_span(valued[0]) else {}
    fields = dict.fromkeys((*names, *valued) if names else (kept[0] if kept else own, *valued))
    limits = {field: lowered(body.get(field), most) for field in fields}
    return {field: limit for field, limit in limits.items() if limit is not None}, names


def with_limit_heeded(request: Request, model: str) -> Request:
    """Give the call with its limit under a name that the host obeys for this model; every other byte stays.

    A null is no limit, and keeps its name.
    """
    heeded = obeyed(request, model)
    if not any(field.encode() in request.body for field in LIMITS if field not in heeded):
        return request
    body = Splice.of(request.body)
    if any(field in body.layout.spans for field in heeded):
        return request
    valued = (field for field in LIMITS if body.get(field) not in (None, b"null"))
    names = {field: heeded[0] for field in valued if body.name_span(field)}
    return replace(request, body=body.having({}, names)) if names else request
