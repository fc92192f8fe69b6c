"""Named errors of the core. Expected outcomes (over budget, unknown model) are return values and not here."""

from __future__ import annotations


class LockpinError(Exception):
    """An error whose message is one clear line for the person who caused or meets it."""

    is_plain = True  # the entry script, which imports nothing of ours, knows it by this


class WireError(LockpinError):
    """A request that a wire cannot read or cannot bound.

    `code` is one of SPEC's refusal codes: "bad_request" (400), "unpriced_tool" (400), "too_large" (413).
    """

    def __init__(self, message: str, code: str = "bad_request") -> None:
        super().__init__(message)
        self.code = code


class ConfigError(LockpinError):
    """A configuration that cannot be used; the message names file, line, key, value and what is allowed."""


class PriceError(LockpinError):
    """A price table that cannot be used; the message names the entry and the way out."""


class UnpricedError(LockpinError):
    """A unit, tier or model with no known price at the place where one is needed."""


class LedgerError(LockpinError):
    """The ledger cannot be opened as asked: newer schema, network file system, unreadable, not a ledger."""


class LedgerUnavailable(LockpinError):
    """The ledger cannot be written or read just now; what was asked has not happened."""


class CommandError(LockpinError):
    """A change that cannot be made as asked; the message names the thing, the value and the way out."""
