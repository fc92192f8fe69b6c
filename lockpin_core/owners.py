"""Who an `Authorization` header stands for, as far as it says so the same way in every request.

Some of them are new with each request, or each hour: a signature, a token. Then what stays of them counts: AWS's access
key, the issuer and the subject of a JSON web token, the project in the path that one of Google's tokens is sent to.
None of it is proved here, and need not be. It finds calls of one's own by the provider's id, which nobody can guess,
and only a 2xx reply settles one: the provider has looked at the token, and shows a reply to nobody else. Sources: AWS's
reference of Signature Version 4, `Credential`; Microsoft's of access tokens, `iss`, `oid`, `sub`; read 2026-11.
"""

from __future__ import annotations

import base64
import json
import re

_KEY = re.compile(r"AWS4-[^ ]+ .*?\bCredential=([^/,\s]+)/")
_JWT = re.compile(r"Bearer [\w-]+\.([\w-]+)\.[\w-]*", re.IGNORECASE | re.ASCII)
_GOOGLE = re.compile(r"Bearer ya29\.", re.IGNORECASE)
_PROJECT = re.compile(r"/projects/([^/?]+)")


def owner_of(authorization: str, path: str) -> str:
    """Give what stays the same of a header from request to request; all of it where nothing else is known to."""
    if key := _KEY.match(authorization):
        return f"aws {key[1]}"
    if token := _JWT.fullmatch(authorization):
        return _subject(token[1]) or authorization
    if _GOOGLE.match(authorization) and (project := _PROJECT.search(path)):
        return f"google {project[1]}"
    return authorization


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
