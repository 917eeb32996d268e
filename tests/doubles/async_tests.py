"""Lets test functions be coroutines: a folder's ``conftest.py`` imports the hook."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from doubles.patience import PATIENCE_S, patience
from doubles.virtual_time import VirtualTimeLoop

_WHOLE_TEST_S = 110.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    loop = VirtualTimeLoop if pyfuncitem.get_closest_marker("virtual_time") else None
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_within_patience(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted})))
    return True


async def _within_patience(test: Any) -> None:
    async with patience(_WHOLE_TEST_S):
        await test


async def until(condition: Any, within_s: float = PATIENCE_S) -> None:
    """Return as soon as ``condition`` holds; fail if it never does."""
    async with patience(within_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
