from __future__ import annotations

import asyncio

import pytest
from doubles.async_tests import until

from goqueue.client.producer.send_buffer import SendBuffer
from goqueue.model.errors import BufferFull, DeliveryTimeout


def soon() -> float:
    return asyncio.get_running_loop().time() + 0.02


def far() -> float:
    return asyncio.get_running_loop().time() + 60


def taking(buffer: SendBuffer, size: int, deadline: float | None = None) -> asyncio.Task[None]:
    return asyncio.create_task(buffer.reserve(size, far() if deadline is None else deadline))


async def test_what_fits_is_taken_at_once() -> None:
    buffer = SendBuffer(100, block=True)
    await buffer.reserve(60, far())
    await buffer.reserve(40, far())
    assert buffer.used_bytes == 100


async def test_one_message_fits_an_empty_buffer_whatever_its_size() -> None:
    buffer = SendBuffer(100, block=False)
    await buffer.reserve(1_000, far())
    with pytest.raises(BufferFull, match="buffer_bytes"):
        await buffer.reserve(1, far())


async def test_whoever_does_not_want_to_wait_is_refused_and_takes_nothing() -> None:
    buffer = SendBuffer(100, block=False)
    await buffer.reserve(90, far())
    with pytest.raises(BufferFull):
        await buffer.reserve(11, far())
    assert buffer.used_bytes == 90


async def test_who_came_first_gets_room_first_even_if_a_later_one_would_fit() -> None:
    buffer = SendBuffer(100, block=True)
    await buffer.reserve(90, far())
    large = taking(buffer, 50)
    await asyncio.sleep(0)
    small = taking(buffer, 5)
    await asyncio.sleep(0)
    assert not small.done()
    buffer.release(90)
    await large
    await small
    assert buffer.used_bytes == 55


async def test_waiting_ends_at_the_deadline_and_leaves_nothing_taken() -> None:
    buffer = SendBuffer(100, block=True)
    await buffer.reserve(100, far())
    with pytest.raises(DeliveryTimeout):
        await buffer.reserve(1, soon())
    buffer.release(100)
    assert buffer.used_bytes == 0
    await buffer.reserve(100, far())


async def test_someone_who_gives_up_lets_the_next_one_in() -> None:
    buffer = SendBuffer(100, block=True)
    await buffer.reserve(60, far())
    large = taking(buffer, 100)
    await asyncio.sleep(0)
    small = taking(buffer, 10)
    await asyncio.sleep(0)
    large.cancel()
    await small
    assert buffer.used_bytes == 70


async def test_room_that_comes_in_the_moment_of_giving_up_is_not_lost() -> None:
    buffer = SendBuffer(100, block=True)
    await buffer.reserve(100, far())
    first, second = taking(buffer, 100), taking(buffer, 100)
    await asyncio.sleep(0)
    first.cancel()
    # The turn is cancelled already, its owner has not run yet.
    buffer.release(100)
    await second
    assert (first.cancelled(), buffer.used_bytes) == (True, 100)


async def test_room_that_was_given_just_before_giving_up_goes_to_the_next() -> None:
    buffer = SendBuffer(100, block=True)
    await buffer.reserve(100, far())
    first, second = taking(buffer, 100), taking(buffer, 100)
    await asyncio.sleep(0)
    buffer.release(100)
    first.cancel()
    await second
    assert buffer.used_bytes == 100
    buffer.release(100)
    await until(lambda: buffer.used_bytes == 0)
