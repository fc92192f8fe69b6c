"""Bodies of `multipart/form-data`, read strictly: forms that every reader takes for the same. Knows no field's meaning.

A form is refused where two readers could find different fields in it: bare line feeds, words before the first part,
boundaries that stand inside a value, a name twice, an encoding of a part, a charset, parts in parts. What passes is
what real clients write. Source: RFC 7578 and RFC 2046, section 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import shown_name

_QUOTED, _BARE = r"[-\w'()+,./:=? ]{0,69}[-\w'()+,./:=?]", r"[-\w'+.]{1,70}"
_TYPE = re.compile(rf'multipart/form-data; ?boundary=(?:"({_QUOTED})"|({_BARE}))', re.ASCII | re.IGNORECASE)
_DISPOSITION = re.compile(rb'form-data; ?name="([^"\\\r\n]{1,200})"(?:; ?filename="([^"\\\r\n]{0,1000})")?')
_CONTENT_TYPE = re.compile(rb"[-\w.+]+/[-\w.+]+", re.ASCII)
_HEADER = re.compile(rb"([-A-Za-z]{1,40}): ?([^\r\n]*)")
_MOST_PARTS = 500
_MOST_HEADS = 8 * 1024  # bytes of one part's headers


@dataclass(frozen=True, slots=True)
class File:
    """A file of a form."""

    name: str  # as its sender calls it
    content_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form: texts and files by name. A name that ends in `[]` is a list, with or without one item."""

    texts: Mapping[str, tuple[str, ...]]
    files: Mapping[str, tuple[File, ...]]


def is_form(content_type: str) -> bool:
    """Say whether a body is sent as a form."""
    return content_type.strip().lower().startswith("multipart/")


def read_form(body: bytes, content_type: str) -> Form:
    """Read a form. Raises WireError where it is not exactly one unambiguous `multipart/form-data`."""
    texts: dict[str, list[str]] = {}
    files: dict[str, list[File]] = {}
    for head, data in _parts(body, _boundary(content_type)):
        name, filename, kind = _described(head)
        if (name in texts or name in files) and not (name.endswith("[]") and (name in files) is (filename is not None)):
            raise WireError(f"the form has the field {shown_name(name)} twice; once is allowed")
        if filename is not None:
            files.setdefault(name, []).append(File(filename, kind.decode().lower(), data))
        else:
            texts.setdefault(name, []).append(_text(name, kind, data))
    for name in [*texts, *files]:
        if f"{name}[]" in texts or f"{name}[]" in files:
            raise WireError(f"the form has the field {shown_name(name)} both alone and as a list; either is allowed")
    return Form({n: tuple(v) for n, v in texts.items()}, {n: tuple(v) for n, v in files.items()})


def _boundary(content_type: str) -> bytes:
    found = _TYPE.fullmatch(content_type.strip())
    if found is None:
        raise WireError("content-type is not multipart/form-data with a boundary and nothing else, which is allowed")
    return (found[1] or found[2]).encode()


def _parts(body: bytes, boundary: bytes) -> list[tuple[bytes, bytes]]:
    """Cut a form into the headers and the data of its parts."""
    mark = b"--" + boundary
    if not body.startswith(mark + b"\r\n"):
        raise WireError("the form does not begin with its boundary; words before it are not allowed")
    pieces = body[len(mark) :].split(b"\r\n" + mark)
    if pieces.pop() not in (b"--", b"--\r\n"):
        raise WireError("the form does not end with its closing boundary; it must, and nothing may follow")
    if not pieces or len(pieces) > _MOST_PARTS:
        raise WireError(f"the form has {len(pieces)} parts; 1 to {_MOST_PARTS} are allowed")
    return [_part(piece, mark) for piece in pieces]


def _part(piece: bytes, mark: bytes) -> tuple[bytes, bytes]:
    end = piece.find(b"\r\n\r\n", 0, _MOST_HEADS)
    if not piece.startswith(b"\r\n") or end < 0:
        raise WireError("a part of the form has no headers, or does not begin right after its boundary")
    head, data = piece[2:end], piece[end + 4 :]
    if b"\n" + mark in data or b"\r" + mark in data or mark in head:  # some readers end a part there
        raise WireError("a part of the form has the form's boundary in it; choose another one")
    return head, data


def _described(head: bytes) -> tuple[str, str | None, bytes]:
    """Read a part's headers: its name, a file's name, and its type."""
    found: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n"):
        header = _HEADER.fullmatch(line)
        if header is None or header[1].lower() in found:
            raise WireError("a part of the form has a header that cannot be read, or one twice")
        found[header[1].lower()] = header[2]
    unknown = found.keys() - {b"content-disposition", b"content-type", b"content-length"}
    if unknown:
        raise WireError(
            f"a part of the form has the header {shown_name(min(unknown).decode())}, which is not read here"
        )
    said = _DISPOSITION.fullmatch(found.get(b"content-disposition", b""))
    if said is None:
        raise WireError("a part of the form does not say its name, or says it in a way that may be read otherwise")
    kind = found.get(b"content-type", b"")
    if kind and _CONTENT_TYPE.fullmatch(kind) is None and kind.lower() != b"text/plain; charset=utf-8":
        raise WireError("a part of the form has a content-type with parameters, which are not read here")
    if kind.lower().startswith((b"multipart/", b"message/")):
        raise WireError("a part of the form has parts of its own, which are not read here")
    filename = said[2]
    return _utf8(said[1]), None if filename is None else _utf8(filename), kind


def _text(name: str, kind: bytes, data: bytes) -> str:
    if kind.partition(b";")[0].lower() not in (b"", b"text/plain"):
        raise WireError(f"the field {shown_name(name)} is no plain text; a file must have a file's name")
    return _utf8(data)


def _utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise WireError("the form has a text that is not UTF-8; send it as UTF-8") from None
