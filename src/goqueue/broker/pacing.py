"""Long work on the loop is done in stretches, so that nobody else waits for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

_AT_A_STRETCH = 1_000
"""Messages: a millisecond or two, whatever is done with them here."""


async def in_stretches(items: Sequence[Item]) -> AsyncIterator[Sequence[Item]]:
    """All items in order, giving way to others between two stretches."""
    if len(items) <= _AT_A_STRETCH:
        yield items
        return
    for start in range(0, len(items), _AT_A_STRETCH):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + _AT_A_STRETCH]
