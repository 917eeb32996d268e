"""Ending of tasks."""

from __future__ import annotations

import asyncio
from typing import Any


async def cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks, and return when they have ended. ``None`` stands for one that was never started."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)
