"""What people write into the ledger in words of their own: names of tasks, budgets and users, reasons, who they are.

One rule for every place where somebody says one, so that no table, file or terminal is broken by it later, nor
has a secret in it.
"""

from __future__ import annotations

import unicodedata

from lockpin_core.secret_forms import NO_SECRET, holds_secret, without_secrets

NAME_MAX = 128
ALLOWED = f"1 to {NAME_MAX} printable characters without a slash, and not . or .. alone"

REASON_MAX = 500
REASON_ALLOWED = f"1 to {REASON_MAX} printable characters"

USER_MAX = 256
USER_ALLOWED = f"1 to {USER_MAX} printable characters"

TAGS_MAX = 16  # of one call: a budget of tags may have an account for each
TAG_ALLOWED = f"each of 1 to {NAME_MAX} printable characters without a comma"

_DOTS = (".", "..")  # in a base URL these are no names: clients take them out of the path before they send it


def canonical(text: str) -> str | None:
    """Give a name in its one form, NFC and without space around it; None: nothing may be called so."""
    if len(text) > 4 * NAME_MAX:
        return None  # a long row of marks takes long to normalise
    name = unicodedata.normalize("NFC", text).strip(" ")
    is_allowed = 1 <= len(name) <= NAME_MAX and name.isprintable() and "/" not in name and name not in _DOTS
    return name if is_allowed and not holds_secret(name) else None


def canonical_tag(text: str) -> tuple[str, str] | None:
    """Read a tag, "k=v", into its one form; None: it is no tag.

    A comma parts tags in `X-Lockpin-Tag`, so none may have one; a slash is as good as any letter.
    """
    if len(text) > 8 * NAME_MAX:
        return None
    key, equals, value = (part.strip(" ") for part in unicodedata.normalize("NFC", text).partition("="))
    is_allowed = equals and all(1 <= len(part) <= NAME_MAX and part.isprintable() for part in (key, value))
    return (key, value) if is_allowed and "," not in text and not holds_secret(text) else None


def canonical_user(text: str) -> str | None:
    """Give a user's id in its one form, in small letters and without space around it; None: nobody may be called so.

    A letter is made small only where the two are each other's one partner. The Kelvin sign is no `k` and `ſ` no `s`,
    and nothing is composed either, for NFC writes the Kelvin sign as `K`: a look-alike stays another user.
    """
    if len(text) > 4 * USER_MAX:
        return None
    user = "".join(map(_small, text.strip()))
    is_allowed = 1 <= len(user) <= USER_MAX and user.isprintable()
    return user if is_allowed and not holds_secret(user) and not holds_secret(text) else None


def _small(letter: str) -> str:
    small = letter.lower()
    return small if len(small) == 1 and small.upper() == letter else letter


def reason(text: str) -> str | None:
    """Give a reason as one line; None: it says nothing, or has what no terminal should be told."""
    words = " ".join(text.split())
    return words if 1 <= len(words) <= REASON_MAX and words.isprintable() and not holds_secret(words) else None


def why_not(what: str, text: str, allowed: str) -> str:
    """Say in one line why something may not be called so; what has a secret in it is not repeated."""
    if holds_secret(text):
        return f"the {what} {NO_SECRET}"
    return f'{what} "{shown(text, 40)}" is not allowed; {allowed} are'


def shown(text: str, longest: int = NAME_MAX) -> str:
    """Give a text of which nothing is known as it may stand in a line: without secrets, shortened, and escaped."""
    text = without_secrets(text)
    cut = text if len(text) <= longest else f"{text[:longest]}…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in cut)
