from __future__ import annotations

import asyncio

import pytest

from goqueue.client.connection.response_cache import ResponseCache
from goqueue.model.errors import ClientClosed


async def test_what_is_forgotten_while_it_is_asked_for_is_asked_for_again() -> None:
    cache: ResponseCache[str, int] = ResponseCache(10)
    numbers = iter(range(10))
    gate = asyncio.Event()

    async def fetch() -> int:
        number = next(numbers)
        await gate.wait()
        return number

    before = asyncio.ensure_future(cache.get("a", fetch))
    other = asyncio.ensure_future(cache.get("b", fetch))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cache.forget(lambda key: key == "a")
    after = asyncio.ensure_future(cache.get("a", fetch))
    await asyncio.sleep(0)
    gate.set()
    assert [await before, await other, await after] == [0, 1, 2]
    assert (cache.cached("a"), cache.cached("b")) == (2, 1)


async def test_closing_ends_also_a_question_that_was_forgotten() -> None:
    cache: ResponseCache[str, int] = ResponseCache(10)

    async def fetch() -> int:
        await asyncio.Event().wait()
        return 0

    asking = asyncio.ensure_future(cache.get("a", fetch))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cache.forget(lambda _: True)
    await cache.close()
    with pytest.raises(ClientClosed):
        await asking
