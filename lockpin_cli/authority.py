"""The certificates that clients must trust: mitmproxy's own, alone and in a bundle with the public ones.

Most clients let their variable replace their store, so they get a bundle; it lies beside mitmproxy's certificate.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import certifi

from lockpin_core.errors import LockpinError

AUTHORITY = "mitmproxy-ca-cert.pem"  # made by mitmproxy when it first starts; holds no key
BUNDLE = "lockpin-ca-bundle.pem"
_DEBIAN_STORE = "/etc/ssl/certs/ca-certificates.crt"  # OpenSSL itself reads the folder only
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL)
_READABLE = 0o644  # certificates are public


@dataclass(frozen=True, slots=True)
class Trust:
    """The two files."""

    authority: Path
    bundle: Path


def trust(folder: Path, others: Iterable[Path]) -> Trust:
    """Find mitmproxy's certificate in its folder and write the bundle with the stores `others` beside it.

    Raises LockpinError where there is no certificate yet, or a file cannot be read or written.
    """
    found = Trust(folder / AUTHORITY, folder / BUNDLE)
    if not found.authority.exists():
        raise LockpinError(f"there is no CA yet at {found.authority}; start `lockpin up` once, it makes one")
    try:
        own = _certificates(found.authority)
        if not own:
            raise LockpinError(
                f"{found.authority} holds no certificate; remove it and start `lockpin up`, it makes one"
            )
        stores = [path for path in others if path != found.bundle and path.is_file()]
        known = [certificate for path in stores for certificate in _certificates(path)]
        _write(found.bundle, "\n".join(dict.fromkeys([*own, *known])) + "\n")
    except OSError as error:
        raise LockpinError(f"{error.filename}: {error.strerror}; it must be readable, its folder writable") from error
    return found


def public_stores() -> list[Path]:
    """List the stores of public certificates: certifi's, and those of the system and user, which may know a company's.

    They may be absent, or be our own bundle.
    """
    paths = ssl.get_default_verify_paths()
    system = [paths.cafile, paths.openssl_cafile, _DEBIAN_STORE]
    return [Path(certifi.where()), *(Path(path) for path in system if path)]


def _certificates(path: Path) -> list[str]:
    return _CERTIFICATE.findall(path.read_text("utf-8", errors="replace"))


def _write(path: Path, content: str) -> None:
    """Write a whole file at once; clients that read it meanwhile see the old one or the new one."""
    if path.exists() and path.read_text("utf-8", errors="replace") == content:
        return
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        Path(draft).chmod(_READABLE)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
