"""Keeps what clients and providers sent out of mitmproxy's log lines: some quote the bytes that they could not read.

A key in a header, in an address or in proxy credentials would stand there in full.
"""

from __future__ import annotations

import logging
import re
from typing import Any

_QUOTED = re.compile(r"\bb(?:'|\").*", re.DOTALL)  # how Python writes bytes: everything from there on goes
_USERINFO = re.compile(r"//[^/@\s]*@")
_QUERY = re.compile(r"\?[^\s]*")

_installed = False


def install() -> None:
    """Have every log record of mitmproxy cleaned where it is made; a second call does nothing."""
    global _installed
    if _installed:
        return
    make = logging.getLogRecordFactory()

    def make_clean(*args: Any, **named: Any) -> logging.LogRecord:
        record = make(*args, **named)
        if record.name.startswith("mitmproxy"):
            record.msg, record.args = cleaned(record.getMessage()), ()
        return record

    logging.setLogRecordFactory(make_clean)
    _installed = True


def cleaned(message: str) -> str:
    """Give a log message without quoted bytes, credentials in addresses, and queries."""
    message = _QUOTED.sub("(what was sent is not shown)", message)
    return _QUERY.sub("?…", _USERINFO.sub("//…@", message))
