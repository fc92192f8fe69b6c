"""A form is read as every other reader reads it, or not at all."""

import email
import io
import tracemalloc

import pytest
from forms import BOUNDARY, form
from hypothesis import given, settings
from hypothesis import strategies as st
from werkzeug.formparser import MultiPartParser

from lockpin_core.errors import WireError
from lockpin_core.wire.multipart import PIECE, File, Form, is_form, read_form

KIND = f"multipart/form-data; boundary={BOUNDARY}"
SOUND = {"name": "a.wav", "type": "audio/WAV", "data": "RIFF\r\n\r\n--b0"}
PLAIN = form({"model": "whisper-1", "prompt": "hé\r\nyou", "include": ["logprobs"], "empty": "", "file": SOUND})


def test_texts_and_files_are_read_by_name():
    found = read_form(PLAIN, KIND)

    assert found.texts == {
        "model": ("whisper-1",),
        "prompt": ("hé\r\nyou",),
        "include[]": ("logprobs",),
        "empty": ("",),
    }
    assert found.files == {"file": (File("a.wav", "audio/wav", b"RIFF\r\n\r\n--b0"),)}


def test_a_list_keeps_its_order():
    assert read_form(form({"keywords": ["b", "a", "b"]}), KIND).texts == {"keywords[]": ("b", "a", "b")}


@pytest.mark.parametrize(
    "kind",
    ["multipart/form-data;boundary=b0undary", 'Multipart/Form-Data; Boundary="b0undary"', f" {KIND} "],
)
def test_a_boundary_may_be_written_in_these_ways(kind: str):
    assert read_form(PLAIN, kind) == read_form(PLAIN, KIND)


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "multipart/form-data",
        "multipart/mixed; boundary=b0undary",
        "multipart/form-data; boundary=",
        "multipart/form-data; charset=utf-16; boundary=b0undary",
        "multipart/form-data; boundary=b0undary; charset=utf-16",
        "multipart/form-data; boundary=b0undary, multipart/form-data; boundary=other",
        "multipart/form-data; boundary=b0undary; boundary=other",
        f"multipart/form-data; boundary={'b' * 71}",
    ],
)
def test_a_content_type_that_says_more_or_less_is_refused(kind: str):
    with pytest.raises(WireError, match="a boundary and nothing else"):
        read_form(PLAIN, kind)


def part(head: str, data: str = "x") -> bytes:
    return f"--{BOUNDARY}\r\n{head}\r\n\r\n{data}\r\n--{BOUNDARY}--\r\n".encode()


NAMED = 'Content-Disposition: form-data; name="a"'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "does not begin with its boundary"),
        (b"words\r\n" + PLAIN, "does not begin with its boundary"),
        (b"\r\n" + PLAIN, "does not begin with its boundary"),
        (PLAIN[: -len("--\r\n")], "does not end with its closing boundary"),
        (PLAIN[:-9], "does not end with its closing boundary"),
        (PLAIN + b"more", "does not end with its closing boundary"),
        (PLAIN + PLAIN, "right after its boundary"),
        (f"--{BOUNDARY}\r\n--{BOUNDARY}--\r\n".encode(), "does not end|has no headers"),
        (PLAIN.replace(b"\r\n", b"\n"), "does not begin with its boundary"),
        (part("").replace(b"\r\n\r\n\r\n", b"\r\n"), "has no headers"),
        (part(NAMED, f"x\n--{BOUNDARY}\r\n{NAMED}\r\n\r\ny"), "has the form's boundary in it"),
        (part(NAMED, f"x\r--{BOUNDARY}--"), "has the form's boundary in it"),
        (part(NAMED, f"x\r\n--{BOUNDARY}x\r\n"), "right after its boundary"),
        (part(f"{NAMED}\r\n--{BOUNDARY}: x"), "boundary in it|right after|cannot be read"),
        (part("Content-Type: text/plain"), "does not say its name"),
        (part("Content-Disposition: form-data; name=a b"), "does not say its name"),
        (part("Content-Disposition: form-data; name=a[]"), "does not say its name"),
        (part("Content-Disposition: form-data; name="), "does not say its name"),
        (part("Content-Disposition: form-data; name=a; name=b"), "does not say its name"),
        (part("Content-Disposition: form-data; name=a; filename*=utf-8''a.wav"), "does not say its name"),
        (part(f"{NAMED}; filename=a.wav; filename*=utf-8''b.wav"), "does not say its name"),
        (part(f"{NAMED}; filename=a.wav; filename*=utf-8'de'a.wav"), "does not say its name"),
        (part(f"{NAMED}; filename=a.wav; filename*=utf-16''a.wav"), "does not say its name"),
        (part(f"{NAMED}; filename*=utf-8''a.wav; filename=a.wav"), "does not say its name"),
        (part(f"{NAMED}; filename=\"é.wav\"; filename*=utf-8''%C3%A9.wav"), "does not say its name"),
        (part(f'{NAMED}; filename="=?utf-8?B?w6kud2F2?="; filename*=utf-8\'\'%C3%A9.wav'), "does not say its name"),
        (part(f"{NAMED}\r\nContent-Transfer-Encoding: quoted-printable"), "other than binary and 8bit"),
        (part(f"{NAMED}\r\nContent-Type: text/plain; charset=ISO-8859-1", "é"), "is not plain ASCII"),
        (part(f"{NAMED}\r\nContent-Type: text/plain; charset=us-ascii", "é"), "is not plain ASCII"),
        (part(f"{NAMED}\r\nContent-Type: text/plain; charset=utf-7"), "content-type with parameters"),
        (part(f"{NAMED}\r\nContent-Type: text/plain; charset=utf-8; format=flowed"), "content-type with parameters"),
        (part('Content-Disposition: attachment; name="a"'), "does not say its name"),
        (part('Content-Disposition: form-data; name="a"; name="b"'), "does not say its name"),
        (part('Content-Disposition: form-data; name="a\\"b"'), "does not say its name"),
        (part("Content-Disposition: form-data; name*=UTF-8''a"), "does not say its name"),
        (part(f"{NAMED}; filename*=UTF-8''a.wav"), "does not say its name"),
        (part(f"{NAMED}\r\n{NAMED}"), "cannot be read, or one twice"),
        (part(f"{NAMED}\r\n x: y"), "cannot be read, or one twice"),
        (part(f"{NAMED}\r\nContent-Transfer-Encoding: base64"), "other than binary and 8bit"),
        (part(f"{NAMED}\r\nX-Note: y"), '"x-note", which is not read'),
        (part(f"{NAMED}\r\nContent-Type: text/plain; charset=utf-16"), "content-type with parameters"),
        (part(f"{NAMED}\r\nContent-Type: multipart/mixed"), "parts of its own"),
        (part(f"{NAMED}\r\nContent-Type: audio/wav"), "is no plain text"),
        (form({"a": "1"})[:-14] + form({"a": "2"}), '"a" twice'),
        (form({"a": "1", "A": "1"}).replace(b'"A"', b'"a"'), '"a" twice'),
        (form({"a": "1", "b": ["2"]}).replace(b'"b[]"', b'"a[]"'), "both alone and as a list"),
        (form({"a": ["1"], "b": SOUND}).replace(b'"b"', b'"a[]"'), r'"a\[\]" twice'),
        (form({f"a{i}": "" for i in range(501)}), "501 parts"),
        (part(NAMED).replace(b"\r\nx\r\n", b"\r\n\xff\r\n"), "not UTF-8"),
    ],
)  # fmt: skip
def test_what_two_readers_may_read_differently_is_refused(body: bytes, words: str):
    with pytest.raises(WireError, match=words) as refused:
        read_form(body, KIND)

    assert refused.value.code == "bad_request"


SAID = 'Content-Disposition: form-data; name="model"'
SOUND_HEAD = "Content-Disposition: form-data; name=file; filename={}; filename*=utf-8''{}"


@pytest.mark.parametrize(
    "heads",
    [
        # .NET's MultipartFormDataContent
        (
            "Content-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=model",
            SOUND_HEAD.format("a.wav", "a.wav"),
        ),
        (SAID, SOUND_HEAD.format('"my a.wav"', "my%20a.wav")),
        (f"{SAID}\r\nContent-Transfer-Encoding: binary", "Content-Disposition: form-data; name=file; filename=a.wav"),
        (
            f"{SAID}\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: 8bit",
            SOUND_HEAD.format("a.wav", "a.wav") + "\r\nContent-Transfer-Encoding: Binary",
        ),
        (f"{SAID}\r\nContent-Type: text/plain; charset=ISO-8859-1", SOUND_HEAD.format("a.wav", "a.wav")),
        (f'{SAID}\r\nContent-Type: text/plain;charset="us-ascii"', SOUND_HEAD.format("a.wav", "a.wav")),
    ],
)
def test_what_real_clients_write_is_read_as_others_read_it(heads: tuple[str, str]):
    body = b"".join(part(head, data)[:-14] for head, data in zip(heads, ("whisper-1", "RIFF\r\n\r\n"), strict=True))
    body += f"--{BOUNDARY}--\r\n".encode()

    found = read_form(body, KIND)

    assert found.texts == {"model": ("whisper-1",)} == by_python(body).texts == by_werkzeug(body).texts
    (file,) = found.files["file"]
    for (other,) in (by_werkzeug(body).files["file"], by_python(body).files["file"]):
        assert (file.name, bytes(file.data)) == (other.name, other.data)


@pytest.mark.parametrize("place", [-1, 0, 1, 3, 9, 11])
@pytest.mark.parametrize("mark", ["\r\n--b0undary", "\n--b0undary", "\r--b0undary"])
def test_a_boundary_is_found_wherever_it_stands_among_the_pieces_of_a_large_form(place: int, mark: str):
    """The last byte of the mark is the first of a piece, or the first its last, or it lies between."""
    before = len(part(NAMED, "")) - len(part("", "")) + len(f"--{BOUNDARY}\r\n\r\n\r\n")
    data = "x" * (2 * PIECE - before - place)
    body = part(NAMED, data + mark + '\r\nContent-Disposition: form-data; name="b"\r\n\r\ny')

    if mark.startswith("\r\n"):
        assert read_form(body, KIND).texts == {"a": (data,), "b": ("y",)}
    else:
        with pytest.raises(WireError, match="boundary in it"):
            read_form(body, KIND)


def test_a_text_of_several_pieces_is_whole():
    text = "é" + "x" * (PIECE - 2) + "é" * PIECE  # one letter lies on both sides of a cut

    assert read_form(part(NAMED, text), KIND).texts == {"a": (text,)}


def test_a_large_file_is_not_copied():
    body = form({"file": SOUND | {"data": "x" * (1 << 20)}})
    tracemalloc.start()
    try:
        read_form(body, KIND)
        assert tracemalloc.get_traced_memory()[1] < PIECE
    finally:
        tracemalloc.stop()


class Watched(bytes):
    """A body that notes over how many bytes a search may run."""

    longest = 0

    def find(self, sub: bytes, start: int = 0, end: int | None = None) -> int:
        stop = len(self) if end is None else min(end, len(self))
        self.longest = max(self.longest, stop - start)
        return super().find(sub, start, stop)


def test_no_search_runs_over_more_than_a_piece():
    body = Watched(form({"file": SOUND | {"data": "\r\n--b0undar" * 90_000}, "model": "x"}))

    assert read_form(body, KIND).texts == {"model": ("x",)}
    assert 0 < body.longest < PIECE + 20


def test_a_form_of_very_many_parts_is_not_read_to_its_end():
    body = b"--b0undary" + b"\r\n--b0undary" * 400_000
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="501 parts or more"):
            read_form(body, KIND)
        assert tracemalloc.get_traced_memory()[1] < PIECE
    finally:
        tracemalloc.stop()


def test_only_a_form_is_one():
    assert is_form(KIND)
    assert is_form(" Multipart/related")
    assert not is_form("application/json")
    assert not is_form("")


def by_werkzeug(body: bytes) -> Form:
    texts, files = MultiPartParser(lambda *_, **__: io.BytesIO()).parse(io.BytesIO(body), BOUNDARY.encode(), len(body))
    return Form(
        {name: tuple(items) for name, items in texts.lists()},
        {
            name: tuple(File(one.filename, (one.content_type or "").lower(), one.stream.read()) for one in items)
            for name, items in files.lists()
        },
    )


def by_python(body: bytes) -> Form:
    texts: dict[str, list] = {}
    files: dict[str, list] = {}
    for one in email.message_from_bytes(f"Content-Type: {KIND}\r\n\r\n".encode() + body).get_payload():
        name, data = one.get_param("name", header="content-disposition"), one.get_payload(decode=True)
        if one.get_filename(None) is None:
            texts.setdefault(name, []).append(data.decode())
        else:
            files.setdefault(name, []).append(File(one.get_filename(), one.get_content_type(), data))
    return Form({n: tuple(v) for n, v in texts.items()}, {n: tuple(v) for n, v in files.items()})


BITS = st.sampled_from(
    [b"--", b"\r\n", b"\n", b"\r", b"b0undary", b"--b0undary", b"\r\n--b0undary", b"; ", b'name="a"', b'"', b"x", b"\\",
     b"Content-Disposition: form-data; ", b"Content-Type: text/plain", b"filename=", b"\r\n\r\n",
     b"name=a", b"filename=a.wav", b"; filename*=utf-8''a.wav", b"Content-Transfer-Encoding: 8bit\r\n", b"; charset=ISO-8859-1"]
)  # fmt: skip
TREES = st.dictionaries(
    st.sampled_from(["model", "n", "file", "a b"]),
    st.text(st.characters(codec="ascii", exclude_characters="\r"), max_size=20) | st.lists(st.just("x"), max_size=2),
    max_size=4,
)


@settings(max_examples=400, deadline=None)
@given(told=TREES, places=st.lists(st.tuples(st.integers(0, 10**6), BITS, st.integers(0, 6)), max_size=3))
def test_what_is_read_is_what_others_read(told: dict, places: list[tuple[int, bytes, int]]):
    """Forms that are broken anywhere: of those that pass here, other readers make the same fields."""
    body = form({**told, "sound": SOUND})
    for place, bit, left_out in places:
        at = place % (len(body) + 1)
        body = body[:at] + bit + body[at + left_out :]
    try:
        found = read_form(body, KIND)
    except WireError:
        return

    assert found == by_werkzeug(body)
    if b"\n" not in b"".join(text.encode() for texts in found.texts.values() for text in texts):
        assert found.texts == by_python(body).texts  # it brings line ends into one form
