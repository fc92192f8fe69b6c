import base64
import json
import os
import random
import shutil
import subprocess
import sys
import unicodedata
from hashlib import sha1
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.prices import shipped_dir
from lockpin_core.sizing import tokenizer
from lockpin_core.sizing.tokenizer import ENCODINGS, Tokenizers, count

FOLDER = shipped_dir() / "tokenizers"
each_encoding = pytest.mark.parametrize("encoding", ENCODINGS)
PROSE = "The quick brown fox doesn't jump over 12345 lazy dogs; naïve café — 日本語のテキスト、한국어, кириллица.\r\n\tx = y[0] // 3\n\n"
SCRIPTS = (
    "\U00012000",
    "\ua000",
    "\U00020000",
    "\ue000",
    "\u0f00",
    "\u1200",
    "\u0e01",
    "\u0600",
    "\u0900",
    "\U0001f600",
)


def whole(text: str, encoding: str) -> int:
    found = tokenizer._SHIPPED._get(encoding)
    assert found is not None
    return len(found.encode_ordinary(text))


def rare(rng: random.Random, length: int) -> str:
    """Make text of many scripts, marks and spaces."""
    blocks = [*SCRIPTS, "a", "A", "0", " ", "\n", "\t", "\u3000", "'", "\u0300", "!"]
    return "".join(chr(ord(rng.choice(blocks)) + rng.randrange(4)) for _ in range(length))


SAMPLE_TEXTS = {
    "prose": PROSE * 400,
    "json": json.dumps([{"id": i, "name": f"n{i}", "values": [i * 1.5, None, True]} for i in range(1_500)]),
    "base64": base64.b64encode(random.Random(1).randbytes(60_000)).decode(),
    "hex": random.Random(2).randbytes(30_000).hex(),
    "uuids": "\n".join(random.Random(3).randbytes(16).hex("-", 4) for _ in range(1_500)),
    "ascii": "".join(map(chr, random.Random(4).choices(range(32, 127), k=50_000))),
    "chinese": "预算在呼叫离开之前就被保留下来。" * 3_000,
    "spaces": " " * 70_000 + "x" + "\n" * 40_000 + "\t " * 20_000,
    "digits": "0123456789" * 6_000 + "٣" * 20_000,
    "marks": "e\u0301" * 20_000 + "\u0300" * 20_000,
    "rare": rare(random.Random(5), 60_000),
    "emoji": "👩\u200d👩\u200d👧\u200d👦🏽" * 4_000,
    "contractions": "I'll we've they'd it's 'tis O'Neil's " * 2_000,
}


def test_encodings_are_those_that_tiktoken_publishes(tmp_path: Path):
    for encoding in ENCODINGS:
        url = f"https://openaipublic.blob.core.windows.net/encodings/{encoding}.tiktoken"
        shutil.copy(FOLDER / f"{encoding}.tiktoken", tmp_path / sha1(url.encode()).hexdigest())
    texts = [text[:3_000] for text in SAMPLE_TEXTS.values()]
    code = (
        "import json, sys, tiktoken; texts = json.load(sys.stdin);"
        f"found = [tiktoken.get_encoding(name) for name in {ENCODINGS!r}];"
        "print(json.dumps([[one.encode_ordinary(text) for text in texts] for one in found]))"
    )
    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(texts), text=True, capture_output=True, env=environment
    )

    assert done.returncode == 0, done.stderr
    for encoding, wanted in zip(ENCODINGS, json.loads(done.stdout), strict=True):
        ours = tokenizer._SHIPPED._get(encoding)
        assert ours is not None
        assert [ours.encode_ordinary(text) for text in texts] == wanted


@each_encoding
@pytest.mark.parametrize("name", SAMPLE_TEXTS)
def test_count_is_at_least_the_true_one_and_little_more(encoding: str, name: str):
    text = SAMPLE_TEXTS[name]
    true = whole(text, encoding)

    found = count([text], encoding)

    assert true <= found <= true + 64 * (len(text) // tokenizer._SLICE + 1)
    assert true <= len(text.encode())


@each_encoding
@pytest.mark.parametrize("name", ["prose", "json", "uuids", "contractions"])
def test_text_that_has_seams_is_counted_exactly(encoding: str, name: str):
    text = SAMPLE_TEXTS[name]
    assert len(text) > 2 * tokenizer._SLICE

    assert count([text], encoding) == whole(text, encoding)


WORDS = st.sampled_from(
    ["I", "'ll", " ", "  ", "\n", "a", "Zé", "日", "5", "²", "Ⅷ", "_", "/", "\u0301", "!", "'", "\r\n"]
)


@each_encoding
@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS | st.text(max_size=3), max_size=30).map("".join))
def test_a_seam_changes_no_count(encoding: str, text: str):
    text = text.encode("utf-8", "replace").decode()
    for match in tokenizer._SEAM.finditer(text):
        cut = match.end()
        if unicodedata.category(text[cut - 1]) != "Cn":
            assert whole(text[:cut], encoding) + whole(text[cut:], encoding) == whole(text, encoding)


@each_encoding
def test_cut_inside_a_word_never_makes_a_count_too_small(encoding: str):
    cut = tokenizer._SLICE
    text = "".join(random.Random(62).choices("etaoinshr", k=cut + 60))
    assert whole(text[:cut], encoding) + whole(text[cut:], encoding) < whole(text, encoding)

    assert count([text], encoding) >= whole(text, encoding)


@each_encoding
@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_no_text_makes_more_tokens_than_it_has_bytes(encoding: str, text: str):
    assert count([text], encoding) <= len(text.encode("utf-8", "surrogatepass"))


@each_encoding
@pytest.mark.parametrize("char", [" ", "\t", "\u00a0", "\u3000", "a", "^", "1"])
def test_a_million_of_one_character_do_not_break_the_encoder(encoding: str, char: str):
    text = char * 1_000_000

    assert 0 < count([text], encoding) <= len(text.encode())


def test_words_that_models_give_a_meaning_are_text_here():
    assert count(["<|endoftext|>"], "o200k_base") > 1


def test_lone_surrogates_count_by_their_bytes():
    assert count(["a\ud800b"], "o200k_base") == 5


def test_counts_of_several_texts_are_added():
    assert count(["hello", " world", ""], "cl100k_base") == 2


@pytest.mark.parametrize("broken", [None, b"", b"IQ== 0\n"])
def test_file_that_is_absent_or_another_leaves_the_bytes_as_bound(tmp_path: Path, broken: bytes | None):
    if broken is not None:
        (tmp_path / "o200k_base.tiktoken").write_bytes(broken)
    found = Tokenizers(tmp_path)

    assert found.count(["hello wörld"], "o200k_base") == 12
    assert not found.is_ready("o200k_base")
    assert broken is None or (tmp_path / "o200k_base.tiktoken").read_bytes() == broken


def test_encoding_that_nobody_knows_leaves_the_bytes_as_bound():
    assert count(["hello wörld"], "brand_new") == 12


class Panicking:
    def encode_ordinary(self, text: str) -> list[int]:
        raise self.error

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Panic(BaseException):
    pass


def test_panic_of_the_encoder_leaves_the_bytes_as_bound():
    assert tokenizer._encoded("hello", Panicking(Panic())) == 5
    for ending in (KeyboardInterrupt(), SystemExit()):
        with pytest.raises(type(ending)):
            tokenizer._encoded("hello", Panicking(ending))


def test_encoding_is_loaded_in_a_thread_of_its_own():
    found = Tokenizers(FOLDER)
    assert not found.is_ready("cl100k_base")

    found.prepare("cl100k_base")
    found.prepare("brand_new")

    assert found.count(["hello"], "cl100k_base") == 1  # waits for that thread
    assert found.is_ready("cl100k_base")
