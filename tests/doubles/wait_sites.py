"""Places in the broker that wait until something is on the disk, and what happens if one of them does not."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import goqueue
from goqueue.broker.journal import Journal
from goqueue.storage.commit import CommitScheduler
from goqueue.storage.log import Log

_BROKER = Path(goqueue.__file__).parent / "broker"
_WAIT = re.compile(r"\.(settled|durable)\(")


def wait_sites() -> list[str]:
    """Every such line, as ``transfers.py:166``."""
    return [
        f"{path.name}:{number}"
        for path in sorted(_BROKER.glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _WAIT.search(line)
    ]


@contextmanager
def without(ignored: str) -> Iterator[set[str]]:
    """The wait at one place does nothing, as if someone had deleted it. Yields the places that were reached."""
    reached: set[str] = set()
    settled, durable = Journal.settled, CommitScheduler.durable

    def is_ignored() -> bool:
        frame = sys._getframe(2)
        site = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        reached.add(site)
        return site == ignored

    def settled_or_not(self: Journal[Any]) -> Awaitable[None]:
        return _at_once() if is_ignored() else settled(self)

    def durable_or_not(self: CommitScheduler, log: Log, offset: int) -> Awaitable[None]:
        return durable(self, log, 0 if is_ignored() else offset)

    Journal.settled = settled_or_not  # type: ignore[method-assign,assignment]
    CommitScheduler.durable = durable_or_not  # type: ignore[method-assign,assignment]
    try:
        yield reached
    finally:
        Journal.settled = settled  # type: ignore[method-assign]
        CommitScheduler.durable = durable  # type: ignore[method-assign]


async def _at_once() -> None:
    return None
