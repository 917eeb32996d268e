"""What happens if one of the places in the broker that wait until something is on the disk does not wait."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import disk_sites
import goqueue
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.registry.schema_registry import SchemaRegistry
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log

_SOURCE = Path(goqueue.__file__).parent


def site_of(frame: FrameType, call: str) -> str:
    """The site in the source under test that makes this call now, or the line of whoever else does."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(_SOURCE):
        return f"{path.name}:{frame.f_lineno}"
    return disk_sites.site_at(path.relative_to(_SOURCE).as_posix(), frame.f_lineno, call)


@contextmanager
def without(ignored: str) -> Iterator[set[str]]:
    """The wait at one site does nothing, as if someone had deleted it. Yields the sites that were reached."""
    reached: set[str] = set()
    settled, reach, on_disk = Journal.settled, GroupCommit.reached, SchemaRegistry.on_disk
    group_settled, all_settled = ActiveGroup.settled, Journal.all_settled
    acknowledge, durable, sync = Partition.acknowledge, Partition.durable, GroupCommit.sync

    def is_ignored(call: str) -> bool:
        site = site_of(sys._getframe(2), call)
        reached.add(site)
        return site == ignored

    def settled_or_not(self: Journal[Any], begun: asyncio.Future[None] | None = None) -> Awaitable[None]:
        return _at_once() if is_ignored("settled") else settled(self, begun)

    def group_settled_or_not(self: ActiveGroup) -> Awaitable[None]:
        return _at_once() if is_ignored("settled") else group_settled(self)

    def all_settled_or_not(journals: Collection[Journal[Any]]) -> Awaitable[None]:
        return _at_once() if is_ignored("all_settled") else all_settled(journals)

    def on_disk_or_not(self: SchemaRegistry) -> Awaitable[None]:
        return _at_once() if is_ignored("on_disk") else on_disk(self)

    def reached_or_not(self: GroupCommit, log: Log, offset: int) -> Awaitable[None]:
        return reach(self, log, 0 if is_ignored("reached") else offset)

    def durable_or_not(self: Partition, end_offset: int) -> Awaitable[None]:
        return durable(self, 0 if is_ignored("durable") else end_offset)

    def acknowledge_or_not(self: Partition, end_offset: int) -> Awaitable[None]:
        if not is_ignored("acknowledge"):
            return acknowledge(self, end_offset)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def sync_or_not(self: GroupCommit, logs: Iterable[Log]) -> Awaitable[None]:
        return _at_once() if is_ignored("sync") else sync(self, logs)

    Journal.settled = settled_or_not  # type: ignore[method-assign,assignment]
    ActiveGroup.settled = group_settled_or_not  # type: ignore[method-assign,assignment]
    Journal.all_settled = staticmethod(all_settled_or_not)  # type: ignore[method-assign,assignment]
    SchemaRegistry.on_disk = on_disk_or_not  # type: ignore[method-assign,assignment]
    GroupCommit.reached = reached_or_not  # type: ignore[method-assign,assignment]
    Partition.durable = durable_or_not  # type: ignore[method-assign,assignment]
    Partition.acknowledge = acknowledge_or_not  # type: ignore[method-assign,assignment]
    GroupCommit.sync = sync_or_not  # type: ignore[method-assign,assignment]
    try:
        yield reached
    finally:
        Journal.settled = settled  # type: ignore[method-assign]
        ActiveGroup.settled = group_settled  # type: ignore[method-assign]
        Journal.all_settled = staticmethod(all_settled)  # type: ignore[method-assign]
        SchemaRegistry.on_disk = on_disk  # type: ignore[method-assign]
        GroupCommit.reached = reach  # type: ignore[method-assign]
        Partition.durable = durable  # type: ignore[method-assign]
        Partition.acknowledge = acknowledge  # type: ignore[method-assign]
        GroupCommit.sync = sync  # type: ignore[method-assign]


async def _at_once() -> None:
    return None
