"""A form is read as every other reader reads it, or not at all."""

import email
import io

import pytest
from forms import BOUNDARY, form
from hypothesis import given, settings
from hypothesis import strategies as st
from werkzeug.formparser import MultiPartParser

from lockpin_core.errors import WireError
from lockpin_core.wire.multipart import File, Form, is_form, read_form

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
        (part('Content-Disposition: form-data; name=a'), "does not say its name"),
        (part('Content-Disposition: attachment; name="a"'), "does not say its name"),
        (part('Content-Disposition: form-data; name="a"; name="b"'), "does not say its name"),
        (part('Content-Disposition: form-data; name="a\\"b"'), "does not say its name"),
        (part("Content-Disposition: form-data; name*=UTF-8''a"), "does not say its name"),
        (part(f"{NAMED}; filename*=UTF-8''a.wav"), "does not say its name"),
        (part(f"{NAMED}\r\n{NAMED}"), "cannot be read, or one twice"),
        (part(f"{NAMED}\r\n x: y"), "cannot be read, or one twice"),
        (part(f"{NAMED}\r\nContent-Transfer-Encoding: base64"), '"content-transfer-encoding", which is not read'),
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
            name: tuple(File(one.filename, one.content_type.lower(), one.stream.read()) for one in items)
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
     b"Content-Disposition: form-data; ", b"Content-Type: text/plain", b"filename=", b"\r\n\r\n"]
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
