"""Whose key a command calls with: the one of `LOCKPIN_KEY`, as the ledger knows it, or a token in its place."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from lockpin_core import oidc
from lockpin_core.call import Payers
from lockpin_core.clock import utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.keys import KeyRecord, digest_of
from lockpin_core.ledger.reader import LedgerReader

KEY = "LOCKPIN_KEY"  # the variable with a user's own key, for `env` and `run`

type Known = KeyRecord | oidc.Caller


def good_caller(reader: LedgerReader | None, config: Config, environment: Mapping[str, str]) -> Known | None:
    """Give whose key or token the environment has; None: it has none, or a token whose issuer the configuration is not.

    `reader` None: there is no ledger yet, and so no key. A token is taken at its word: the proxy alone can check it,
    and whoever gives commands may name any user anyway.
    Raises CommandError where the key is not good, or the token names nobody.
    """
    secret = environment.get(KEY, "").strip()
    if not secret or (config.oidc is None and oidc.is_token(secret)):
        return None
    if config.oidc is not None and oidc.is_for(secret, config.oidc):
        try:
            return oidc.claimed(secret, config.oidc)
        except oidc.TokenError as error:
            raise CommandError(f"the token in {KEY} is not taken: {error}; get a new one") from None
    found = None if reader is None else reader.key(digest_of(secret), now=utc_now())
    if found is None or found.over is not None:
        state = "not known" if found is None else found.over
        raise CommandError(f"the key in {KEY} is {state} in {config.ledger}; `lockpin key list` shows those there are")
    return found


def caller(reader: LedgerReader, config: Config, environment: Mapping[str, str]) -> Known | None:
    """Give whose key or token the environment has in team mode, good or not any more; None: nobody knows it."""
    secret = environment.get(KEY, "").strip()
    if config.mode != "team" or not secret:
        return None
    if config.oidc is not None and oidc.is_for(secret, config.oidc):
        try:
            return oidc.claimed(secret, config.oidc)
        except oidc.TokenError:
            return None
    return reader.key(digest_of(secret), now=utc_now())


def payers_of(task: str, caller: Known | None) -> Payers:
    """Say whom a command's calls are charged to, as far as it is known."""
    if caller is None:
        return Payers(task, socket.gethostname())
    if isinstance(caller, oidc.Caller):
        return Payers(task, socket.gethostname(), user=caller.user, groups=caller.groups, ring=caller.ring)
    return Payers(
        task, socket.gethostname(), key=caller.id, user=caller.user, team=caller.team, groups=caller.groups,
        ring=caller.ring, project=caller.project, tags=caller.tags,
    )  # fmt: skip
