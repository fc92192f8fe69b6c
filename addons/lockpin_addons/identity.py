"""Who a call is charged to, in solo mode: from headers, the CONNECT's credentials, the path, a client's session."""

from __future__ import annotations

import base64
import binascii
import re
import socket
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from urllib.parse import unquote

from mitmproxy import http

from lockpin_core.call import Payers
from lockpin_core.clients import client_of
from lockpin_core.names import ALLOWED, TAG_ALLOWED, TAGS_MAX, canonical, canonical_tag
from lockpin_core.secret_forms import NO_SECRET, holds_secret

MACHINE = socket.gethostname()
MAX_HEADER_BYTES = 8 * 1024
OWN_PREFIX = b"x-lockpin-"
PROXY_HEADERS = (b"proxy-authorization", b"proxy-connection")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What proxy credentials say: the task as the user name, and a password."""

    user: str
    password: str = field(repr=False)


class IdentityError(Exception):
    """Why nobody can be charged: a header of ours that does not parse, or names nobody; the message is one clear line.

    `code` is one of SPEC's refusal codes.
    """

    def __init__(self, message: str, code: str = "bad_request") -> None:
        super().__init__(message)
        self.code = code


def read_payers(headers: http.Headers, lowered: Mapping[str, str], *, proxy_user: str | None, path_task: str | None,
                default_task: str, from_session: bool) -> Payers:  # fmt: skip
    """Name the payers of a request; `lowered` are its headers by lower-case name.

    Raises IdentityError; nothing is ever half applied.
    """
    own = own_headers(headers)
    coded = own.get("x-lockpin-task", path_task if proxy_user is None else None)
    # A client decodes the user name of a proxy's URL itself.
    task, what = unquote(coded) if coded is not None else proxy_user, "the task's name"
    if task is None and from_session:
        task, what = _session(lowered), "the session id, which names the task,"
    return Payers(
        task=_name(task, what) if task is not None else default_task,
        machine=MACHINE,
        project=_name(own["x-lockpin-project"], "X-Lockpin-Project") if "x-lockpin-project" in own else None,
        tags=_tags(own.get("x-lockpin-tag")),
    )


def own_headers(headers: http.Headers) -> Mapping[str, str]:
    """Read the X-Lockpin-* headers. Raises IdentityError where one is too long, twice there, or no plain text."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers.fields:
        if not raw_name.lower().startswith(OWN_PREFIX):
            continue
        name = raw_name.decode("latin-1").lower()
        if len(raw_name) + len(raw_value) > MAX_HEADER_BYTES:
            raise IdentityError(f"header {name[:64]} is longer than {MAX_HEADER_BYTES} bytes")
        if name in found:
            raise IdentityError(f"header {name} is there twice; once is allowed")
        try:
            found[name] = raw_value.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise IdentityError(f"header {name} is not UTF-8 text") from None
    return found


def refuse_too_many(tags: Sized) -> None:
    """Raise IdentityError where a call has more tags than it may, its key's own among them."""
    if len(tags) > TAGS_MAX:
        raise IdentityError(f"the call has more than {TAGS_MAX} tags; up to {TAGS_MAX} are allowed, its key's own too")


def strip_own(headers: http.Headers) -> None:
    """Take out what is for Lockpin alone: it never leaves."""
    headers.fields = tuple(
        (name, value)
        for name, value in headers.fields
        if not (lower := name.lower()).startswith(OWN_PREFIX) and lower not in PROXY_HEADERS
    )


def proxy_credentials(headers: Mapping[str, str]) -> Credentials | None:
    """Read basic proxy credentials; None where there are none. Raises IdentityError.

    An empty user name is as bad a name as any: it is what an address says whose variable was not set.
    """
    value = headers.get("proxy-authorization")
    if value is None:
        return None
    scheme, _, encoded = value.strip().partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (ValueError, binascii.Error):
        raise IdentityError("the proxy credentials are not basic credentials in UTF-8") from None
    user, _, password = text.partition(":")
    return Credentials(user, password)


def client_product(headers: Mapping[str, str]) -> str:
    """Give the product of the user agent ("claude-cli/2.1.197"); no more of it is kept."""
    return re.sub(r"[^\x21-\x7e]", "", headers.get("user-agent", "").split(" ", 1)[0])[:64]


def _session(headers: Mapping[str, str]) -> str | None:
    return headers.get(client_of(headers).session_header or "") or None


def _name(raw: str, what: str) -> str:
    name = canonical(raw)
    if name is None:
        raise IdentityError(f"{what} {NO_SECRET if holds_secret(raw) else f'must be {ALLOWED}'}")
    return name


def _tags(raw: str | None) -> tuple[tuple[str, str], ...]:
    tags: dict[str, str] = {}
    for part in [] if raw is None else raw.split(","):
        tag = canonical_tag(part)
        if tag is None and holds_secret(part):
            raise IdentityError(f"header x-lockpin-tag {NO_SECRET}")
        if tag is None:
            raise IdentityError(f"header x-lockpin-tag must read k=v, k2=v2; {TAG_ALLOWED}")
        if tags.setdefault(*tag) != tag[1]:
            raise IdentityError("header x-lockpin-tag names one key twice")
        refuse_too_many(tags)
    return tuple(sorted(tags.items()))
