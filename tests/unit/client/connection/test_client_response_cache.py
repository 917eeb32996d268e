from __future__ import annotations

import asyncio

import pytest

from goqueue.client.connection.response_cache import Answers
from goqueue.model.errors import ClientClosed


async def test_what_is_forgotten_while_it_is_asked_for_is_asked_for_again() -> None:
    answers: Answers[str, int] = Answers(10)
    numbers = iter(range(10))
    gate = asyncio.Event()

    async def ask() -> int:
        number = next(numbers)
        await gate.wait()
        return number

    before = asyncio.ensure_future(answers.get("a", ask))
    other = asyncio.ensure_future(answers.get("b", ask))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answers.forget(lambda key: key == "a")
    after = asyncio.ensure_future(answers.get("a", ask))
    await asyncio.sleep(0)
    gate.set()
    assert [await before, await other, await after] == [0, 1, 2]
    assert (answers.known("a"), answers.known("b")) == (2, 1)


async def test_closing_ends_also_a_question_that_was_forgotten() -> None:
    answers: Answers[str, int] = Answers(10)

    async def ask() -> int:
        await asyncio.Event().wait()
        return 0

    asking = asyncio.ensure_future(answers.get("a", ask))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answers.forget(lambda _: True)
    await answers.close()
    with pytest.raises(ClientClosed):
        await asking
