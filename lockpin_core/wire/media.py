"""What an image or a sound in a request shows of its size, from the first bytes; base64 or plain. Never raises.

Only formats are read of which all decoders make the same: what they could read differently is of an unknown size.
"""

from __future__ import annotations

import base64
import io
import re

from lockpin_core.call import Image

_DATA_URL = re.compile(r"data:[a-zA-Z0-9.+/-]+;base64,")
_HEAD = 1 << 18  # characters that hold the header, long profiles and previews before it included
_MAGIC = (b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR", b"\xff\xd8\xff")  # a GIF's frames may be larger than it says
_WEBP = re.compile(rb"RIFF.{4}WEBPVP8[ L]", re.DOTALL)

# Tokens of a second of sound: 10 at OpenAI, 12.5 at Mistral, 25 at Qwen, 32 at Google, says each one's guide to audio,
# read 2026-11; twice the most, of whole half minutes, which some models fill up with silence.
_AUDIO_TOKENS_PER_S = 64
_AUDIO_STEP_S = 30
_RIFF_HEAD = 12  # bytes before a WAV's first chunk
_NOTES = frozenset({b"JUNK", b"junk", b"PAD ", b"FLLR", b"bext", b"iXML", b"LIST"})  # say nothing of the sound itself
_WAV_HEAD = 44  # bytes of the shortest header


def image_at(url: object, detail: object = "") -> Image:
    """Read the size of an image whose bytes stand in a `data:` URL; any other address says nothing of it."""
    found = _DATA_URL.match(url) if type(url) is str else None
    return image_in(url[found.end() :] if found and type(url) is str else None, detail)


def image_in(data: object, detail: object = "") -> Image:
    """Read the size of an image in base64."""
    return _image(_decoded(data), detail if type(detail) is str else "")


def image_of(data: bytes | memoryview) -> Image:
    """Read the size of an image that is a file."""
    return _image(bytes(data[:_HEAD]), "")


def _image(head: bytes, asked: str) -> Image:
    if not head.startswith(_MAGIC) and _WEBP.match(head) is None:
        return Image(detail=asked)
    import imagesize  # most requests have no image

    width, height = imagesize.get(io.BytesIO(head), exif_rotation=False)
    return Image(width, height, asked) if width > 0 and height > 0 else Image(detail=asked)


def wav_tokens(data: object) -> int | None:
    """Bound the tokens of uncompressed sound in base64, by its header's rate and all its bytes; None: it has none."""
    rate = _bytes_per_s(_decoded(data))
    if type(data) is not str or rate is None:
        return None
    return _sound_tokens(len(data) * 3 // 4, rate)  # what the header says of the length counts for nothing


def wav_size(data: bytes | memoryview) -> tuple[int, int] | None:
    """Bound the seconds and the tokens of uncompressed sound that is a file, likewise; None: it has no bound."""
    rate, size = _bytes_per_s(bytes(data[:_HEAD])), max(0, len(data) - _WAV_HEAD)
    return None if rate is None else (-(-size // rate), _sound_tokens(size, rate))


def _sound_tokens(size: int, bytes_per_s: int) -> int:
    steps = -(-size // (bytes_per_s * _AUDIO_STEP_S))
    return steps * _AUDIO_STEP_S * _AUDIO_TOKENS_PER_S


def _bytes_per_s(head: bytes) -> int | None:
    """Read how much of a WAV's data is a second; None: it is none, or not plainly one."""
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE" or head.count(b"fmt ") != 1 or not _is_described(head):
        return None
    import wave  # most requests have no sound

    try:
        with wave.open(io.BytesIO(head), "rb") as sound:
            bytes_per_s = sound.getframerate() * sound.getnchannels() * sound.getsampwidth()
    except (wave.Error, EOFError, RuntimeError):
        return None
    return bytes_per_s if bytes_per_s > 0 else None


def _is_described(head: bytes) -> bool:
    """Say whether a WAV's format is the first of its chunks that says anything of the sound.

    Notes and filling may stand before it. One of an odd size is followed by a byte that some readers do not skip.
    """
    at = _RIFF_HEAD
    while (kind := head[at : at + 4]) != b"fmt ":
        size = int.from_bytes(head[at + 4 : at + 8], "little")
        if kind not in _NOTES or size % 2:
            return False
        at += 8 + size
    return True


def _decoded(data: object) -> bytes:
    """Decode the beginning; nothing where it is not plainly base64."""
    if type(data) is not str or not data.isascii():
        return b""
    try:
        return base64.b64decode(data[:_HEAD], validate=True)
    except ValueError:
        return b""
