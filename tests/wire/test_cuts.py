"""However a reply is cut on its way, and however often it is asked for meanwhile, its reading is the same.

Over the recorded replies of every wire: streams and whole bodies, streams as one JSON array where Google sends them so,
in full and broken off at any byte, and read as what they are not.
"""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Parsed, Reading, Request
from lockpin_core.wire import WIRES
from lockpin_core.wire.protocol import StreamScanner, Wire
from lockpin_core.wire.sse import SseReader

DATA = Path(__file__).parents[1] / "data"
FOLDERS = {
    "compatible_completions": ("openai_completions",),
    "openai_compact": ("openai_responses",),
    "code_assist": ("code_assist", "gemini"),
}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TURNS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
ASKED = {
    "anthropic_messages": CHAT | {"max_tokens": 99},
    "anthropic_batches": {"requests": [{"custom_id": "a", "params": CHAT | {"max_tokens": 99}}]},
    "openai_responses": {"model": "m", "input": "hi"},
    "openai_completions": {"model": "m", "prompt": "hi"},
    "compatible_completions": {"model": "m", "prompt": "hi"},
    "openai_compact": {"model": "m", "input": "hi"},
    "openai_embeddings": {"model": "m", "input": "hi"},
    "gemini_interactions": {"model": "m", "input": "hi"},
    "openai_images": {"model": "m", "prompt": "hi"},
    "gemini": TURNS,
    "code_assist": {"model": "m", "request": TURNS},
    "bedrock_converse": {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
    "bedrock_invoke": {"max_tokens": 99, "messages": CHAT["messages"]},
}

BY_PATH = ("gemini", "code_assist", "bedrock_converse", "bedrock_invoke")  # whose path says whether they stream


def samples(wire: Wire) -> list[bytes]:
    """Give all that was recorded of a wire."""
    folders = [DATA / name for name in FOLDERS.get(wire.name, (wire.name,))]
    ends = (".sse", ".json", ".jsonl", ".bin")
    paths = sorted(path for folder in folders for path in folder.glob("*") if path.suffix in ends)
    bodies = [path.read_bytes() for path in paths if ".expect" not in path.name]
    arrays = [as_array(body) for body in bodies if b"usageMetadata" in body and b"data:" in body]
    return [*bodies, *arrays]


def as_array(stream: bytes) -> bytes:
    return b"[" + b",\r\n".join(event.data for event in SseReader().feed(stream)) + b"]"


def asked_of(wire: Wire, *, streamed: bool) -> Parsed | None:
    body = ASKED.get(wire.name)
    if body is None:
        return None
    path = "/v1beta/models/m:streamGenerateContent" if streamed else "/v1beta/models/m:generateContent"
    is_plain = "compact" in wire.name or wire.name in (*BY_PATH, "anthropic_batches")
    says = {} if is_plain else {"stream": streamed}
    model = "anthropic.m" if "bedrock" in wire.name else "m"
    return wire.parse(Request("POST", "h", path, {}, json.dumps(body | says).encode(), model))


def read(wire: Wire, pieces: list[bytes], *, streamed: bool, asked: Parsed | None, looks: bool = False) -> Reading:
    scanner = wire.scanner(streamed=streamed, asked=asked)
    for piece in pieces:
        scanner.feed(piece)
        if looks:
            assert scanner.result() == scanner.result()
    return scanner.result()


def cut(body: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(body) + 1) for place in places}), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@settings(max_examples=50, deadline=None)
@given(
    data=st.data(),
    places=st.lists(st.integers(0, 10**6), max_size=12),
    is_whole=st.booleans(),
    streamed=st.booleans(),
    was_asked=st.sampled_from([None, False, True]),
    looks=st.booleans(),
)
def test_a_reply_is_read_the_same_however_it_is_cut(
    wire: Wire,
    data: st.DataObject,
    places: list[int],
    is_whole: bool,
    streamed: bool,
    was_asked: bool | None,
    looks: bool,
):
    body = data.draw(st.sampled_from(samples(wire) or [b'{"usage": {"prompt_tokens": 3, "total_tokens": 3}}']))
    if not is_whole:
        body = body[: data.draw(st.integers(0, len(body)))]
    asked = None if was_asked is None else asked_of(wire, streamed=was_asked)

    found = read(wire, cut(body, places), streamed=streamed, asked=asked, looks=looks)

    assert found == read(wire, [body], streamed=streamed, asked=asked)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_reply_is_read_the_same_byte_by_byte(wire: Wire, streamed: bool):
    for body in samples(wire):
        asked = asked_of(wire, streamed=streamed)
        single = [body[place : place + 1] for place in range(len(body))]
        whole = read(wire, [body], streamed=streamed, asked=asked)

        assert read(wire, single, streamed=streamed, asked=asked) == whole


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_what_whole_events_have_said_is_all_that_a_stream_says_at_its_end(wire: Wire):
    streams = [body for body in samples(wire) if not body.startswith(b"{")]
    for body in streams:
        scanner = wire.scanner(streamed=True, asked=asked_of(wire, streamed=True))
        scanner.feed(body)

        assert not isinstance(scanner, StreamScanner) or scanner.so_far() == scanner.result()
