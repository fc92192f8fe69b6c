"""Whose call it is: the key, wherever it stands, or whom an `Authorization` header stands for.

Clients send one key in different headers; then the key is what counts. Some headers are new with each request, or each
hour: a signature, a token. Then what stays of them counts: AWS's access key, the issuer and the subject of a JSON web
token, the project in the path that one of Google's tokens is sent to. None of it is proved here, and need not be. It
finds calls of one's own by the provider's id, which nobody can guess, and only a 2xx reply settles one: the provider
has looked at the token, and shows a reply to nobody else. Sources: AWS's reference of Signature Version 4,
`Credential`; Microsoft's of access tokens, `iss`, `oid`, `sub`; read 2026-11.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from urllib.parse import unquote

_KEY = re.compile(r"AWS4-[^ ]+ .*?\bCredential=([^/,\s]+)/")
_JWT = re.compile(r"Bearer [\w-]+\.([\w-]+)\.[\w-]*", re.IGNORECASE | re.ASCII)
_GOOGLE = re.compile(r"Bearer ya29\.", re.IGNORECASE)
_PROJECT = re.compile(r"/projects/([^/?]+)")
_BEARER = re.compile(r"\s*Bearer\s+(\S+)\s*", re.IGNORECASE)
_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")


def account_of(headers: Mapping[str, str], key_query: str, path: str) -> bytes:
    """Digest a caller's credentials, whatever headers they stand in; `key_query` is "?key=…", or empty."""
    said = {unquote(key_query.removeprefix("?key=")), owner_of(headers.get("authorization", ""), path)}
    said |= {headers.get(name, "").strip() for name in _KEY_HEADERS}
    told = "\n".join(sorted(said - {""}))
    return hashlib.sha256(told.encode("utf-8", "surrogateescape")).digest()[:16]


def owner_of(authorization: str, path: str) -> str:
    """Give what stays the same of a header from request to request: all of it, or its key, where nothing else does."""
    if key := _KEY.match(authorization):
        return f"aws {key[1]}"
    if token := _JWT.fullmatch(authorization):
        return _subject(token[1]) or _key(authorization)
    if _GOOGLE.match(authorization) and (project := _PROJECT.search(path)):
        return f"google {project[1]}"
    return _key(authorization)


def _key(authorization: str) -> str:
    key = _BEARER.fullmatch(authorization)
    return authorization.strip() if key is None else key[1]


def _subject(payload: str) -> str | None:
    """Read who issued a token, and to whom; None where it does not say both."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return None
    if not isinstance(claims, dict):
        return None
    issuer, subject = claims.get("iss"), claims.get("oid") or claims.get("sub")
    if not (isinstance(issuer, str) and isinstance(subject, str) and issuer and subject):
        return None
    return f"jwt {json.dumps([issuer, subject])}"
