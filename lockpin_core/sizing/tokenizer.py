"""Exact token counts for models whose tokenizer is published, from rank files that are shipped with the prices.

Nothing is downloaded: a file whose hash is wrong counts as absent, and tiktoken's own cache, which would replace it, is
not used. Loading takes about a second and counting 100 ms a megabyte: both are for threads beside the event loop.
Ranks and patterns are OpenAI's, as tiktoken publishes them (see `pricing/tokenizers/LICENSE`).
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lockpin_core.prices import shipped_dir

if TYPE_CHECKING:
    from tiktoken import Encoding

_SLICE = 1 << 14  # characters encoded at once, 64 KB at most: a run of a million spaces overflows the encoder's stack
_CUT_TOKENS = 64  # for a cut inside a word, whose halves can make fewer tokens than the whole: 2 were seen

# Where both encodings end a piece whatever stands around it, so that a cut changes no count: before a space that
# follows something else, between a letter and a mark of ASCII that cannot go on with it, between a letter and a digit.
_SEAM = re.compile(r"\S(?= )|[^\W\d_](?=[\t\n\r!-&(-/:-@\[-`{-~])|[A-Za-z](?=[0-9])")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Definition:
    sha256: str  # of the rank file
    pattern: str  # what cuts text into pieces


_DEFINITIONS = {
    "o200k_base": _Definition(
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "cl100k_base": _Definition(
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s",
    ),
}
ENCODINGS = tuple(_DEFINITIONS)


@dataclass(slots=True)
class Tokenizers:
    """The encodings of one folder, each loaded when it is first needed. For any thread."""

    folder: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _loaded: dict[str, Encoding | None] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)

    def prepare(self, encoding: str) -> None:
        """Begin to load an encoding in a thread of its own, unless that was begun before."""
        if encoding in _DEFINITIONS and encoding not in self._begun:
            self._begun.add(encoding)
            threading.Thread(target=self._get, args=(encoding,), name="lockpin-tokenizer", daemon=True).start()

    def is_ready(self, encoding: str) -> bool:
        """Say whether counting would not have to load anything."""
        return self._loaded.get(encoding) is not None

    def count(self, texts: Iterable[str], encoding: str) -> int:
        """Count the tokens of texts: exactly, or a little more; their bytes where the encoding cannot be loaded.

        Loads the encoding first where that was not done.
        """
        found = self._get(encoding)
        return sum(_count(text, found) for text in texts)

    def _get(self, encoding: str) -> Encoding | None:
        with self._lock:
            if encoding not in self._loaded:
                self._loaded[encoding] = _load(self.folder, encoding)
            return self._loaded[encoding]


_SHIPPED = Tokenizers(shipped_dir() / "tokenizers")


def count(texts: Iterable[str], encoding: str) -> int:
    """Count the tokens of texts with a shipped encoding; see `Tokenizers.count`."""
    return _SHIPPED.count(texts, encoding)


def prepare(encoding: str) -> None:
    """Begin to load a shipped encoding."""
    _SHIPPED.prepare(encoding)


def is_ready(encoding: str) -> bool:
    """Say whether a shipped encoding is loaded."""
    return _SHIPPED.is_ready(encoding)


def _load(folder: Path, encoding: str) -> Encoding | None:
    definition = _DEFINITIONS.get(encoding)
    if definition is None:
        return None
    try:
        raw = (folder / f"{encoding}.tiktoken").read_bytes()
    except OSError:
        return None
    if hashlib.sha256(raw).hexdigest() != definition.sha256:
        return None
    from tiktoken import Encoding  # it takes a while, and most calls fit without a count

    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in raw.splitlines())}
    return Encoding(encoding, pat_str=definition.pattern, mergeable_ranks=ranks, special_tokens={})


def _count(text: str, encoding: Encoding | None) -> int:
    return sum(_encoded(piece, encoding) + more for piece, more in _pieces(text))


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """Cut a text where that changes no count; elsewhere with an allowance for the cut."""
    start = 0
    while len(text) - start > _SLICE:
        end = _seam(text, start, start + _SLICE)
        is_seam = end is not None
        end = start + _SLICE if end is None else end
        yield text[start:end], 0 if is_seam else _CUT_TOKENS
        start = end
    yield text[start:], 0


def _seam(text: str, start: int, end: int) -> int | None:
    """Find the last seam of a part of a text, first near its end."""
    for since in (max(start, end - 256), start):
        last = None
        for match in _SEAM.finditer(text, since, end + 1):
            last = match
        if last is not None:
            return last.end()
    return None


def _encoded(text: str, encoding: Encoding | None) -> int:
    size = len(text.encode("utf-8", "surrogatepass"))
    if encoding is None or _SURROGATE.search(text):
        return size
    try:
        return len(encoding.encode_ordinary(text))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001
        # A panic of the encoder is no Exception; no text makes more tokens than it has bytes.
        return size
