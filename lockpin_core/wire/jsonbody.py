"""Request bodies as JSON, read strictly. Knows JSON; knows no field of any format.

Reading is stricter than providers are: where two parsers could read one body differently (duplicate keys, NaN,
overflowing numbers, other encodings), the price could be of another request than the one that is answered.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from lockpin_core.call import Layout, Request
from lockpin_core.errors import WireError
from lockpin_core.wire.textsize import sizes, utf8_size

MAX_LIMIT = 10**9  # no field that bounds a cost may be larger
# Where limits stand that are not at the top, in every format.
_CONTAINERS = frozenset(
    {
        *("thinking", "reasoning", "generationConfig", "generation_config", "thinkingConfig", "thinking_config"),
        *("request", "inferenceConfig", "additionalModelRequestFields", "reasoning_config"),
    }
)
_STREAM_FLAGS = frozenset({"include_usage", "include_obfuscation"})
_FEW_BYTES = 16 * 1024  # of a body that nobody has to wait for
MAX_WORD = 256  # characters of a model, a tier or a region

_AGENTS = re.compile(r"\bgrok-.*multi-agent", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\n\r]*")
_ENCODE = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False).encode
_ENCODE_ASCII = json.JSONEncoder(check_circular=False, allow_nan=False).encode


class Number(float):
    """A JSON number with a fraction or exponent; keeps its text, which may be longer than the value's."""

    __slots__ = ("text",)
    text: str


@dataclass(frozen=True, slots=True)
class Body:
    """A body that is a JSON object, and where each member's value stands in its text."""

    text: str
    members: Mapping[str, object]
    spans: Mapping[str, tuple[int, int]]  # in characters
    raw_size: int  # bytes of the text

    def size(self, key: str) -> int:
        """Give the UTF-8 bytes of a member's value as it was written, or of its NFC where that is longer."""
        start, end = self.spans[key]
        return sizes([self.text[start:end]])[1]

    def inner(self, key: str) -> Body:
        """Give a member as a body of its own in the same text. Raises WireError where it is no object."""
        value = self.members.get(key)
        if type(value) is not dict:
            raise WireError(f"{key} is {shown(value)}; an object is needed")
        start, end = self.spans[key]
        _, spans, _ = _read_object(self.text, start, known_decoder(end - start))
        return Body(self.text, value, spans, 0)

    def layout(self, keys: Collection[str] | None = None) -> Layout:
        """Say where members stand in the body's bytes; `keys` None: every member."""
        spans = self.spans if keys is None else {key: self.spans[key] for key in keys if key in self.spans}
        opening = _skip(self.text, 0) + 1
        if not self.text.isascii():
            byte = _byte_places(self.text, self.raw_size, {place for span in spans.values() for place in span})
            spans = {key: (byte[start], byte[end]) for key, (start, end) in spans.items()}
        return Layout(self.raw_size, opening, not self.members, spans)


def read_body(body: bytes) -> Body:
    """Read a request body. Raises WireError where it is not exactly one unambiguous JSON object in UTF-8."""
    text = _text_of(body)
    with _faults_named():
        members, spans, end = _read_object(text, _skip(text, 0), _strict(body))
    _check_end(text, end)
    return Body(text, members, spans, len(body))


def read_items(body: bytes, key: str) -> Iterator[Body]:
    """Read the objects of the list that is a body's one member, as strictly as `read_body`, one after the other.

    Each is a body of its own in the text of the whole, so that no more of a very long one is kept as values.
    """
    text, decoder, number = _text_of(body), _strict(body), 0
    with _faults_named():
        at = _open_list(text, key, decoder)
        is_last = text[at : at + 1] == "]"
        while not is_last:
            start = at
            with placed(key, number):
                members, spans, at = _read_object(text, start, decoder, "an object is needed")
            yield Body(text, members, spans, 0)
            number += 1
            at = _skip(text, at)
            is_last = text[at : at + 1] == "]"
            if not is_last:
                at = _past(text, at, ",")
        at = _skip(text, at + 1)
        if text[at : at + 1] == ",":
            _refuse_member(_read_key(text, _skip(text, at + 1), decoder)[0], key)
        at = _past(text, at, "}")
    _check_end(text, at)


def _open_list(text: str, key: str, decoder: json.JSONDecoder) -> int:
    """Give the place of the first member of a body's one list, or of the list's end."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise WireError("the body is no JSON object")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        raise WireError(f"{key} is null; a list is needed")
    name, at = _read_key(text, at, decoder)
    if name != key:
        _refuse_member(name)
    if text[at : at + 1] != "[":
        raise WireError(f"{key} is {shown(decoder.raw_decode(text, at)[0])}; a list is needed")
    return _skip(text, at + 1)


def _refuse_member(name: str, known: str | None = None) -> NoReturn:
    if name == known:
        _refuse_duplicate(name)
    words = f"field {shown_name(name)} of the request is not known, so its cost cannot be bounded"
    raise WireError(words, "unpriced_tool")


def _text_of(body: bytes) -> str:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"the body is not UTF-8: byte {error.start} is not; send it as UTF-8") from None
    if text.startswith("\ufeff"):
        raise WireError("the body starts with a byte order mark; plain UTF-8 is allowed")
    return text


def _strict(body: bytes) -> json.JSONDecoder:
    return _STRICT if len(body) <= _FEW_BYTES else _STRICT_STEPS


@contextmanager
def placed(key: str, number: int) -> Iterator[None]:
    """Say of a WireError in which member of a list it is; of what stands there, no more than it says by itself."""
    try:
        yield
    except WireError as fault:
        raise WireError(f"{key}[{number}]: {fault}", fault.code) from None


@contextmanager
def _faults_named() -> Iterator[None]:
    """Turn what the JSON reader raises into a WireError."""
    try:
        yield
    except RecursionError:
        raise WireError("the body is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise WireError(f"the body is no JSON: {error.msg.removesuffix(' at')} at character {error.pos}") from None
    except ValueError:  # an integer of more digits than Python reads
        raise WireError("the body has a number that is too large") from None


def _check_end(text: str, end: int) -> None:
    if _skip(text, end) != len(text):
        raise WireError(f"the body goes on after its JSON object, at character {end}")


def read_known(body: bytes) -> Body:
    """Read the members of a JSON object that was read strictly before."""
    text = body.decode()
    members, spans, _ = _read_object(text, _skip(text, 0), known_decoder(len(body)))
    return Body(text, members, spans, len(body))


def model_name(value: object) -> str:
    """Read the name of a model. Raises WireError, also where the name stands for as many runs as the provider likes."""
    if type(value) is not str or not value:
        raise WireError(f"model is {'empty' if value == '' else shown(value)}; the name of a model is needed")
    plain_word(value, "model")
    if _AGENTS.search(value):
        words = f"model {shown_name(value)} stands for agents that the provider runs, each of which reads the prompt"
        raise WireError(f"{words}; so its cost cannot be bounded", "unpriced_tool")
    return value


def plain_word(value: object, field: str) -> str | None:
    """Read a name that goes on to prices, books and headers; null is absent. Raises WireError on anything else."""
    if value is None:
        return None
    if type(value) is not str:
        raise WireError(f"{field} is {shown(value)}; a string is allowed")
    if len(value) > MAX_WORD or not value.isprintable():
        raise WireError(f"{field} is not printable text of at most {MAX_WORD} characters, which alone is allowed")
    return value


def whole(value: object, field: str, *, low: int = 0, high: int = MAX_LIMIT) -> int | None:
    """Read a whole number that bounds a cost; null is absent. Raises WireError on anything else."""
    if value is None:
        return None
    if type(value) is not int or not low <= value <= high:
        raise WireError(f"{field} is {shown(value)}; a whole number from {low} to {high} is allowed")
    return value


def check_plain(members: Mapping[str, object], names: str) -> None:
    """Refuse an object or a list as the value of a setting: nobody says what a model reads of it. Raises WireError."""
    for name in names.split():
        if type(members.get(name)) in (dict, list):
            raise WireError(f"{name} is {shown(members[name])}; a plain value is allowed")


def shown(value: object) -> str:
    """Describe a value for a message: short scalars as they are, never text."""
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            text = str(value) if abs(value) < 10**24 else "a very large number"
            return text
        case float():
            return f"{float(value)!r}"
        case str():
            return "a string"
        case list():
            return "a list"
    return "an object"


def shown_name(name: object) -> str:
    """Write a field or type name for a message, in quotes: ASCII and at most 40 characters."""
    text = name if isinstance(name, str) else shown(name)
    return json.dumps(text if len(text) <= 40 else f"{text[:40]}...")


def digest(request: Request, leaves_out: Collection[str]) -> bytes:
    """Digest a request without its members of these names and `stream`, at the top and where settings stand.

    Only flags and small numbers are left out: whatever else stands under such a name may be input. All else counts as
    it is written, digit for digit: what differs in its text may differ in its tokens.
    """
    names = frozenset({"stream", "stream_options", *leaves_out})
    found = hashlib.sha256(f"{request.method} {request.host} {request.path_model or request.path}\n".encode())
    try:
        is_whole = request.body.startswith(b"--")  # which is no JSON, and often very long
        for piece in () if is_whole else _told_apart(read_known(request.body), names, 2):
            found.update(piece)
    except (ValueError, RecursionError, WireError):
        is_whole = True
    if is_whole:
        found.update(request.body)
    return found.digest()


def _told_apart(body: Body, names: Collection[str], depth: int) -> Iterator[bytes]:
    """Give what tells an object from others, member by member in the order of their names, each with its length."""
    for key in sorted(body.members):
        value, (start, end) = body.members[key], body.spans[key]
        if key in names and (_is_small(value) or (key == "stream_options" and _is_of_flags(value))):
            continue
        if depth and key in _CONTAINERS and type(value) is dict:
            inner = b"".join(_told_apart(_object_at(body.text, start), names, depth - 1))
        else:
            inner = body.text[start:end].encode()
        yield b"%b:%d:" % (json.dumps(key).encode(), len(inner))
        yield inner


def _object_at(text: str, start: int) -> Body:
    members, spans, end = _read_object(text, start, known_decoder(len(text) - start))
    return Body(text, members, spans, end - start)


def known_decoder(size: int) -> json.JSONDecoder:
    """Give a decoder for texts that were read strictly before; of a large one it lets other threads run in between."""
    return _FAST if size <= _FEW_BYTES else _FAST_STEPS


def _is_small(value: object) -> bool:
    """Say whether a value is a flag or a limit, and no text of any length."""
    if isinstance(value, str):
        return len(value) <= 12 and value.isdecimal()
    return value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 10**12)


def _is_of_flags(value: object) -> bool:
    """Say whether a value is an object of flags that say how a stream is sent, and nothing else."""
    return isinstance(value, dict) and value.keys() <= _STREAM_FLAGS and all(type(v) is bool for v in value.values())


def json_text(value: object, *, escaped: bool = False) -> str:
    """Write a value that was read here as JSON again: without escapes where none are needed, or in ASCII alone."""
    return _ENCODE_ASCII(value) if escaped else _ENCODE(value)


def _read_object(
    text: str, at: int, decoder: json.JSONDecoder, otherwise: str = "the body is no JSON object"
) -> tuple[dict[str, object], dict[str, tuple[int, int]], int]:
    """Read an object member by member, keeping where each value stands; the values themselves go through C."""
    if text[at : at + 1] != "{":
        raise WireError(otherwise)
    members: dict[str, object] = {}
    spans: dict[str, tuple[int, int]] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, spans, at + 1
    while True:
        key, at = _read_key(text, at, decoder)
        value, end = decoder.raw_decode(text, at)
        if key in members:
            _refuse_duplicate(key)
        members[key], spans[key] = value, (at, end)
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return members, spans, at + 1
        at = _past(text, at, ",")


def _byte_places(text: str, size: int, places: Iterable[int]) -> dict[int, int]:
    """Turn places in a text into places in its `size` bytes, each counted from the nearest known one."""
    found: dict[int, int] = {}
    at = byte = 0
    for place in sorted(places):
        is_near = place - at <= len(text) - place
        byte = byte + utf8_size(text, at, place) if is_near else size - utf8_size(text, place)
        found[place] = byte
        at = place
    return found


def _read_key(text: str, at: int, decoder: json.JSONDecoder) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    key, end = decoder.raw_decode(text, at)
    at = _skip(text, end)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return str(key), _skip(text, at + 1)


def _past(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise json.JSONDecodeError(f"Expecting '{mark}' delimiter", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                _refuse_duplicate(key)
            seen.add(key)
    return made


def _refuse_duplicate(key: str) -> NoReturn:
    raise WireError(f"the body has the key {shown_name(key)} twice in one object; once is allowed")


def _finite(text: str) -> Number:
    number = Number(text)
    if math.isinf(number):
        raise WireError("the body has a number that is too large")
    number.text = text
    return number


def _no_constant(text: str) -> NoReturn:
    raise WireError(f"the body has {text.lstrip('-')} where JSON allows a number only")


def _whole(text: str) -> int:
    return int(text)


def _as_dict(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return dict(pairs)


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)
# Steps through a function of ours for each number too, so that a long list of them lets other threads run in between.
_STRICT_STEPS = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_int=_whole, parse_constant=_no_constant
)
_FAST = json.JSONDecoder()
_FAST_STEPS = json.JSONDecoder(object_pairs_hook=_as_dict, parse_int=_whole)
