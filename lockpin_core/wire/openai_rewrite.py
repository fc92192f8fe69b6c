"""What Lockpin changes in a chat or a completion that leaves: its output limit, and whether its stream states usage.

Source: OpenAI's references of both, `stream_options.include_usage`, read 2026-11. Knows no prices.
"""

from __future__ import annotations

from lockpin_core.call import Rewrite
from lockpin_core.wire.splice import Splice, lowered

OPTIONS = "stream_options"


def rewritten(body: Splice, change: Rewrite, limit_field: str) -> bytes:
    """Give the body with an output limit in this field, and with usage asked for beside the client's own options."""
    values = {}
    limit = None if change.max_output is None else lowered(body.get(limit_field), change.max_output)
    if limit is not None:
        values[limit_field] = limit
    if change.ask_usage:
        options = body.get(OPTIONS) or b"{}"
        given = Splice.of(options if options.startswith(b"{") else b"{}")
        values[OPTIONS] = given.having({"include_usage": b"true"})
    return body.having(values)
