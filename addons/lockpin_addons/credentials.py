"""Which Lockpin key a request presents, and where it stands: in proxy credentials, a header of ours, a provider's slot.

A key of ours never leaves. In base-URL mode it may stand where the provider's own key would, and the real one takes its
place; anywhere else where the provider could see it the call is refused by name. Pure: whose key it is, others say.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote, unquote

from mitmproxy import http

from lockpin_addons.identity import OWN_PREFIX, PROXY_HEADERS, Credentials, IdentityError, own_headers
from lockpin_addons.route import Bound, plain_path, query_of
from lockpin_core.secret_forms import PREFIX, holds_key, holds_token
from lockpin_core.wire.signatures import is_presigned

KEY_HEADER = "x-lockpin-key"
# Where providers take a key. Sources: their references of authentication, read 2026-11.
SLOTS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"cf-aig-authorization")
QUERY_SLOT = "key"
_KEY, _TOKEN = "a Lockpin key", "a token that stands for a Lockpin key"
_SLOT = re.compile(r"(?:(?:bearer|token|key|apikey) +)?(?P<key>[^\s,;]+)", re.IGNORECASE)
_HOW = "give it as the password of the proxy's URL (http://TASK:KEY@HOST:PORT) or as header X-Lockpin-Key"


type IsToken = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Presented:
    """The one key that a request presents; `secret` None: none. `in_slot`: it stands for the provider's own."""

    secret: str | None = field(repr=False)
    in_slot: bool = False


def presented(
    headers: http.Headers, bound: Bound, said: Sequence[Credentials | None], is_token: IsToken = lambda _: False
) -> Presented:
    """Find the key of a request; `said` are proxy credentials, of its connection and its own.

    `is_token` says what else stands for a key: a token that is made for Lockpin. Providers take others.

    Raises IdentityError where two keys differ, one stands where it must not, or a header of ours does not parse.
    """
    own = own_headers(headers)
    told = [one for one in said if one is not None]
    _check_names(told, bound, is_token)
    in_slots = list(_in_slots(headers, bound, is_token))
    secrets = {one.password for one in told if _is_ours(one.password, is_token)} | set(in_slots)
    secrets |= {own[KEY_HEADER]} if KEY_HEADER in own else set()
    _check_elsewhere(headers, bound, is_token)
    if len(secrets) > 1:
        raise IdentityError("the call presents two Lockpin keys that differ; one is allowed", "identity_conflict")
    return Presented(next(iter(secrets), None), in_slot=bool(in_slots))


def is_like_key(text: str) -> bool:
    """Say whether a text is meant as a key of ours, whether or not there is such a one."""
    return text.strip().lower().startswith(PREFIX)


def with_real_key(headers: http.Headers, bound: Bound, secret: str, real: str) -> Bound:
    """Put a provider's own key where ours stands in its slots, and change nothing else; give where the call goes."""
    ours, theirs = secret.encode(), real.encode()
    headers.fields = tuple(
        (name, value.replace(ours, theirs) if name.lower() in SLOTS and _slot_text(value) == secret else value)
        for name, value in headers.fields
    )
    parts = [f"{QUERY_SLOT}={quote(real, safe='')}" if _query_text(part) == secret else part for part in _parts(bound)]
    return replace(bound, path=f"{plain_path(bound)}?{'&'.join(parts)}") if parts else bound


def hide_real_key(headers: http.Headers, real: str) -> None:
    """Take a provider's own key out of a reply's headers: an address that it gives may have the query that was sent."""
    spelled = {real.encode(), quote(real, safe="").encode()}
    if any(one in value for _, value in headers.fields for one in spelled):
        for one in spelled:
            headers.fields = tuple((name, value.replace(one, b"...")) for name, value in headers.fields)


def _in_slots(headers: http.Headers, bound: Bound, is_token: IsToken) -> Iterator[str]:
    """Give each key of ours that stands in a provider's slot. Raises IdentityError where none may."""
    names = [name.lower() for name, _ in headers.fields]
    for name, value in headers.fields:
        if (slot := name.lower()) not in SLOTS:
            continue
        key, shown = _slot_key(value, is_token), slot.decode()
        if bound.by_base_url and value.strip().lower().startswith(b"aws4-"):
            raise _signed()
        if key is None:
            continue
        if not bound.by_base_url:
            raise _misplaced(f"header {shown}, which goes to {bound.host}")
        if names.count(slot) > 1:
            raise IdentityError(f"header {shown} is there twice; once is allowed")
        yield key
    if bound.by_base_url and is_presigned(query_of(bound)):
        raise _signed()
    keys = [key for key in map(_query_text, _parts(bound)) if key is not None and _is_ours(key, is_token)]
    if keys and not bound.by_base_url:
        raise _misplaced(f"the query, which goes to {bound.host}")
    yield from keys


def _check_names(told: Iterable[Credentials], bound: Bound, is_token: IsToken) -> None:
    """Refuse a key where a name belongs: names are kept."""
    for one in told:
        what = _in(one.user, is_token)
        if what is None and is_like_key(one.user) and not is_like_key(one.password):
            what = _KEY
        if what is not None:
            raise IdentityError(f"the user name of the proxy's URL is {what}; write http://TASK:KEY@HOST:PORT")
    if bound.base_task is not None and (what := _in(bound.base_task, is_token)) is not None:
        raise IdentityError(f"{what} stands in the path, where the task's name belongs; {_HOW}")


def _check_elsewhere(headers: http.Headers, bound: Bound, is_token: IsToken) -> None:
    """Refuse a key, or a token that could stand for one, in any other place that is kept, or that the provider sees."""
    for name, value in headers.fields:
        lower = name.lower()
        if (
            lower in PROXY_HEADERS
            or lower == KEY_HEADER.encode()
            or (lower in SLOTS and _slot_key(value, is_token) is not None)
        ):
            continue
        text = value.decode("utf-8", "surrogateescape")
        in_name = _in(name.decode("latin-1"), is_token)
        what = in_name or _in(text, is_token) or _in(_decoded(text), is_token)
        if what is not None:
            shown = "a header's name" if in_name else f"header {_plain(lower)}"
            is_own = lower.startswith(OWN_PREFIX)
            raise _misplaced(shown if is_own else f"{shown}, which goes to {bound.host}", what)
    if (what := _in(plain_path(bound), is_token)) is not None:
        raise _misplaced(f"the path, which goes to {bound.host}", what)
    others = [part for part in _parts(bound) if not (bound.by_base_url and _is_ours(_query_text(part), is_token))]
    for part in [*others, query_of(bound).partition("#")[2]]:
        if (what := _in(part, is_token)) is not None:
            raise _misplaced(f"the query, which goes to {bound.host}", what)


def _in(text: str, is_token: IsToken) -> str | None:
    """Name what stands in a text and must not: a key of ours, or a token, whatever else the call presents."""
    if holds_key(text):
        return _KEY
    return _TOKEN if holds_token(text, is_token) else None


def _misplaced(where: str, what: str = _KEY) -> IdentityError:
    return IdentityError(f"{what} stands in {where}; {_HOW}", "identity_conflict")


def _signed() -> IdentityError:
    return IdentityError(
        "an AWS signature covers the host, so a signed call cannot go by a base URL; go through the proxy, with "
        "HTTPS_PROXY, or give the Lockpin key in place of an API key (Authorization: Bearer)"
    )


def _slot_key(value: bytes, is_token: IsToken) -> str | None:
    found = _slot_text(value)
    return found if _is_ours(found, is_token) else None


def _is_ours(text: str | None, is_token: IsToken) -> bool:
    return text is not None and (is_like_key(text) or is_token(text))


def _slot_text(value: bytes) -> str | None:
    found = _SLOT.fullmatch(value.decode("utf-8", "surrogateescape").strip(" \t"))
    return None if found is None else found["key"]


def _query_text(part: str) -> str | None:
    name, _, value = part.partition("=")
    return unquote(value) if name == QUERY_SLOT else None


def _parts(bound: Bound) -> list[str]:
    query = query_of(bound)
    return query.removeprefix("?").split("&") if query.startswith("?") else []


def _decoded(text: str) -> str:
    """Give what basic credentials say; "" for any other text."""
    scheme, _, encoded = text.strip().partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(encoded.strip()).decode("utf-8", "replace")
    except ValueError:
        return ""


def _plain(name: bytes) -> str:
    return "".join(char if "!" <= char <= "~" else "?" for char in name.decode("latin-1"))[:64]
