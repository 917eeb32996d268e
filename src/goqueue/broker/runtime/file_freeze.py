"""Holding off whoever removes or replaces files of the data folder, for as long as a backup needs to link them.

Appending is not held off: bytes that are there stay as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FileFreeze:
    """Any number of changes at a time, or one hold. Neither may be asked for inside a change: it would wait for itself.

    Leaving a ``changing`` block never lets others run: what its caller does next comes before any hold.
    """

    def __init__(self) -> None:
        self._changes = 0
        self._holding = asyncio.Lock()
        self._wakened = asyncio.Event()
        """Set when a hold has ended, or the last change."""

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Files may be removed and replaced in this block. Waits while somebody holds them."""
        while self._holding.locked():
            self._wakened.clear()
            await self._wakened.wait()
        self._changes += 1
        try:
            yield
        finally:
            self._changes -= 1
            self._wakened.set()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """No file is removed or replaced in this block. Waits until those who do are done."""
        async with self._holding:
            try:
                while self._changes:
                    self._wakened.clear()
                    await self._wakened.wait()
                yield
            finally:
                self._wakened.set()
