"""The words of a configuration's files. Knows nothing of what stands in them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lockpin_core.config_secrets import masked_keys
from lockpin_core.config_yaml import located
from lockpin_core.errors import ConfigError

FILE_MAX_BYTES = 16 << 20


def content(file: Path) -> str:
    """Read a file's text. Raises ConfigError.

    Only of a plain file: it is read again while Lockpin runs, and a pipe gives its words once and then waits.
    """
    shown = masked_keys(str(file))
    try:
        raw = _plain_bytes(file)
    except OSError as error:
        words = f"cannot be read: {error.strerror}; the path of a YAML or JSON file is allowed"
        raise ConfigError(f"{shown}: {words}") from error
    if raw is None:
        raise ConfigError(f"{shown}: is a pipe or a device; write the configuration to a file and name that")
    if len(raw) > FILE_MAX_BYTES:
        raise ConfigError(
            f"{shown}: is larger than {FILE_MAX_BYTES >> 20} MB; a YAML or JSON file of at most that is allowed"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise located(str(file), line, "is not UTF-8 text") from error


def _plain_bytes(file: Path) -> bytes | None:
    """Read a file up to one byte more than is allowed; None: it is no plain file. Never waits for a writer."""
    found = file.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        return None
    # Whatever stands there by now: `O_NONBLOCK` opens a pipe at once.
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            return None
        return opened.read(FILE_MAX_BYTES + 1)
