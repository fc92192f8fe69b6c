"""Whose key a command calls with: the one of `LOCKPIN_KEY`, as the ledger knows it."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from lockpin_core.call import Payers
from lockpin_core.clock import utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.keys import KeyRecord, digest_of
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.oidc import is_for, is_token

KEY = "LOCKPIN_KEY"  # the variable with a user's own key, for `env` and `run`


def good_caller(reader: LedgerReader, config: Config, environment: Mapping[str, str]) -> KeyRecord | None:
    """Give the key that the environment has; None: none, or it is a token, which the proxy alone can check.

    Raises CommandError where the key is not good.
    """
    secret = environment.get(KEY, "").strip()
    if not secret or (is_token(secret) if config.oidc is None else is_for(secret, config.oidc)):
        return None
    found = reader.key(digest_of(secret), now=utc_now())
    if found is None or found.over is not None:
        state = "not known" if found is None else found.over
        raise CommandError(f"the key in {KEY} is {state} in {config.ledger}; `lockpin key list` shows those there are")
    return found


def caller(reader: LedgerReader, config: Config, environment: Mapping[str, str]) -> KeyRecord | None:
    """Give the key that the environment has in team mode, good or not any more; None: nobody knows it."""
    secret = environment.get(KEY, "").strip()
    return reader.key(digest_of(secret), now=utc_now()) if config.mode == "team" and secret else None


def payers_of(task: str, caller: KeyRecord | None) -> Payers:
    """Say whom a command's calls are charged to, as far as it is known."""
    if caller is None:
        return Payers(task, socket.gethostname())
    return Payers(
        task, socket.gethostname(), key=caller.id, user=caller.user, team=caller.team, groups=caller.groups,
        ring=caller.ring, project=caller.project, tags=caller.tags,
    )  # fmt: skip
