"""Calls to a broker that take as long as a test wants, or whose answers are lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from doubles.connections import name_of, wrap

from goqueue.model.errors import BrokerUnavailable


class HeldCalls:
    """Calls of one method wait, before they leave or with their answers, until they may ``go``."""

    def __init__(self, patch: pytest.MonkeyPatch, method: str, *, answered: bool = False) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        name = "publish" if method == "publish" else "call"

        def holding(original: Any) -> Any:
            async def held(connection: Any, *args: Any, **options: Any) -> Any:
                if name == "call" and name_of(args[0]) != method:
                    return await original(connection, *args, **options)
                answer = await original(connection, *args, **options) if answered else None
                self.reached.set()
                await self.go.wait()
                return answer if answered else await original(connection, *args, **options)

            return held

        wrap(patch, name, holding)


def answer_instead(patch: pytest.MonkeyPatch, method: str, *answers: Exception) -> None:
    """What the first calls of a method are answered, when the broker has done what they ask for."""
    left = list(answers)

    def answering(original: Any) -> Any:
        async def call(connection: Any, called: Any, *args: Any, **options: Any) -> Any:
            try:
                return await original(connection, called, *args, **options)
            finally:
                if name_of(called) == method and left:
                    raise left.pop(0)

        return call

    wrap(patch, "call", answering)


def lost() -> BrokerUnavailable:
    return BrokerUnavailable("the answer was lost")
