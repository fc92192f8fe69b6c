"""Reads the client certificate that stands for a key: the ledger keeps its fingerprint, as a secret's digest is."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path

from lockpin_core.clock import stamp, utc_now
from lockpin_core.config_secrets import masked_keys
from lockpin_core.errors import CommandError

_MOST_BYTES = 64 << 10


def fingerprint_of(file: Path) -> tuple[bytes, datetime]:
    """Give the SHA-256 of a file's first certificate, PEM or DER, and until when it is good. Raises CommandError."""
    from cryptography import x509  # slow to import, and few keys have a certificate
    from cryptography.hazmat.primitives.serialization import Encoding

    shown = masked_keys(str(file))
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MOST_BYTES)
    except OSError as error:
        raise CommandError(f"{shown}: cannot be read: {error.strerror}") from error
    try:
        found = x509.load_pem_x509_certificate(raw) if b"-----BEGIN" in raw else x509.load_der_x509_certificate(raw)
    except ValueError:
        raise CommandError(f"{shown}: has no certificate; one in PEM or DER is allowed") from None
    until = found.not_valid_after_utc
    if until <= utc_now():
        raise CommandError(f"{shown}: has a certificate that ended at {stamp(until)}; one that is good is allowed")
    return hashlib.sha256(found.public_bytes(Encoding.DER)).digest(), until
