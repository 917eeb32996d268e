"""The synchronous client: ``AsyncClient`` on an event loop in a background thread."""

from __future__ import annotations

import atexit
import os
from collections.abc import Generator, Iterable
from datetime import datetime
from typing import Self, Unpack

from goqueue.client.admin.delays import DelayedMessage
from goqueue.client.admin.groups import DeadLetter, PeekedMessage
from goqueue.client.async_client import AsyncClient
from goqueue.client.connection.config import DEFAULT_ADDRESS
from goqueue.client.connection.instants import Span
from goqueue.client.connection.loop_thread import BlockingFace, LoopThread, blocking, made_on_loop
from goqueue.client.consumer.consumer import AsyncConsumer
from goqueue.client.consumer.reader import Batch, Isolation, Record, Start
from goqueue.client.consumer.worker import Handler, check_concurrency
from goqueue.client.keywords import ClientOptions, WorkerOptions
from goqueue.client.messages.serializers import Deserializer
from goqueue.client.schemas.schemas import Schemas
from goqueue.client.sync_consumer import Consumer, in_thread
from goqueue.client.sync_producer import Producer

_open_clients: set[Client] = set()
"""Clients that are not closed, referenced here so that messages in their producers are still sent at exit."""


class Client(BlockingFace[AsyncClient]):
    """The synchronous client: the methods of ``AsyncClient``, blocking. Thread-safe; messages still in its producers
    are sent at exit."""

    def __init__(self, addresses: str | list[str] = DEFAULT_ADDRESS, **options: Unpack[ClientOptions]) -> None:
        super().__init__(AsyncClient(addresses, **options), LoopThread())
        self.schemas = Schemas(self._inner.schemas, self._thread)
        """The schema registry."""
        _open_clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close consumers, flush producers, then stop. Safe to call twice."""
        _open_clients.discard(self)
        self._thread.stop(self._inner.close())

    producer = made_on_loop(AsyncClient.producer, Producer)

    def consumer(self, group: str, topics: str | Iterable[str], **options: Unpack[WorkerOptions]) -> Consumer:
        """As ``AsyncClient.consumer``. Callbacks run in a separate thread."""
        options["on_assigned"] = in_thread(options.get("on_assigned"))
        options["on_revoked"] = in_thread(options.get("on_revoked"))

        async def make() -> AsyncConsumer:
            consumer = self._inner.consumer(group, topics, **options)
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
        reader = self._inner._reader(topic, partition, start, follow, isolation)
        try:
            while (batch := self._thread.run(reader.next())) is not None:
                yield batch
        finally:
            # Not waited for: an abandoned generator is closed by whichever thread garbage-collects it.
            self._thread.start(reader.close())

    find_offset = blocking(AsyncClient.find_offset)

    create_topic = blocking(AsyncClient.create_topic)
    list_topics = blocking(AsyncClient.list_topics)
    describe_topic = blocking(AsyncClient.describe_topic)
    change_topic = blocking(AsyncClient.change_topic)
    delete_topic = blocking(AsyncClient.delete_topic)
    purge_topic = blocking(AsyncClient.purge_topic)

    list_groups = blocking(AsyncClient.list_groups)
    describe_group = blocking(AsyncClient.describe_group)
    configure_group = blocking(AsyncClient.configure_group)
    delete_group = blocking(AsyncClient.delete_group)
    group_offsets = blocking(AsyncClient.group_offsets)
    reset_offsets = blocking(AsyncClient.reset_offsets)

    def peek(
        self, group: str, *, topic: str | None = None, partition: int | None = None, state: str | None = None
    ) -> Generator[PeekedMessage, None, None]:
        """As ``AsyncClient.peek``."""
        return self._thread.items_of(self._inner._peek_pages(group, topic, partition, state))

    def dead_letters(
        self,
        topic: str,
        *,
        group: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Generator[DeadLetter, None, None]:
        """As ``AsyncClient.dead_letters``."""
        return self._thread.items_of(self._inner._dead_letter_pages(topic, group, error, since, until))

    redrive = blocking(AsyncClient.redrive)
    reliability_stats = blocking(AsyncClient.reliability_stats)
    lane_stats = blocking(AsyncClient.lane_stats)

    def delayed(self, topic: str) -> Generator[DelayedMessage, None, None]:
        """As ``AsyncClient.delayed``."""
        return self._thread.items_of(self._inner._delayed_pages(topic))

    get_delayed = blocking(AsyncClient.get_delayed)
    cancel_delayed = blocking(AsyncClient.cancel_delayed)
    reschedule_delayed = blocking(AsyncClient.reschedule_delayed)
    delay_stats = blocking(AsyncClient.delay_stats)

    commit_many = blocking(AsyncClient.commit_many)
    committed_under = blocking(AsyncClient.committed_under)
    transactions = blocking(AsyncClient.transactions)
    describe_transaction = blocking(AsyncClient.describe_transaction)
    abort_transaction = blocking(AsyncClient.abort_transaction)
    transaction_stats = blocking(AsyncClient.transaction_stats)


@atexit.register
def _finish_at_exit() -> None:
    left = list(_open_clients)
    for client in left:
        client._thread.exiting = True
        # All clients at once, so that one that waits for its timeout does not delay the others.
        client._thread.begin_stop(client._inner._close_at_exit())
    for client in left:
        client.close()


if hasattr(os, "register_at_fork"):
    # The parent finishes these clients; a child would wait for a thread that it does not have.
    os.register_at_fork(after_in_child=_open_clients.clear)
