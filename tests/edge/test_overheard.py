"""Free replies that are read beside the loop as they pass, all of them or nothing."""

import asyncio
import gzip
import itertools
import threading
import zlib
from collections.abc import Callable

import pytest
from lockpin_addons import overheard
from lockpin_addons.decode import ReplyDecoder
from lockpin_addons.overheard import MAX_KEPT_BYTES, MAX_UNREAD_BYTES, Overheard

from lockpin_core import aside
from lockpin_core.call import Reading


class Scanner:
    """Counts what it is fed, and where."""

    def __init__(self, feeding: Callable[[], object] = lambda: None) -> None:
        self.fed, self.most, self.threads, self._feeding = 0, 0, set(), feeding

    def feed(self, chunk: bytes) -> None:
        self._feeding()
        self.fed += len(chunk)
        self.most = max(self.most, len(chunk))
        self.threads.add(threading.get_ident())

    def result(self) -> Reading:
        self.threads.add(threading.get_ident())
        return Reading(generated_bytes=self.fed)


class Endless(Scanner):
    reads_any_length = True


def read(scanner: Scanner, *chunks: bytes, encoding: str | None = None) -> int | None:
    async def reading() -> Reading | None:
        reply = Overheard(scanner, ReplyDecoder(encoding))
        for chunk in chunks:
            reply.take(chunk)
        return await reply.reading()

    found = asyncio.run(reading())
    return None if found is None else found.generated_bytes


@pytest.mark.parametrize("chunks", [(), (b"x",), (b"x" * 100_000, b"y"), (b"x",) * 3000])
def test_all_of_it_is_read_in_a_thread(chunks):
    scanner = Scanner()

    assert read(scanner, *chunks) == sum(map(len, chunks))
    assert threading.get_ident() not in scanner.threads


def test_what_is_packed_is_read_in_pieces_of_a_bounded_size():
    scanner = Endless()

    assert read(scanner, gzip.compress(bytes(30 << 20)), encoding="gzip") == 30 << 20
    assert scanner.most <= overheard.STEP_BYTES


def test_it_passes_while_it_is_read():
    """What comes is taken at once though the reader stands still, and what comes later is read too."""
    goes_on = threading.Event()

    async def passing() -> int:
        reply = Overheard(scanner, ReplyDecoder(None))
        for _ in range(10):
            reply.take(b"x" * 1000)
            await asyncio.sleep(0)
        assert scanner.fed == 0
        reading = asyncio.create_task(reply.reading())
        await asyncio.sleep(0)
        assert not reading.done()
        goes_on.set()
        found = await reading
        assert found is not None
        return found.generated_bytes

    scanner = Scanner(lambda: goes_on.wait(30))
    assert asyncio.run(passing()) == 10_000


def test_between_pieces_it_is_taken_up_again():
    async def passing() -> int:
        reply = Overheard(Scanner(), ReplyDecoder(None))
        for _ in range(5):
            reply.take(b"x" * 1000)
            assert await reply.reading() is not None
        found = await reply.reading()
        assert found is not None
        return found.generated_bytes

    assert asyncio.run(passing()) == 5000


def test_where_too_much_waits_to_be_read_nothing_is_known_of_it():
    goes_on, chunk = threading.Event(), b"x" * (MAX_UNREAD_BYTES // 8)

    async def passing() -> tuple[Reading | None, bool, bool]:
        reply = Overheard(scanner, ReplyDecoder(None))
        for _ in range(9):
            reply.take(chunk)
        goes_on.set()
        found = await reply.reading()
        return found, bool(reply._unread), reply.is_lost

    scanner = Endless(lambda: goes_on.wait(30))
    assert asyncio.run(passing()) == (None, False, True)
    assert scanner.fed <= len(chunk)


def test_a_list_of_any_length_is_read_and_what_is_kept_has_a_bound():
    most = bytes(MAX_KEPT_BYTES)

    assert read(Endless(), most, b"x") == MAX_KEPT_BYTES + 1
    assert read(Scanner(), most) == MAX_KEPT_BYTES
    assert read(scanner := Scanner(), most, b"x") is None
    assert read(packed := Scanner(), gzip.compress(bytes(2 * MAX_KEPT_BYTES)), encoding="gzip") is None
    assert max(scanner.fed, packed.fed) <= MAX_KEPT_BYTES


@pytest.mark.parametrize("encoding", ["gzip", "unheard-of"])
def test_of_what_does_not_decode_nothing_is_known(encoding):
    assert read(Scanner(), b"no gzip", encoding=encoding) is None


def test_a_few_packed_bytes_leave_the_loop_free():
    """It may be very many lines, which take seconds: the loop goes on, and others have the thread in between."""
    line = b'{"custom_id":"r","result":{"type":"succeeded"}}\n'
    packed = zlib.compress(line * 200_000, 9)
    assert len(packed) < 64 << 10
    turns, scanner = [], Endless()

    async def passing() -> None:
        reply = Overheard(scanner, ReplyDecoder("deflate"))
        reply.take(packed)
        task = asyncio.create_task(reply.reading())
        while not task.done():  # each is one turn of the loop and one of the thread
            await aside.beside_loop(aside.LARGE_BYTES, lambda: turns.append(scanner.fed))
        await task

    asyncio.run(passing())
    assert scanner.fed == len(line) * 200_000
    assert max(after - before for before, after in itertools.pairwise([0, *turns])) <= 2 << 20
