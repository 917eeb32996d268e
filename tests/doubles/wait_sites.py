"""Places in the broker that wait until something is on the disk, and what happens if one of them does not."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import goqueue
from goqueue.broker.journal import Journal
from goqueue.broker.partition import Partition
from goqueue.storage.commit import CommitScheduler
from goqueue.storage.log import Log

_BROKER = Path(goqueue.__file__).parent / "broker"
_REFUSALS = "refused.py"
OF_TRANSACTIONS = {
    "transactions.py",
    "transaction_aborting.py",
    "transaction_committing.py",
    "transaction_ends.py",
    "transaction_keys.py",
    "transaction_preparing.py",
    "transaction_safekeeping.py",
    "producer_ids.py",
    "appending.py",
}
_ELSEWHERE = {_REFUSALS, *OF_TRANSACTIONS}
"""These have scripts of their own."""
_WAIT = re.compile(r"\.(settled|durable)\(")
_ACKNOWLEDGEMENT = re.compile(r"\.acknowledge\(|_commits\.sync\(")


def wait_sites() -> list[str]:
    """Every line that waits for the disk itself, as ``transfers.py:166``."""
    return _sites(_WAIT)


def acknowledgement_sites() -> list[str]:
    """Every line that has a partition wait, as its policy says, or brings all that a log holds to the disk."""
    return _sites(_ACKNOWLEDGEMENT)


def refusal_sites() -> list[str]:
    """Both kinds where messages are refused for their schema; these have scripts of their own."""
    return _sites(_WAIT, {_REFUSALS}) + _sites(_ACKNOWLEDGEMENT, {_REFUSALS})


def _sites(pattern: re.Pattern[str], only: set[str] | None = None) -> list[str]:
    return [
        f"{path.name}:{number}"
        for path in sorted(_BROKER.glob("*.py"))
        if (path.name in only if only else path.name not in _ELSEWHERE)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]


@contextmanager
def without(ignored: str) -> Iterator[set[str]]:
    """The wait at one place does nothing, as if someone had deleted it. Yields the places that were reached."""
    reached: set[str] = set()
    settled, durable = Journal.settled, CommitScheduler.durable
    acknowledge, sync = Partition.acknowledge, CommitScheduler.sync

    def is_ignored() -> bool:
        frame = sys._getframe(2)
        site = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        reached.add(site)
        return site == ignored

    def settled_or_not(self: Journal[Any]) -> Awaitable[None]:
        return _at_once() if is_ignored() else settled(self)

    def durable_or_not(self: CommitScheduler, log: Log, offset: int) -> Awaitable[None]:
        return durable(self, log, 0 if is_ignored() else offset)

    def acknowledge_or_not(self: Partition, end_offset: int) -> Awaitable[None]:
        if not is_ignored():
            return acknowledge(self, end_offset)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def sync_or_not(self: CommitScheduler, logs: Iterable[Log]) -> Awaitable[None]:
        return _at_once() if is_ignored() else sync(self, logs)

    Journal.settled = settled_or_not  # type: ignore[method-assign,assignment]
    CommitScheduler.durable = durable_or_not  # type: ignore[method-assign,assignment]
    Partition.acknowledge = acknowledge_or_not  # type: ignore[method-assign,assignment]
    CommitScheduler.sync = sync_or_not  # type: ignore[method-assign,assignment]
    try:
        yield reached
    finally:
        Journal.settled = settled  # type: ignore[method-assign]
        CommitScheduler.durable = durable  # type: ignore[method-assign]
        Partition.acknowledge = acknowledge  # type: ignore[method-assign]
        CommitScheduler.sync = sync  # type: ignore[method-assign]


async def _at_once() -> None:
    return None
