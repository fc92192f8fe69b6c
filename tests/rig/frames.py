"""Frames of an AWS event stream, made by hand from the description of the format: the counterpart of its reader."""

import base64
import json
import struct
import zlib


def header(name: str, value: str) -> bytes:
    said = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(said)) + said


def raw_frame(headers: bytes, payload: bytes) -> bytes:
    start = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = start + struct.pack(">I", zlib.crc32(start)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def frame(event: str, payload: object, message: str = "event") -> bytes:
    """Make a frame as Amazon sends it; of an exception when `message` says so."""
    kind = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}[message]
    told = header(kind, event) + header(":content-type", "application/json") + header(":message-type", message)
    return raw_frame(told, payload if isinstance(payload, bytes) else json.dumps(payload).encode())


def chunk(event: object) -> bytes:
    """Make the frame in which an event of a model's own format comes."""
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    return frame("chunk", {"bytes": base64.b64encode(data).decode(), "p": "abcd"})


def cut_up(stream: bytes) -> list[bytes]:
    """Give the whole frames that a stream begins with, by their lengths alone."""
    found = []
    while len(stream) >= 16 and len(stream) >= (size := int.from_bytes(stream[:4])):
        found.append(stream[:size])
        stream = stream[size:]
    return found


def payload(one: bytes) -> dict:
    """Give what a frame says, or the event of a model's own format in it."""
    found = json.loads(one[12 + int.from_bytes(one[4:8]) : -4])
    return json.loads(base64.b64decode(found["bytes"])) if "bytes" in found else found
