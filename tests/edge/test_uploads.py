"""Files for free paths: they stream through with a used-up budget, up to 512 MB, and cost the proxy no memory."""

import contextlib
import hashlib
import json
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path

import client
import h2.config
import h2.connection
import h2.events
import processes
import pytest
from lockpin_addons import guard, uploads
from mitmproxy.test import tflow
from processes import until

HOSTS = ("api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com")
CONFIG = """
upstreams: {{{upstreams}}}
daily_usd: 0.000000001  # nothing fits
"""
MB, MIB = 10**6, 1 << 20
PIECE = bytes(range(256)) * 256
PATHS = {
    "openai": "/openai/v1/files",
    "openai part": "/openai/v1/uploads/upload_1/parts",
    "anthropic": "/anthropic/v1/files",
    "gemini": "/gemini/upload/v1beta/files?uploadType=resumable&upload_id=1",
}


@dataclass
class Upload:
    """What a sink saw of one request."""

    head: str
    size: int = 0
    digest: object = field(default_factory=hashlib.sha256)
    is_whole: bool = False


class Sink:
    """A loopback provider that reads files and keeps nothing of them."""

    def __init__(self):
        self.uploads: list[Upload] = []
        self.refuses_at: int | None = None  # answers 401 after so many bytes, and reads on
        self.server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.getsockname()[1]}"

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.server.accept()[0],), daemon=True).start()

    def serve(self, connection):
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as reader:
            while line := reader.readline():
                head = line
                while (line := reader.readline()) not in (b"\r\n", b""):
                    head += line
                upload = Upload(head.decode("latin-1"))
                self.uploads.append(upload)
                if not self.read(upload, reader, connection):
                    return
                upload.is_whole = True
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n" + b'{"id":"file_1"}')

    def read(self, upload, reader, connection):
        names = dict(line.lower().split(": ", 1) for line in upload.head.splitlines()[1:] if line)
        if names.get("transfer-encoding") == "chunked":
            while size := int(reader.readline() or b"-1", 16):
                if size < 0 or not self.take(upload, reader, size, connection):
                    return False
                reader.readline()
            reader.readline()
            return True
        return self.take(upload, reader, int(names.get("content-length", 0)), connection)

    def take(self, upload, reader, size, connection):
        while size:
            data = reader.read(min(size, 1 << 16))
            if not data:
                return False
            upload.size, size = upload.size + len(data), size - len(data)
            upload.digest.update(data)
            if self.refuses_at is not None and upload.size >= self.refuses_at:
                self.refuses_at = None
                connection.sendall(b"HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\n{}")
        return True


@dataclass
class Rig:
    sink: Sink
    proxy: processes.Proxy

    def resident_bytes(self, name):
        status = Path(f"/proc/{self.proxy.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith(f"{name}:")]
        return int(line.split()[1]) << 10

    def rows(self):
        return self.proxy.rows("SELECT * FROM rows WHERE kind NOT IN ('opening', 'event')")


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uploads")
    sink = Sink()
    config = CONFIG.format(upstreams=", ".join(f'{host}: "{sink.url}"' for host in HOSTS))
    with processes.proxy(folder, config, kind=request.param) as proxy:
        yield Rig(sink, proxy)
        assert "crashed" not in proxy.printed() and "fault of Lockpin" not in proxy.printed()
    sink.server.close()


def head_of(rig, path, *, method="POST", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{rig.proxy.port}", "Authorization: Bearer sk-test"]
    return ("\r\n".join([*lines, *(f"{name}: {value}" for name, value in named.items())]) + "\r\n\r\n").encode()


def send(rig, path, size, *, chunked=False, method="POST", **headers):
    """Upload so many bytes; give the reply and the digest of what was sent before it came."""
    frame = {"transfer_encoding": "chunked"} if chunked else {"content_length": str(size)}
    digest, left = hashlib.sha256(), size
    with socket.create_connection(("127.0.0.1", rig.proxy.port), 30) as connection:
        connection.settimeout(30)
        connection.sendall(head_of(rig, path, method=method, **frame, **headers))
        with contextlib.suppress(ConnectionError):
            while left:
                piece = PIECE[: min(left, len(PIECE))]
                connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                digest.update(piece)
                left -= len(piece)
            if chunked:
                connection.sendall(b"0\r\n\r\n")
        return client.read_all(connection, 30), digest.hexdigest()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("name", PATHS)
def test_a_file_larger_than_any_call_passes_whole_with_a_used_up_budget(rig, name, chunked):
    reply, digest = send(rig, PATHS[name], 70 * MIB, chunked=chunked, x_lockpin_task="files")

    assert reply.startswith(b"HTTP/1.1 200") and reply.endswith(b'{"id":"file_1"}')
    seen = rig.sink.uploads[-1]
    assert (seen.size, seen.digest.hexdigest(), seen.is_whole) == (70 * MIB, digest, True)
    assert seen.head.split(" ")[1] == "/" + PATHS[name].split("/", 2)[2]
    assert "x-lockpin" not in seen.head.lower()
    assert "Authorization: Bearer sk-test" in seen.head
    assert rig.rows() == []


def test_300_mb_leave_the_memory_flat(rig):
    send(rig, PATHS["openai"], 20 * MB)
    before = rig.resident_bytes("VmRSS")
    most_before = rig.resident_bytes("VmHWM")

    reply, digest = send(rig, PATHS["openai"], 300 * MB)

    assert reply.startswith(b"HTTP/1.1 200")
    assert rig.sink.uploads[-1].digest.hexdigest() == digest
    assert rig.resident_bytes("VmRSS") - before < 40 * MB
    assert rig.resident_bytes("VmHWM") - max(most_before, before) < 40 * MB


def test_one_that_says_it_is_over_512_mb_is_refused_before_a_byte_is_sent(rig):
    before = len(rig.sink.uploads)

    with socket.create_connection(("127.0.0.1", rig.proxy.port), 30) as connection:
        connection.sendall(head_of(rig, PATHS["anthropic"], content_length=str((512 << 20) + 1)) + PIECE)
        reply = client.read_all(connection)

    assert reply.startswith(b"HTTP/1.1 413")
    body = json.loads(reply.partition(b"\r\n\r\n")[2])
    assert body["type"] == "error" and body["error"]["type"] == "too_large"
    assert body["error"]["message"] == "lockpin: the file is larger than 512 MB, the most that passes at once"
    assert len(rig.sink.uploads) == before


def test_a_chunked_one_that_passes_512_mb_is_cut_off_and_never_looks_whole(rig):
    reply, _ = send(rig, PATHS["openai"], 513 << 20, chunked=True)

    assert reply.startswith(b"HTTP/1.1 413")
    assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_large"
    seen = rig.sink.uploads[-1]
    assert seen.size <= 512 << 20
    assert not seen.is_whole
    assert client.call(rig.proxy, "/openai/v1/models", method="GET").status == 200


def test_512_mb_pass_to_the_byte(rig):
    reply, digest = send(rig, PATHS["openai"], 512 << 20)

    assert reply.startswith(b"HTTP/1.1 200")
    assert rig.sink.uploads[-1].digest.hexdigest() == digest


def test_an_early_answer_of_the_provider_reaches_the_client(rig):
    rig.sink.refuses_at = 1 * MB
    reply, _ = send(rig, PATHS["openai"], 8 * MB)

    assert reply.startswith(b"HTTP/1.1 401")


def test_a_client_that_leaves_in_the_middle_ends_it_at_the_provider_too(rig):
    before = len(rig.sink.uploads)
    with socket.create_connection(("127.0.0.1", rig.proxy.port), 30) as connection:
        connection.sendall(head_of(rig, PATHS["openai"], content_length=str(50 * MB)))
        for _ in range(100):
            connection.sendall(PIECE)
        until(lambda: len(rig.sink.uploads) == before + 1 and rig.sink.uploads[-1].size)
    seen = rig.sink.uploads[-1]
    sizes = []
    until(lambda: sizes.append(seen.size) or (len(sizes) > 20 and sizes[-1] == sizes[-20]))

    assert not seen.is_whole
    assert seen.size <= 100 * len(PIECE)


def test_a_file_for_a_provider_that_is_slow_to_connect_is_not_read_into_memory(rig, tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as never_answers,
        processes.proxy(
            tmp_path, f'upstreams: {{api.openai.com: "https://127.0.0.1:{never_answers.getsockname()[1]}"}}', kind="up"
        ) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 30) as connection,
    ):
        connection.sendall(head_of(Rig(rig.sink, proxy), PATHS["openai"], content_length=str(300 * MB)))
        connection.settimeout(1)
        sent = 0
        with never_answers.accept()[0], pytest.raises(TimeoutError):
            while sent < 100 * MB:
                sent += connection.send(PIECE)

    assert sent < 20 * MB  # what the sockets' own buffers take, and a little


@pytest.mark.parametrize("path", ["/openai/v1/moderations", "/openai/v1/responses/input_tokens"])
def test_other_free_posts_keep_the_limit_of_a_request(rig, path):
    before = len(rig.sink.uploads)

    reply, _ = send(rig, path, 65 << 20)

    assert reply.startswith(b"HTTP/1.1 413")
    assert b"max_request_mb (64 MB)" in reply
    assert len(rig.sink.uploads) == before


@pytest.mark.parametrize("path", ["/openai/v1/chat/completions", "/openai/v1/batches", "/openai/v1/files/../responses"])
def test_nothing_that_costs_money_goes_by_that_way(rig, path):
    before = len(rig.sink.uploads)

    reply, _ = send(rig, path, 70 * MB)

    assert reply.startswith((b"HTTP/1.1 413", b"HTTP/1.1 403"))
    assert len(rig.sink.uploads) == before


def test_a_batch_is_refused_by_name_although_its_input_is_free(rig):
    answer = client.call(rig.proxy, "/openai/v1/batches", {"input_file_id": "file_1", "endpoint": "/v1/responses"})

    assert (answer.status, answer.code) == (403, "uncapped_call")
    assert "POST /v1/batches on api.openai.com cannot be metered" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    "headers", [{"x_lockpin_tag": "no tag"}, {"x_http_method_override": "PUT"}, {"x_lockpin_task": "a/b"}]
)
def test_a_header_that_would_refuse_a_call_refuses_a_file(rig, headers):
    before = len(rig.sink.uploads)

    reply, _ = send(rig, PATHS["openai"], 100, **headers)

    assert reply.startswith(b"HTTP/1.1 400")
    assert len(rig.sink.uploads) == before


@pytest.mark.parametrize("tail", [b"", b"0\r\n\r\n"])
def test_a_file_without_a_byte_passes(rig, tail):
    frame = {"transfer_encoding": "chunked"} if tail else {"content_length": "0"}
    with socket.create_connection(("127.0.0.1", rig.proxy.port), 30) as connection:
        connection.sendall(head_of(rig, PATHS["openai"], **frame) + tail)
        assert client.read_all(connection).startswith(b"HTTP/1.1 200")

    assert (rig.sink.uploads[-1].size, rig.sink.uploads[-1].is_whole) == (0, True)


def test_a_second_request_cannot_ride_in_a_files_body(rig):
    """What follows the declared length is judged as a request of its own."""
    inner = head_of(rig, "/openai/v1/batches", content_length="2") + b"{}"
    before = len(rig.sink.uploads)
    with socket.create_connection(("127.0.0.1", rig.proxy.port), 30) as connection:
        connection.sendall(head_of(rig, PATHS["openai"], content_length="5") + b"12345" + inner)
        first = client.read_all(connection)
        second = b"" if b"HTTP/1.1 403" in first else client.read_all(connection)

    assert b"HTTP/1.1 403" in first + second
    assert [upload.head.split(" ")[1] for upload in rig.sink.uploads[before:]] == ["/v1/files"]


def test_two_files_on_one_connection(rig):
    with socket.create_connection(("127.0.0.1", rig.proxy.port), 30) as connection:
        for _ in range(2):
            connection.sendall(head_of(rig, PATHS["anthropic"], content_length=str(len(PIECE))) + PIECE)
            assert client.read_all(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("headers", "streams"),
    [
        ({"content-length": "5"}, True),
        ({"transfer-encoding": "chunked"}, True),
        ({"transfer-encoding": "Chunked"}, True),
        ({}, False),  # over HTTP/2: no frame for a provider that speaks HTTP/1
        ({"content-length": "0"}, False),
        ({"content-length": "5, 5"}, False),
        ({"content-length": "٥"}, False),
        ({"content-length": "5", "transfer-encoding": "chunked"}, False),
        ({"transfer-encoding": "gzip, chunked"}, False),
        ({"content-length": "5", "upgrade": "websocket"}, False),
    ],
)
def test_only_a_plainly_framed_file_streams(headers, streams):
    assert uploads.can_stream(headers) is streams


def over_http2(rig, body, *, length):
    """Upload over HTTP/2; give the status, and whether the reply ended."""
    names = {":method": "POST", ":scheme": "https", ":authority": "api.openai.com", ":path": "/v1/files"}
    names |= {} if length is None else {"content-length": str(length)}
    wire = client.tls(client.tunnel(rig.proxy, "api.openai.com", 443), rig.proxy, "api.openai.com", ["h2"])
    connection = h2.connection.H2Connection(h2.config.H2Configuration())
    connection.initiate_connection()
    connection.send_headers(1, [*names.items()])
    for at in range(0, len(body), 16_000):
        connection.send_data(1, body[at : at + 16_000])
    if length in (None, len(body)):
        connection.end_stream(1)
    status = None
    with wire:
        wire.sendall(connection.data_to_send())
        while data := wire.recv(1 << 16):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    status = dict(event.headers)[b":status"]
                if isinstance(event, h2.events.StreamEnded):
                    return status
    return None


@pytest.mark.parametrize("length", [60_000, None])
def test_a_file_over_http2_arrives_with_its_length(rig, length):
    body = PIECE[:60_000]

    assert over_http2(rig, body, length=length) == b"200"
    seen = rig.sink.uploads[-1]
    assert (seen.size, seen.digest.hexdigest()) == (60_000, hashlib.sha256(body).hexdigest())
    assert "content-length: 60000" in seen.head.lower()


def test_a_refusal_over_http2_ends(rig):
    assert over_http2(rig, b"12345", length=600 << 20) == b"413"


@pytest.mark.parametrize(
    ("name", "value", "passes"),
    [("host", "front.test", False), ("path", "/v1/batches", False), ("method", "PUT", False), ("content", b"x", True)],
)
def test_what_a_file_was_let_through_for_cannot_be_changed_after_that(name, value, passes):
    flow = tflow.tflow()
    guard.permit(flow, parts=2)

    setattr(flow.request, name, value)

    assert guard._is_permitted(flow) is passes
    assert not guard._is_permitted(flow)  # it is for once


def test_a_whole_request_was_let_through_with_its_body():
    flow = tflow.tflow()
    guard.permit(flow)
    flow.request.content = b"another"

    assert not guard._is_permitted(flow)
