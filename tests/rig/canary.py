"""Searches all that was written for what must not be there, in whatever spelling."""

import base64
from pathlib import Path
from urllib.parse import quote


def spellings(secret: str) -> set[bytes]:
    text = secret.encode()
    coded = {base64.b64encode(pad + text)[4:-4] for pad in (b"", b"x", b"xx")}  # whatever stands before it
    return {text, quote(secret, safe="").encode(), text[::-1], text.hex().encode(), *coded}


def where(secret: str, folder: Path) -> list[str]:
    """List the files in which a text stands, in any of its spellings."""
    files = [(file.name, file.read_bytes()) for file in folder.rglob("*") if file.is_file()]
    return [f"{name}: {sought[:9]!r}…" for name, content in files for sought in spellings(secret) if sought in content]
