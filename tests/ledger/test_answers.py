import asyncio
import threading
from concurrent.futures import Future

import pytest

from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.answers import answer_of, answer_within


def test_an_answer_from_another_thread_is_awaited():
    async def ask():
        future = Future()
        threading.Thread(target=future.set_result, args=(7,)).start()
        return await answer_of(future)

    assert asyncio.run(ask()) == 7


def test_an_answer_that_is_there_already_or_comes_in_the_loop_is_given():
    async def ask():
        there, later = Future(), Future()
        there.set_result(1)
        asyncio.get_running_loop().call_soon(later.set_result, 2)
        return await answer_of(there), await answer_of(later)

    assert asyncio.run(ask()) == (1, 2)


def test_a_fault_is_raised():
    async def ask():
        future = Future()
        future.set_exception(LedgerUnavailable("no"))
        await answer_of(future)

    with pytest.raises(LedgerUnavailable):
        asyncio.run(ask())


def test_who_stops_waiting_takes_the_question_back():
    async def ask():
        future = Future()
        task = asyncio.ensure_future(answer_of(future))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), future.cancelled()

    assert asyncio.run(ask()) == (True, True)


def test_a_late_answer_is_none_and_not_cancelled():
    async def ask():
        future = Future()
        return await answer_within(future, 0), future.cancelled()

    assert asyncio.run(ask()) == (None, False)


def test_an_answer_in_time_is_given():
    async def ask():
        future = Future()
        asyncio.get_running_loop().call_soon(future.set_result, 3)
        return await answer_within(future, 60)

    assert asyncio.run(ask()) == 3
