"""Bodies of `multipart/form-data`, read strictly: forms that every reader takes for the same. Knows no field's meaning.

A form is refused where two readers could find different fields in it: bare line feeds, words before the first part,
boundaries that stand inside a value, a name twice, an encoding of a part, a charset that matters, parts in parts. What
passes is what real clients write. Nothing is copied but heads and texts, and no call into C runs over more than a piece
of a large form. Source: RFC 7578 and RFC 2046, section 5.1; RFC 5987 for `filename*`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import shown_name

_QUOTED, _BARE = r"[-\w'()+,./:=? ]{0,69}[-\w'()+,./:=?]", r"[-\w'+.]{1,70}"
_TYPE = re.compile(rf'multipart/form-data; ?boundary=(?:"({_QUOTED})"|({_BARE}))', re.ASCII | re.IGNORECASE)
_WORD = rb"[-\w.]{1,200}"
_DISPOSITION = re.compile(
    rb'form-data; ?name=(?:"(?P<name>[^"\\\r\n]{1,200})"|(?P<plain_name>%b))'
    rb'(?:; ?filename=(?:"(?P<file>[^"\\\r\n]{0,1000})"|(?P<plain_file>%b))'
    rb"(?:; ?filename\*=(?i:utf-8)''(?P<again>[-\w.%%]{1,3000}))?)?" % (_WORD, _WORD),
    re.ASCII,
)
_CONTENT_TYPE = re.compile(rb"[-\w.+]+/[-\w.+]+", re.ASCII)
_PLAIN = re.compile(rb'text/plain; ?charset="?(utf-8|iso-8859-1|us-ascii)"?')
_HEADERS = frozenset({b"content-disposition", b"content-type", b"content-length", b"content-transfer-encoding"})
_HEADER = re.compile(rb"([-A-Za-z]{1,40}): ?([^\r\n]*)")
_ITS_BOUNDARY = "a part of the form has the form's boundary in it; choose another one"  # some readers end a part there
_MOST_PARTS = 500
PIECE = 1 << 17  # bytes that are looked at in one go
_MOST_HEADS = 8 * 1024  # bytes of one part's headers


@dataclass(frozen=True, slots=True)
class File:
    """A file of a form."""

    name: str  # as its sender calls it
    content_type: str
    data: memoryview  # of the body, which is not copied


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
            files.setdefault(name, []).append(File(filename, kind.decode(), data))
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


def _parts(body: bytes, boundary: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Cut a form into the headers and the data of its parts."""
    mark, whole = b"--" + boundary, memoryview(body)
    if not body.startswith(mark + b"\r\n"):
        raise WireError("the form does not begin with its boundary; words before it are not allowed")
    ends = _ends(body, mark)
    begins = [len(mark), *(end + 2 + len(mark) for end in ends)]
    if body[begins[-1] : begins[-1] + 5] not in (b"--", b"--\r\n"):
        raise WireError("the form does not end with its closing boundary; it must, and nothing may follow")
    if not ends:
        raise WireError(f"the form has no parts; 1 to {_MOST_PARTS} are allowed")
    for begin, end in zip(begins, ends, strict=False):
        yield _part(body, whole, begin, end, mark)


def _ends(body: bytes, mark: bytes) -> list[int]:
    """Find where parts end, with a line end and the boundary. Raises WireError where some readers find others."""
    if next(_places(body, b"\r" + mark), None) is not None:
        raise WireError(_ITS_BOUNDARY)
    ends: list[int] = []
    for place in _places(body, b"\n" + mark):
        if body[place - 1 : place] != b"\r":
            raise WireError(_ITS_BOUNDARY)
        ends.append(place - 1)
        if len(ends) > _MOST_PARTS:
            raise WireError(f"the form has {len(ends)} parts or more; 1 to {_MOST_PARTS} are allowed")
    return ends


def _places(body: bytes, mark: bytes) -> Iterator[int]:
    """Find a mark in pieces of the body: one call into C over all of it would keep every other thread waiting."""
    for at in range(0, len(body), PIECE):
        last = at + PIECE + len(mark) - 1
        place = body.find(mark, at, last)
        while place >= 0:
            yield place
            place = body.find(mark, place + 1, last)


def _part(body: bytes, whole: memoryview, begin: int, end: int, mark: bytes) -> tuple[bytes, memoryview]:
    middle = body.find(b"\r\n\r\n", begin, min(end, begin + _MOST_HEADS))
    if not body.startswith(b"\r\n", begin) or middle < 0:
        raise WireError("a part of the form has no headers, or does not begin right after its boundary")
    head = body[begin + 2 : middle]
    if mark in head:
        raise WireError(_ITS_BOUNDARY)
    return head, whole[middle + 4 : end]


def _described(head: bytes) -> tuple[str, str | None, bytes]:
    """Read a part's headers: its name, a file's name, and its type."""
    found: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n"):
        header = _HEADER.fullmatch(line)
        if header is None or header[1].lower() in found:
            raise WireError("a part of the form has a header that cannot be read, or one twice")
        found[header[1].lower()] = header[2]
    unknown = found.keys() - _HEADERS
    if unknown:
        raise WireError(
            f"a part of the form has the header {shown_name(min(unknown).decode())}, which is not read here"
        )
    if found.get(b"content-transfer-encoding", b"binary").lower() not in (b"binary", b"8bit"):
        raise WireError("a part of the form has a content-transfer-encoding other than binary and 8bit")
    name, filename = _names(found.get(b"content-disposition", b""))
    kind = found.get(b"content-type", b"").lower()
    if kind and _CONTENT_TYPE.fullmatch(kind) is None and _PLAIN.fullmatch(kind) is None:
        raise WireError("a part of the form has a content-type with parameters, which are not read here")
    if kind.startswith((b"multipart/", b"message/")):
        raise WireError("a part of the form has parts of its own, which are not read here")
    return name, filename, kind


def _names(disposition: bytes) -> tuple[str, str | None]:
    """Read the name of a part, and a file's; .NET writes plain ones without quotes, and a file's in two ways."""
    said = _DISPOSITION.fullmatch(disposition)
    if said is None or not _is_one_name(said):
        raise WireError("a part of the form does not say its name, or says it in a way that may be read otherwise")
    name, filename = _either(said, "name"), _either(said, "file")
    return _utf8(name or b""), None if filename is None else _utf8(filename)


def _is_one_name(said: re.Match[bytes]) -> bool:
    """Say whether a file's name that is said twice is the same twice, for every reader: plain ASCII."""
    again, filename = said["again"], _either(said, "file")
    return again is None or (filename is not None and filename.isascii() and unquote_to_bytes(again) == filename)


def _either(said: re.Match[bytes], which: str) -> bytes | None:
    quoted: bytes | None = said[which]
    return said[f"plain_{which}"] if quoted is None else quoted


def _text(name: str, kind: bytes, data: memoryview) -> str:
    if kind.partition(b";")[0] not in (b"", b"text/plain"):
        raise WireError(f"the field {shown_name(name)} is no plain text; a file must have a file's name")
    text = _utf8(data)
    charset = _PLAIN.fullmatch(kind)
    if charset is not None and charset[1] != b"utf-8" and not text.isascii():
        raise WireError(f"the field {shown_name(name)} is not plain ASCII; send it as UTF-8")
    return text


def _utf8(data: bytes | memoryview) -> str:
    decode = codecs.getincrementaldecoder("utf-8")().decode
    try:
        texts = [decode(data[at : at + PIECE]) for at in range(0, len(data), PIECE)]
        return "".join([*texts, decode(b"", final=True)])
    except UnicodeDecodeError:
        raise WireError("the form has a text that is not UTF-8; send it as UTF-8") from None
