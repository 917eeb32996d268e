"""Deliveries of a queue, turned into leases and messages."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import length_hint
from time import time_ns
from typing import Any

from goqueue.client.connection.directory import Directory
from goqueue.client.consumer.delivery import AsyncReceivedMessage, DeliveryContext, Received, ReceivedMessage
from goqueue.client.consumer.handler_result import to_reject
from goqueue.client.consumer.leases import Lease, LeaseKeeper, granted_s
from goqueue.client.consumer.settler import Claim, Order, Settler
from goqueue.client.consumer.stream_source import TopicPartition
from goqueue.client.messages.schema_ids import schema_ids
from goqueue.client.messages.serializers import Deserializer, SchemaReader
from goqueue.model.errors import ClientClosed
from goqueue.model.fields import INHERITED, specs
from goqueue.model.logging import get_logger
from goqueue.model.topic_settings import TopicSettings
from goqueue.wire.batch import parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

_VISIBILITY = "visibility_timeout_ms"


class QueueBatch:
    """Messages of one lease. Those lost before they are handed out are skipped."""

    __slots__ = (
        "_ids",
        "_messages",
        "_remaining",
        "ends_answer",
        "lane",
        "left",
        "next_offset",
        "rest",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        next_offset: int,
        messages: Sequence[Received[Any]],
        ids: Collection[int] = (),
    ) -> None:
        self._ids = ids
        self.topic_partition = topic_partition
        self.next_offset = next_offset
        self.ends_answer = False
        self.lane = messages[0].priority if messages else 0
        self.left = len(messages)
        self.rest: Iterator[Received[Any]] | None = None
        self._messages = messages
        self._remaining = iter(messages)

    @property
    def has_more(self) -> bool:
        return length_hint(self._remaining) > 0

    @property
    def waiting(self) -> int:
        return length_hint(self._remaining)

    def cut(self, keep: int) -> list[Received[Any]]:
        """Remove and return everything after the next ``keep`` messages."""
        if self.waiting <= keep:
            return []
        remaining = list(self._remaining)
        self._messages, beyond = remaining[:keep], remaining[keep:]
        self._remaining, self.left = iter(self._messages), min(self.left, keep)
        if self.rest is not None:
            self.rest = filter(_is_open, self._remaining)
        return beyond

    def schema_ids(self) -> Collection[int]:
        """Schema ids of the values, if the deserializer needs them."""
        return self._ids

    def open(self, deserializer: Deserializer | None) -> Iterator[Received[Any]]:
        self._remaining = iter(self._messages)
        return filter(_is_open, self._remaining)


def _is_open(message: Received[Any]) -> bool:
    return message._message.offset in message._lease.left


class _DeliveryContext:
    def __init__(
        self, settler: Settler, deserializer: Deserializer | None, group: str = "", directory: Directory | None = None
    ) -> None:
        self.settler = settler
        self.group = group
        self.directory = directory
        self.loop = asyncio.get_running_loop()
        self.deserializer = deserializer


class AsyncDeliveryContext(_DeliveryContext):
    """Settling from the consumer's own loop."""

    received = AsyncReceivedMessage

    def settle(self, order: Order, claims: list[Claim]) -> asyncio.Future[None]:
        done = self.loop.create_future()
        self.settler.put(order, claims, done)
        return done


class ThreadDeliveryContext(_DeliveryContext):
    """Settling from other threads."""

    received = ReceivedMessage

    def settle(self, order: Order, claims: list[Claim]) -> concurrent.futures.Future[None]:
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        try:
            self.loop.call_soon_threadsafe(self.settler.put, order, claims, done)
        except RuntimeError:
            done.set_exception(ClientClosed("the client is closed; what it had was given back"))
        return done


class QueueSource:
    """Turns deliveries into messages with a lease."""

    def __init__(
        self, keeper: LeaseKeeper, settler: Settler, context: AsyncDeliveryContext | ThreadDeliveryContext
    ) -> None:
        self._keeper = keeper
        self._settler = settler
        self.context = context
        self._visibility_s: dict[str, float] = {}
        """By topic: the visibility timeout."""

    async def learn_visibility(self, directory: Directory, topics: Iterable[str]) -> None:
        """Learn the topics' visibility timeouts; the group's own setting, if any, comes with the answer to the join."""

        async def learn(topic: str) -> None:
            found = await directory.query("topics", "DescribeTopic", pb.DescribeTopicRequest(name=topic))
            self._visibility_s[topic] = _seconds(found.settings[_VISIBILITY])

        await asyncio.gather(*map(learn, topics))

    def use_group_settings(self, settings: Mapping[str, str], topics: Iterable[str]) -> None:
        own = settings.get(_VISIBILITY, INHERITED)
        if own != INHERITED:
            self._visibility_s = dict.fromkeys(topics, _seconds(own))

    def open(self, delivery: pb.Delivery) -> QueueBatch:
        run = parse_batch(delivery.batch)
        messages, damaged = decode_run(run)
        visibility_s = granted_s(self._visibility_s[delivery.topic], delivery.visible_until_ns, time_ns())
        damaged_offsets = run.columns()["offset"][damaged].tolist() if damaged else []
        lease = Lease(
            delivery, [*(each.offset for each in messages), *damaged_offsets], visibility_s, self.context.loop.time()
        )
        if damaged_offsets:
            self._reject_damaged(lease, damaged_offsets)
        self._keeper.add(lease)
        kind: Any = self.context.received
        context: DeliveryContext[Any] = self.context
        topic_partition = TopicPartition(delivery.topic, delivery.partition)
        ids = schema_ids(run) if isinstance(context.deserializer, SchemaReader) else ()
        return QueueBatch(
            topic_partition, delivery.next_offset, [kind(message, lease, context) for message in messages], ids
        )

    def _reject_damaged(self, lease: Lease, offsets: list[int]) -> None:
        """Reject messages that fail their checksum: no handler can process them, and dead letters can be inspected."""
        log.error("messages fail their checksum", topic=lease.topic, partition=lease.partition, offsets=offsets[:10])
        done = self.context.loop.create_future()
        self._settler.put(to_reject("it fails its checksum"), [(lease, offsets)], done)


def _seconds(displayed: str) -> float:
    return float(specs(TopicSettings)[_VISIBILITY].parse(displayed)) / 1_000
