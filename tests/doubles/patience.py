"""How long tests wait. What fails for being late says so by ``TooLate``: such a test is run once more, alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

PATIENCE_S = 60.0
"""A sound thing takes a fraction of it, on a machine that is busy with others as well."""


class TooLate(Exception):
    """Time has run out, which says nothing of whether the answer would have been right.

    No part of the product raises it. Every other failure is final (``tools/run_tests.py``).
    """


@contextmanager
def in_time(limit_s: float = PATIENCE_S) -> Iterator[None]:
    """What stands below must have ended within ``limit_s``; it is not interrupted."""
    began = time.monotonic()
    yield
    took_s = time.monotonic() - began
    if took_s > limit_s:
        raise TooLate(f"it took {took_s:.1f} s; at most {limit_s} s are expected")


@asynccontextmanager
async def patience(limit_s: float = PATIENCE_S) -> AsyncIterator[None]:
    """What stands below is interrupted after ``limit_s``."""
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TooLate(f"it was not done after {limit_s} s") from error
