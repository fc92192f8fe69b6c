"""What Lockpin changes in a chat or a completion that leaves: its output limit, and whether its stream states usage.

Source: OpenAI's references of both, `stream_options.include_usage`, read 2026-11. Knows no prices.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockpin_core.call import Rewrite
from lockpin_core.wire.splice import Splice

OPTIONS = "stream_options"


def rewritten(
    body: Splice, change: Rewrite, limits: Mapping[str, bytes] | None = None, names: Mapping[str, str] | None = None
) -> bytes:
    """Give the body with these output limits and names, and with usage asked for beside the client's own options."""
    values = dict(limits or {})
    if change.ask_usage:
        options = body.get(OPTIONS) or b"{}"
        given = Splice.of(options if options.startswith(b"{") else b"{}")
        values[OPTIONS] = given.having({"include_usage": b"true"})
    return body.having(values, names)
