"""Work on bodies: small ones at once, others in a thread, very large ones in another, behind which nobody stands."""

import asyncio
import sys
import threading

import pytest

from lockpin_core import aside
from lockpin_core.aside import ON_LOOP_BYTES, Steps, at_once, beside_loop, here_or_in_turns, in_turns, take_short_turns
from lockpin_core.errors import WireError

MEGABYTE = 1 << 20


def thread_of(size: int) -> int:
    return asyncio.run(beside_loop(size, threading.get_ident))


def test_small_body_is_read_at_once():
    assert thread_of(ON_LOOP_BYTES) == threading.get_ident()


def test_larger_body_is_read_in_a_thread():
    assert thread_of(ON_LOOP_BYTES + 1) not in (threading.get_ident(), thread_of(MEGABYTE + 1))


@pytest.mark.parametrize("size", [1, ON_LOOP_BYTES + 1, MEGABYTE + 1])
def test_error_of_the_work_comes_through(size: int):
    def fail() -> None:
        raise WireError("the body is no JSON")

    with pytest.raises(WireError, match="the body is no JSON"):
        asyncio.run(beside_loop(size, fail))


def test_ordinary_body_does_not_stand_behind_a_very_large_one():
    done = threading.Event()

    async def both() -> str:
        large = asyncio.create_task(beside_loop(MEGABYTE + 1, lambda: done.wait(30)))
        await asyncio.sleep(0)
        found = await beside_loop(ON_LOOP_BYTES + 1, lambda: "read")
        assert not large.done()
        done.set()
        assert await large
        return found

    assert asyncio.run(both()) == "read"


def in_steps(sizes: list[int], seen: list[int]) -> Steps[str]:
    for size in sizes:
        seen.append(threading.get_ident())
        yield size
    return "all read"


@pytest.mark.parametrize("size", [1, ON_LOOP_BYTES + 1, MEGABYTE + 1])
def test_work_in_steps_is_done_in_the_thread_for_bodies_of_its_size(size: int):
    seen: list[int] = []

    assert asyncio.run(in_turns(size, in_steps([1, 2, 3], seen))) == "all read"

    assert {*seen} == {thread_of(max(size, ON_LOOP_BYTES + 1))}


def test_after_a_megabyte_of_steps_others_have_the_thread_and_small_steps_count_too():
    """Here two steps of half a megabyte, or sixty-four tiny ones."""
    for sizes, turns in (([MEGABYTE // 2] * 10, 2), ([1] * 320, 64)):
        began, seen, order = threading.Event(), [], []

        def work(sizes=sizes, began=began, seen=seen) -> Steps[str]:
            for step in in_steps(sizes, seen):
                began.wait(30)  # until the other is in the queue
                yield step
            return "all read"

        async def both(work=work, began=began, seen=seen, order=order) -> None:
            long = asyncio.create_task(in_turns(ON_LOOP_BYTES + 1, work()))
            await asyncio.sleep(0)
            short = asyncio.create_task(beside_loop(ON_LOOP_BYTES + 1, lambda: order.append(len(seen))))
            await asyncio.sleep(0)
            began.set()
            assert await long == "all read"
            await short

        asyncio.run(both())
        assert order == [turns]


@pytest.mark.parametrize(
    ("sizes", "here"),
    [([], 0), ([ON_LOOP_BYTES], 1), ([1] * 100, 100), ([ON_LOOP_BYTES, 1, 1, 1], 2), ([MEGABYTE, 1], 1)],
)
def test_work_that_turns_out_to_be_large_goes_on_in_a_thread(sizes: list[int], here: int):
    """A few packed bytes may unpack to very many: what is known of a step is what it has unpacked."""
    seen: list[int] = []

    assert asyncio.run(here_or_in_turns(100, in_steps(sizes, seen))) == "all read"

    assert [thread == threading.get_ident() for thread in seen] == [True] * here + [False] * (len(sizes) - here)


def test_error_of_a_step_comes_through():
    def fail() -> Steps[None]:
        yield 1
        raise WireError("the body is no JSON")

    with pytest.raises(WireError, match="the body is no JSON"):
        asyncio.run(in_turns(1, fail()))
    with pytest.raises(WireError, match="the body is no JSON"):
        at_once(fail())
    with pytest.raises(WireError, match="the body is no JSON"):
        asyncio.run(here_or_in_turns(1, fail()))


def test_work_in_steps_can_be_done_where_it_stands():
    seen: list[int] = []

    assert at_once(in_steps([MEGABYTE] * 3, seen)) == "all read"
    assert seen == [threading.get_ident()] * 3


def test_threads_take_turns_more_often_than_a_millisecond_and_never_less_often_than_before():
    before = sys.getswitchinterval()
    try:
        take_short_turns()
        assert sys.getswitchinterval() < 0.001
        sys.setswitchinterval(0.0001)
        take_short_turns()
        assert sys.getswitchinterval() <= 0.0001
    finally:
        sys.setswitchinterval(before)


def test_bodies_wait_for_no_more_than_two_threads():
    assert aside._ordinary._max_workers == aside._large._max_workers == 1
