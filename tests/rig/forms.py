"""Requests as programs send them: JSON, or a form where the format is one."""

import io
import json
import wave
from collections.abc import Mapping

BOUNDARY = "b0undary"
FORMS = ("openai_transcriptions",)  # formats that are forms, always


def sent(wire: str, told: object) -> tuple[bytes, dict[str, str]]:
    """Give the body of a request, and the headers that say what it is."""
    if wire in FORMS and isinstance(told, Mapping):
        return form(told), {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    return json.dumps(told).encode(), {}


def form(told: Mapping, boundary: str = BOUNDARY) -> bytes:
    """Write a form: files are mappings with `data`, lists and other mappings fields of their own for each item."""
    parts = [part for name, value in told.items() for part in _parts(name, value)]
    return b"".join(b"--%b\r\n%b\r\n" % (boundary.encode(), part) for part in parts) + f"--{boundary}--\r\n".encode()


def _parts(name: str, value: object) -> list[bytes]:
    if isinstance(value, Mapping) and value.keys() >= {"name", "type", "data"}:
        head = f'Content-Disposition: form-data; name="{name}"; filename="{value["name"]}"\r\n'
        is_wav = type(value.get("wav")) in (int, float) and 0 <= value["wav"] < 100
        data = wav(value["wav"]) if is_wav else str(value["data"]).encode("utf-8", "surrogatepass")
        return [(head + f"Content-Type: {value['type']}\r\n\r\n").encode("utf-8", "surrogatepass") + data]
    if isinstance(value, list):
        return [part for item in value for part in _parts(f"{name}[]", item)]
    if isinstance(value, Mapping):
        return [part for key, item in value.items() for part in _parts(f"{name}[{key}]", item)]
    text = value if isinstance(value, str) else json.dumps(value)
    return [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{text}'.encode("utf-8", "surrogatepass")]


def wav(seconds: float, *, rate: int = 8000, channels: int = 1, width: int = 2) -> bytes:
    """Make so many seconds of silence."""
    with io.BytesIO() as made:
        with wave.open(made, "wb") as sound:
            sound.setnchannels(channels)
            sound.setsampwidth(width)
            sound.setframerate(rate)
            sound.writeframes(bytes(int(seconds * rate) * channels * width))
        return made.getvalue()


def silence(seconds: float) -> dict[str, object]:
    """Give a file of a form: a WAV of so many seconds."""
    return {"name": "a.wav", "type": "audio/wav", "data": "", "wav": seconds}


MP3 = {"name": "a.mp3", "type": "audio/mpeg", "data": "ID3"}
