"""Tunnels to hosts that are nobody's: a hello that names a provider, in whatever records, is never let through."""

import ssl
import time

import client
import processes
import pytest
from lockpin_addons.layers import UNREADABLE, hello_name


def hello(name="api.anthropic.com"):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def in_records(data, size, version=b"\x03\x01"):
    """Cut a hello's one record into many."""
    message = data[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16" + version + len(piece).to_bytes(2) + piece for piece in pieces)


HELLO = hello()
SHAPES = {
    "plain": HELLO,
    "version 0304": HELLO[:1] + b"\x03\x04" + HELLO[3:],
    "version 03ff": HELLO[:1] + b"\x03\xff" + HELLO[3:],
    "fragments": in_records(HELLO, 50),
    "fragments of one byte": in_records(HELLO, 1),
    "fragments, 0304": in_records(HELLO, 50, b"\x03\x04"),
    "empty record first": b"\x16\x03\x01\x00\x00" + HELLO,
    "alert first": b"\x15\x03\x01\x00\x02\x01\x5a" + HELLO,
    "cipher change first": b"\x14\x03\x03\x00\x01\x01" + HELLO,
    "SSL 2": b"\x80\x2e\x01\x03\x01" + b"\x00" * 43,
    "endless": b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + b"\x00" * 70_000,
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tunnels")
    cert, _ = processes.leaf(folder, ["api.anthropic.com", "front.alias.test"])
    with (
        processes.origin(folder, cert=cert) as origin,
        processes.proxy(folder, kind="up", environment={"RIG_RESOLVER": "1"}) as proxy,
    ):
        yield origin, proxy


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pieces", [1, 5])
def test_a_hello_that_names_a_provider_or_cannot_be_read_gets_no_answer(rig, shape, pieces):
    origin, proxy = rig
    data = SHAPES[shape]
    size = -(-len(data) // pieces)
    with client.tunnel(proxy, "front.alias.test", origin.port) as raw:
        try:
            for at in range(0, len(data), size):
                raw.sendall(data[at : at + size])
                time.sleep(0.02)  # so that the pieces arrive as pieces; nothing is waited for
        except ConnectionError:
            return
        assert client.read_all(raw) == b""


def test_a_hello_that_names_another_host_is_answered_by_that_host(rig):
    origin, proxy = rig
    with client.tunnel(proxy, "front.alias.test", origin.port) as raw:
        raw.sendall(in_records(hello("front.alias.test"), 50))
        assert raw.recv(1) == b"\x16"


@pytest.mark.parametrize("name", ["api.anthropic.com", "front.alias.test", "x" * 60 + ".test"])
@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
def test_a_name_is_read_from_any_records_and_not_before_it_is_whole(name, size):
    data = in_records(hello(name), size)

    assert hello_name(data) == name
    for cut in range(0, len(data), 13):
        assert hello_name(data[:cut]) in (None, name)


@pytest.mark.parametrize(
    "data", [b"\x16\x04\x01\x00\x01\x01", b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", b"\x15\x03\x01"]
)
def test_what_is_no_readable_hello_is_told(data):
    assert hello_name(data) == UNREADABLE
