"""Directory of partition leaders: which broker leads which partition, with a connection to each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from goqueue.client.connection.config import ClientConfig
from goqueue.client.connection.connection import Connection, NotConnected, to_exception
from goqueue.client.connection.retries import Attempt, Retrying
from goqueue.client.connection.tasks import cancel
from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.wire.proto import goqueue_pb2 as pb

Item = TypeVar("Item")
_BACKGROUND_TIMEOUT_S = 2.0


@dataclass(slots=True)
class _TopicLeaders:
    """Leader of each partition of one topic. Used for routing; refreshed once ``stale_at`` has passed."""

    leaders: list[str]
    stale_at: float


class Directory(Retrying):
    """Learns the leaders' addresses from the brokers."""

    def __init__(self, addresses: list[str], config: ClientConfig) -> None:
        super().__init__(addresses, config)
        self._leaders: dict[str, _TopicLeaders] = {}
        self._lookups: dict[str, asyncio.Task[_TopicLeaders]] = {}
        self._background: set[asyncio.Task[None]] = set()

    async def partitions(self, topic: str, within_ms: int | None = None) -> int:
        """Number of partitions of a topic. Once known it is returned without a call, so routing needs no broker."""
        self.check_open()
        entry = self._leaders.get(topic)
        if entry is None:
            try:
                async with asyncio.timeout(None if within_ms is None else within_ms / 1_000):
                    entry = await self._wait_for_leaders(topic)
            except TimeoutError:
                raise NotConnected(
                    f"nothing was sent: no broker told within {within_ms} ms how many partitions {topic!r} has"
                    + (f" ({self._last_error})" if self._last_error is not None else "")
                ) from self._last_error
        elif entry.stale_at <= asyncio.get_running_loop().time():
            self._look_up(topic)
        return len(entry.leaders)

    async def leader(self, topic: str, partition: int) -> Connection:
        self.check_open()
        entry = self._leaders.get(topic)
        if entry is None or entry.stale_at <= asyncio.get_running_loop().time():
            entry = await self._wait_for_leaders(topic)
        if not 0 <= partition < len(entry.leaders):
            raise error_no_partition(topic, partition, len(entry.leaders))
        return self.connection(entry.leaders[partition])

    def mark_stale(self, topic: str, error: GoQueueError) -> None:
        """Mark the leaders of a topic as stale after an error: they are looked up again before the next delivery."""
        if isinstance(error, errors.TopicNotFound | errors.PartitionNotFound):
            self._leaders.pop(topic, None)
        elif topic in self._leaders:
            self._leaders[topic].stale_at = 0.0

    def forget(self, topic: str) -> None:
        self._leaders.pop(topic, None)

    async def _wait_for_leaders(self, topic: str) -> _TopicLeaders:
        lookup = self._look_up(topic)
        try:
            return await asyncio.shield(lookup)
        except asyncio.CancelledError:
            if lookup.cancelled():
                self.check_open()
            raise

    def _look_up(self, topic: str) -> asyncio.Task[_TopicLeaders]:
        """Concurrent lookups of the same topic share one request."""
        lookup = self._lookups.get(topic)
        if lookup is None:
            lookup = self._lookups[topic] = asyncio.create_task(self._request_leaders(topic))
            lookup.add_done_callback(lambda task: self._lookup_done(topic, task))
        return lookup

    def _lookup_done(self, topic: str, task: asyncio.Task[_TopicLeaders]) -> None:
        self._lookups.pop(topic, None)
        if not task.cancelled() and isinstance(task.exception(), errors.TopicNotFound):
            self.forget(topic)

    async def _request_leaders(self, topic: str) -> _TopicLeaders:
        address, response = await self.any(lambda attempt: self._describe(attempt, topic))
        described = response.topics[0]
        if described.HasField("error"):
            raise to_exception(described.error)
        # A node that does not know its own public address is reached at the address that just answered.
        leaders = [response.nodes[index].address or address for index in described.leaders]
        until = asyncio.get_running_loop().time() + self.config.metadata_max_age_ms / 1_000
        entry = self._leaders[topic] = _TopicLeaders(leaders, until)
        return entry

    async def _describe(self, attempt: Attempt, topic: str) -> tuple[str, pb.DescribeClusterResponse]:
        broker = attempt.broker
        try:
            response = await attempt.query(broker.metadata.DescribeCluster, pb.DescribeClusterRequest(topics=[topic]))
        except errors.DeliveryTimeout as error:
            # The broker accepts connections and does not answer. A lookup has no effects: another broker can be tried.
            raise errors.BrokerUnavailable(str(error)) from None
        return broker.address, response

    def run_in_background(self, call: Coroutine[Any, Any, None]) -> None:
        """Run a call that no caller waits for. Closing the directory allows it a short time to finish."""
        task = asyncio.create_task(call)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self, *, at_exit: bool = False) -> None:
        if self._background:
            await asyncio.wait(self._background, timeout=_BACKGROUND_TIMEOUT_S)
        for call in self._background:
            call.cancel()
        self._closed = True
        await cancel(*self._lookups.values())
        for connection in self._connections.values():
            await connection.close(at_exit=at_exit)


def error_no_partition(topic: str, partition: int, count: int) -> errors.PartitionNotFound:
    return errors.PartitionNotFound(
        f"topic {topic!r} has partitions 0 to {count - 1}; there is no partition {partition}"
    )


async def items_of(pages: AsyncGenerator[list[Item], None]) -> AsyncGenerator[Item, None]:
    """The items of all pages, each page requested when the one before is used up."""
    async for page in pages:
        for item in page:
            yield item
