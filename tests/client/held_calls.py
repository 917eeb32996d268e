"""Calls to a broker that take as long as a test wants, or whose answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from goqueue.client.connection.connection import Connection
from goqueue.model.errors import BrokerUnavailable


class HeldCalls:
    """Calls of one method wait, before they leave or with their answers, until they may ``go``."""

    def __init__(self, patch: pytest.MonkeyPatch, method: str, *, answered: bool = False) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        name = "publish" if method == "publish" else "call"
        original: Any = getattr(Connection, name)

        async def held(connection: Connection, *args: Any, **options: Any) -> Any:
            if name == "call" and not _is(method, args[0]):
                return await original(connection, *args, **options)
            answer = await original(connection, *args, **options) if answered else None
            self.reached.set()
            await self.go.wait()
            return answer if answered else await original(connection, *args, **options)

        patch.setattr(Connection, name, held)


def answer_instead(patch: pytest.MonkeyPatch, method: str, *answers: Exception) -> None:
    """What the first calls of a method are answered, when the broker has done what they ask for."""
    original: Callable[..., Any] = Connection.call
    left = list(answers)

    async def call(connection: Connection, called: Any, *args: Any, **options: Any) -> Any:
        try:
            return await original(connection, called, *args, **options)
        finally:
            if _is(method, called) and left:
                raise left.pop(0)

    patch.setattr(Connection, "call", call)


def lost() -> BrokerUnavailable:
    return BrokerUnavailable("the answer was lost")


def _is(method: str, called: Any) -> bool:
    return called._method.decode().endswith(f"/{method}")
