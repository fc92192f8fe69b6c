"""In what setting a request puts its model: which tools it may call, and what it is told to be. Digests alone.

Knows no format: the members in which a format has either are given to it. Each counts as it is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

from lockpin_core.call import Request, Setting
from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import Body, read_known

_SYSTEM_ROLES = ("system", "developer")


def setting_of(
    request: Request, *, tools: Sequence[str] = ("tools",), system: Sequence[str] = (), inside: str | None = None,
    messages: str | None = None,
) -> Setting | None:  # fmt: skip
    """Digest the tools and the system prompt of a request that was parsed; None: it cannot be read.

    `tools` and `system` are members, `inside` the one that has them all; `messages` is a list of messages, of which the
    first may be for the system.
    """
    try:
        body = read_known(request.body)
        body = body if inside is None else body.inner(inside)
        told = [*_written(body, system), *([] if messages is None else _first(body.members.get(messages)))]
        return Setting(_digest(_written(body, tools)), _digest(told))
    except (ValueError, RecursionError, WireError):
        return None


def _written(body: Body, names: Sequence[str]) -> list[str]:
    return [body.text[slice(*body.spans[name])] for name in names if name in body.spans]


def _first(messages: object) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict) or message.get("role") not in _SYSTEM_ROLES:
            return
        yield json.dumps(message.get("content"))


def _digest(parts: Sequence[str]) -> bytes:
    return hashlib.sha256(b"\0".join(part.encode("utf-8", "surrogatepass") for part in parts)).digest()[:8]
