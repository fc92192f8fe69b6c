"""The certificates that clients must trust: mitmproxy's own, alone and in a bundle with the public ones.

Most clients let their variable replace their store, so they get a bundle; it lies beside mitmproxy's certificate.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import certifi

from lockpin_core.errors import LockpinError

AUTHORITY = "mitmproxy-ca-cert.pem"  # made by mitmproxy when it first starts; holds no key
BUNDLE = "lockpin-ca-bundle.pem"
NODE_BUNDLE = "lockpin-node-ca.pem"
_DEBIAN_STORE = "/etc/ssl/certs/ca-certificates.crt"  # OpenSSL itself reads the folder only
REPLACING = ("SSL_CERT_FILE", "CODEX_CA_CERTIFICATE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
FOLDERS = "SSL_CERT_DIR"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL)
_READABLE = 0o644  # certificates are public


@dataclass(frozen=True, slots=True)
class Trust:
    """The files: mitmproxy's certificate, the bundle, and what Node adds to its own store."""

    authority: Path
    bundle: Path
    node: Path


def trust(folder: Path, others: Iterable[Path], node: Path | None = None) -> Trust:
    """Find mitmproxy's certificate in its folder and write the bundle with the stores `others` beside it.

    `node` is what Node adds now; its certificates stay, in a file of their own. Raises LockpinError where there is no
    certificate yet, or a file cannot be read or written.
    """
    authority = folder / AUTHORITY
    try:
        if not authority.exists():
            raise LockpinError(f"there is no CA yet at {authority}; start `lockpin up` once, it makes one")
        own = _certificates(authority)
        if not own:
            raise LockpinError(f"{authority} holds no certificate; remove it and start `lockpin up`, it makes one")
        bundle = _bundle(folder / BUNDLE, own, others)
        has_more = node is not None and node != bundle and _known([node], folder)
        more = _bundle(folder / NODE_BUNDLE, own, [node]) if node is not None and has_more else authority
        return Trust(authority, bundle, more)
    except OSError as error:
        raise LockpinError(f"{error.filename}: {error.strerror}; it must be readable, its folder writable") from error


def stores(environment: Mapping[str, str]) -> list[Path]:
    """List the files and folders of certificates that clients trust now: certifi's, the system's and the user's.

    Among them may be a company's own. They may be absent, or be our own bundle.
    """
    paths = ssl.get_default_verify_paths()
    system = [paths.cafile, paths.openssl_cafile, _DEBIAN_STORE]
    folders = environment.get(FOLDERS, "").split(os.pathsep)
    users = [*(environment.get(name) for name in REPLACING), *folders]
    return [Path(certifi.where()), *(Path(path) for path in (*system, *users) if path)]


def _bundle(path: Path, own: Sequence[str], others: Iterable[Path]) -> Path:
    _write(path, "\n".join(dict.fromkeys([*own, *_known(others, path.parent)])) + "\n")
    return path


def _known(stores: Iterable[Path], folder: Path) -> list[str]:
    """Read the certificates of stores that are there; of a bundle of ours what it holds besides mitmproxy's own."""
    ours = (folder / AUTHORITY, folder / BUNDLE, folder / NODE_BUNDLE)
    known: list[str] = []
    for store in stores:
        for path in _files(store):
            known += _certificates(path)[1:] if path in ours else _certificates(path)
    return known


def _files(store: Path) -> list[Path]:
    if store.is_dir():
        return [path for path in sorted(store.iterdir()) if path.is_file() and os.access(path, os.R_OK)]
    return [store] if store.is_file() else []


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
