"""Lets test functions be coroutines: a folder's ``conftest.py`` imports the hook."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

PATIENCE_S = 110.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(_within_patience(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted})))
    return True


async def _within_patience(test: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await test


async def until(condition: Any, within_s: float = 30.0) -> None:
    """Return as soon as ``condition`` holds; fail if it never does."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
