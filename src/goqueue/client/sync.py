"""The synchronous client: ``AsyncClient`` on an event loop in a background thread."""

from __future__ import annotations

import atexit
import os
from collections.abc import Generator, Iterable
from typing import Self, Unpack

from goqueue.client.async_client import AsyncClient
from goqueue.client.connection.config import DEFAULT_ADDRESS
from goqueue.client.connection.instants import Instant, Span
from goqueue.client.connection.loop_thread import LoopThread
from goqueue.client.connection.topics import PurgedPartition, TopicInfo
from goqueue.client.consumer.consumer import AsyncConsumer
from goqueue.client.consumer.reader import Batch, Isolation, Record, Start
from goqueue.client.consumer.rebalance import OnPartitions
from goqueue.client.consumer.worker import Handler, check_concurrency
from goqueue.client.keywords import (
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
    TopicOptions,
    TopicTuning,
    WorkerOptions,
)
from goqueue.client.messages.serializers import Deserializer, Serializer, to_bytes
from goqueue.client.producer.producer import AsyncProducer
from goqueue.client.schemas.sync_schemas import Schemas
from goqueue.client.sync_administration import (
    SyncDelayAdministration,
    SyncGroupAdministration,
    SyncTransactionAdministration,
)
from goqueue.client.sync_consumer import Consumer, in_thread
from goqueue.client.sync_producer import Producer
from goqueue.model.group_settings import GroupKind, GroupMode, Ordering, StartAt

_open_clients: set[Client] = set()
"""Clients that are not closed, referenced here so that messages in their producers are still sent at exit."""


class Client(SyncGroupAdministration, SyncDelayAdministration, SyncTransactionAdministration):
    """The synchronous client: the methods of ``AsyncClient``, blocking. Thread-safe; messages still in its producers
    are sent at exit."""

    def __init__(self, addresses: str | list[str] = DEFAULT_ADDRESS, **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncClient(addresses, **options)
        self._thread = LoopThread()
        self.schemas = Schemas(self._client.schemas, self._thread)
        """The schema registry."""
        _open_clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close consumers, flush producers, then stop. Safe to call twice."""
        _open_clients.discard(self)
        self._thread.stop(self._client.close())

    def producer(
        self,
        *,
        serializer: Serializer = to_bytes,
        key_serializer: Serializer | None = None,
        transactional_id: str | None = None,
        transaction_timeout: Span | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Producer:
        """As ``AsyncClient.producer``."""

        async def make() -> AsyncProducer:
            return self._client.producer(
                serializer=serializer,
                key_serializer=key_serializer,
                transactional_id=transactional_id,
                transaction_timeout=transaction_timeout,
                **options,
            )

        return Producer(self._thread.run(make()), self._thread)

    def consumer(
        self,
        group: str,
        topics: str | Iterable[str],
        *,
        kind: GroupKind | None = None,
        mode: GroupMode | None = None,
        ordering: Ordering | None = None,
        start: StartAt | None = None,
        instance_id: str = "",
        deserializer: Deserializer | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """As ``AsyncClient.consumer``. Callbacks run in a separate thread."""

        async def make() -> AsyncConsumer:
            consumer = self._client.consumer(
                group,
                topics,
                kind=kind,
                mode=mode,
                ordering=ordering,
                start=start,
                instance_id=instance_id,
                deserializer=deserializer,
                on_assigned=in_thread(on_assigned),
                on_revoked=in_thread(on_revoked),
                **options,
            )
            consumer._use_threads()
            return consumer

        return Consumer(self._thread.run(make()), self._thread)

    def worker(
        self,
        handler: Handler,
        *,
        group: str,
        topics: str | Iterable[str],
        concurrency: int = 16,
        shutdown_timeout: Span = 30.0,
        signals: bool = True,
        **options: Unpack[WorkerOptions],
    ) -> None:
        """As ``AsyncClient.worker``; handlers run in threads. Returns after SIGTERM or SIGINT in the main thread."""
        options.setdefault("max_in_flight", 2 * check_concurrency(concurrency))
        consumer = self.consumer(group, topics, **options)
        consumer.run(handler, concurrency=concurrency, shutdown_timeout=shutdown_timeout, signals=signals)

    def read(
        self,
        topic: str,
        partition: int | None = None,
        start: Start = "earliest",
        *,
        follow: bool = False,
        isolation: Isolation = "read_committed",
        deserializer: Deserializer | None = None,
    ) -> Generator[Record, None, None]:
        """As ``AsyncClient.read``."""
        for batch in self.read_batches(topic, partition, start, follow=follow, isolation=isolation):
            yield from batch.records(deserializer)

    def read_batches(
        self,
        topic: str,
        partition: int | None = None,
        start: Start = "earliest",
        *,
        follow: bool = False,
        isolation: Isolation = "read_committed",
    ) -> Generator[Batch, None, None]:
        """Like ``read``, with undecoded batches; see ``AsyncClient.read_batches``."""
        reader = self._client._reader(topic, partition, start, follow, isolation)
        try:
            while (batch := self._thread.run(reader.next())) is not None:
                yield batch
        finally:
            # Not waited for: an abandoned generator is closed by whichever thread garbage-collects it.
            self._thread.start(reader.close())

    def find_offset(self, topic: str, partition: int, start: Start) -> int:
        """As ``AsyncClient.find_offset``."""
        return self._thread.run(self._client.find_offset(topic, partition, start))

    def create_topic(self, name: str, *, if_not_exists: bool = False, **settings: Unpack[TopicOptions]) -> TopicInfo:
        """As ``AsyncClient.create_topic``."""
        return self._thread.run(self._client.create_topic(name, if_not_exists=if_not_exists, **settings))

    def list_topics(self) -> list[str]:
        """As ``AsyncClient.list_topics``."""
        return self._thread.run(self._client.list_topics())

    def describe_topic(self, name: str) -> TopicInfo:
        """As ``AsyncClient.describe_topic``."""
        return self._thread.run(self._client.describe_topic(name))

    def change_topic(self, name: str, *, unset: Iterable[str] = (), **settings: Unpack[TopicTuning]) -> TopicInfo:
        """As ``AsyncClient.change_topic``."""
        return self._thread.run(self._client.change_topic(name, unset=unset, **settings))

    def delete_topic(self, name: str) -> None:
        """As ``AsyncClient.delete_topic``."""
        self._thread.run(self._client.delete_topic(name))

    def purge_topic(
        self, name: str, *, partition: int | None = None, before: Instant | None = None
    ) -> list[PurgedPartition]:
        """As ``AsyncClient.purge_topic``."""
        return self._thread.run(self._client.purge_topic(name, partition=partition, before=before))


@atexit.register
def _finish_at_exit() -> None:
    left = list(_open_clients)
    for client in left:
        client._thread.exiting = True
        # All clients at once, so that one that waits for its timeout does not delay the others.
        client._thread.begin_stop(client._client._close_at_exit())
    for client in left:
        client.close()


if hasattr(os, "register_at_fork"):
    # The parent finishes these clients; a child would wait for a thread that it does not have.
    os.register_at_fork(after_in_child=_open_clients.clear)
