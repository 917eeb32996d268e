"""The asynchronous client: makes producers and consumers, reads topics, and administers topics and groups."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Unpack

from goqueue.client.admin.administration import GroupAdministration, to_group_settings
from goqueue.client.admin.delays import DelayAdministration
from goqueue.client.admin.transactions import TransactionAdministration
from goqueue.client.connection.config import DEFAULT_ADDRESS, ClientConfig, ConsumerConfig, ProducerConfig
from goqueue.client.connection.connection import NotConnected
from goqueue.client.connection.directory import Directory
from goqueue.client.connection.instants import Instant, Span, instant_ns
from goqueue.client.connection.retries import Attempt
from goqueue.client.connection.structs import struct_of
from goqueue.client.connection.topics import PurgedPartition, TopicInfo, has_exact_settings, to_info, to_settings
from goqueue.client.consumer.consumer import AsyncConsumer
from goqueue.client.consumer.membership import JoinTerms
from goqueue.client.consumer.reader import Batch, Isolation, Reader, Record, Start, to_start
from goqueue.client.consumer.worker import Handler, check_callable, check_concurrency
from goqueue.client.keywords import ClientOptions, ProducerOptions, TopicOptions, TopicTuning, WorkerOptions
from goqueue.client.messages.schema_ids import load_schemas, schema_ids
from goqueue.client.messages.serializers import Deserializer, SchemaReader, Serializer, to_bytes
from goqueue.client.producer.producer import AsyncProducer
from goqueue.client.schemas.schemas import AsyncSchemas
from goqueue.model import errors
from goqueue.model.addresses import is_address
from goqueue.model.group_settings import GroupSettings
from goqueue.model.logging import get_logger
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)


class AsyncClient(GroupAdministration, DelayAdministration, TransactionAdministration):
    """A client of the brokers at ``addresses``: one, or several of a cluster. Options are those of ``ClientConfig``.

    Connections open on first use. Every error is a ``GoQueueError``.
    """

    def __init__(self, addresses: str | list[str] = DEFAULT_ADDRESS, **options: Unpack[ClientOptions]) -> None:
        listed = [addresses] if isinstance(addresses, str) else list(addresses)
        if not listed or not all(isinstance(address, str) and address for address in listed):
            raise errors.InvalidConfiguration("a client needs at least one address, such as 'localhost:9090'")
        for address in listed:
            # gRPC would resolve it as a host name, or choose a port itself, until the timeout.
            if not is_address(address):
                raise errors.InvalidConfiguration(
                    f"{address!r} is not like HOST:PORT of a broker's gRPC, such as localhost:9090"
                )
        self.config = _build_config(ClientConfig, options)
        self._directory = Directory(listed, self.config)
        self._producers: set[AsyncProducer] = set()
        self._consumers: set[AsyncConsumer] = set()
        self.schemas = AsyncSchemas(self._directory)
        """The schema registry."""

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Flush and close producers, let consumers leave their groups, then close the connections."""
        try:
            await self._close_producers_and_consumers()
        finally:
            await self.schemas._close()
            await self._directory.close()

    async def _close_at_exit(self) -> None:
        """``close`` at the end of the program: waits at most ``exit_timeout_ms`` for a broker that does not answer."""
        try:
            async with asyncio.timeout(self.config.exit_timeout_ms / 1_000):
                await self._close_producers_and_consumers()
        except TimeoutError:
            abandoned = sum(producer.unsettled_messages for producer in self._producers)
            log.warning("messages given up at exit", messages=abandoned, exit_timeout_ms=self.config.exit_timeout_ms)
        finally:
            await self.schemas._close()
            await self._directory.close(at_exit=True)

    async def _close_producers_and_consumers(self) -> None:
        # Producers first: a handler may have sent messages before its own message was acked.
        await asyncio.gather(*(producer.close() for producer in list(self._producers)))
        await asyncio.gather(*(consumer.close() for consumer in list(self._consumers)))

    # Messages

    def producer(
        self,
        *,
        serializer: Serializer = to_bytes,
        key_serializer: Serializer | None = None,
        transactional_id: str | None = None,
        transaction_timeout: Span | None = None,
        **options: Unpack[ProducerOptions],
    ) -> AsyncProducer:
        """A producer; options are those of ``ProducerConfig``. Closed with the client, or at the end of its own
        context.

        With a ``transactional_id`` it sends in transactions only, and takes the id over from an earlier producer: that
        one is fenced, and its open transaction is aborted. Without one it may use transactions as well.
        """
        self._directory.check_open()
        config = _build_config(ProducerConfig, options)
        producer = AsyncProducer(
            self._directory,
            config,
            serializer,
            key_serializer=key_serializer,
            transactional_id=transactional_id,
            transaction_timeout=transaction_timeout,
            on_closed=self._producers.discard,
        )
        self._producers.add(producer)
        return producer

    def consumer(self, group: str, topics: str | Iterable[str], **options: Unpack[WorkerOptions]) -> AsyncConsumer:
        """A member of a group. ``options`` are those of ``ConsumerConfig``, settings of the group, and those below.

        ``deserializer`` makes values of the bytes. ``on_assigned`` and ``on_revoked`` are called with the partitions
        that the consumer gains or is about to lose. ``kind``, ``mode``, ``ordering`` and ``start`` are fixed when the
        group is created.

        A group that does not exist is created with these settings; a queue is then ``shared`` unless a ``kind`` is
        given. For an existing group, fixed settings must match and the others are changed. With an ``instance_id`` the
        member stays in the group after ``close``, until its session timeout. Closed with the client, or at the end of
        its own context.
        """
        self._directory.check_open()
        instance_id, deserializer = options.pop("instance_id", ""), options.pop("deserializer", None)
        on_assigned, on_revoked = options.pop("on_assigned", None), options.pop("on_revoked", None)
        fixed = ("kind", "mode", "ordering", "start")
        chosen = {name: value for name, value in options.items() if name not in fixed or value is not None}
        consumer_options = {field.name for field in dataclasses.fields(ConsumerConfig)}
        group_options = {field.name for field in dataclasses.fields(GroupSettings)}
        _check_names(chosen, consumer_options | group_options)
        for name, value in (("deserializer", deserializer), ("on_assigned", on_assigned), ("on_revoked", on_revoked)):
            check_callable(name, value)
        config = _build_config(ConsumerConfig, {name: chosen[name] for name in consumer_options & chosen.keys()})
        settings = {name: value for name, value in chosen.items() if name not in consumer_options}
        listed = [topics] if isinstance(topics, str) else _topic_names(topics)
        # Every member of a queue takes from all partitions; an existing group keeps its kind.
        initial = {} if settings.get("mode") == "stream" else {"kind": "shared"}
        terms = JoinTerms(group, listed, to_group_settings(settings), instance_id, config, initial)
        consumer = AsyncConsumer(
            self._directory,
            terms,
            deserializer=deserializer,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_closed=self._consumers.discard,
        )
        self._consumers.add(consumer)
        return consumer

    async def worker(
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
        """Handle the messages of a queue, ``concurrency`` at a time, until SIGTERM or SIGINT.

        The message is acked when the handler returns, and nacked with the error as the reason when it raises.
        ``Reject`` makes it a dead letter; ``Retry`` sets when it is delivered again. At shutdown handlers may finish
        for up to ``shutdown_timeout``; all other messages are returned to the group. Other options are those of
        ``consumer``.
        """
        options.setdefault("max_in_flight", 2 * check_concurrency(concurrency))
        consumer = self.consumer(group, topics, **options)
        await consumer.run(handler, concurrency=concurrency, shutdown_timeout=shutdown_timeout, signals=signals)

    async def read(
        self,
        topic: str,
        partition: int | None = None,
        start: Start = "earliest",
        *,
        follow: bool = False,
        isolation: Isolation = "read_committed",
        deserializer: Deserializer | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Read the messages of a partition or of the whole topic; with ``follow``, wait for new ones at the end.

        With ``isolation="read_committed"`` reading stops at the first open transaction and skips aborted messages; with
        ``"read_uncommitted"`` all messages are read.
        """
        reader = self._reader(topic, partition, start, follow, isolation)
        try:
            while (batch := await reader.next()) is not None:
                if isinstance(deserializer, SchemaReader):
                    ids = schema_ids(batch.run)
                    await load_schemas(deserializer, ids, self._directory.backoff(), goes_on=lambda: follow)
                for record in batch.records(deserializer):
                    yield record
        finally:
            await reader.close()

    async def read_batches(
        self,
        topic: str,
        partition: int | None = None,
        start: Start = "earliest",
        *,
        follow: bool = False,
        isolation: Isolation = "read_committed",
    ) -> AsyncGenerator[Batch, None]:
        """Like ``read``, with undecoded batches: ``batch.records()`` decodes one, ``batch.run`` has its frames."""
        reader = self._reader(topic, partition, start, follow, isolation)
        try:
            while (batch := await reader.next()) is not None:
                yield batch
        finally:
            await reader.close()

    def _reader(self, topic: str, partition: int | None, start: Start, follow: bool, isolation: Isolation) -> Reader:
        return Reader(
            self._directory,
            topic,
            partition,
            start,
            follow=follow,
            isolation=isolation,
            prefetch_batches=self.config.prefetch_batches,
            retry_for_s=float("inf") if follow else self.config.connect_timeout_ms / 1_000,
        )

    async def find_offset(self, topic: str, partition: int, start: Start) -> int:
        """The offset at which ``read`` would start."""
        request = pb.FindOffsetRequest(topic=topic, partition=partition, start=to_start(start))
        leader = await self._directory.leader(topic, partition)
        return int((await leader.call(leader.metadata.FindOffset, request)).offset)

    # Topics

    async def create_topic(
        self, name: str, *, if_not_exists: bool = False, **settings: Unpack[TopicOptions]
    ) -> TopicInfo:
        """``await client.create_topic("orders", partitions=6, retention_ms="7d")``.

        With ``if_not_exists`` an existing topic is returned unchanged, whatever its settings are.
        """
        request = pb.CreateTopicRequest(name=name, settings=to_settings(settings))

        async def create(attempt: Attempt) -> pb.Topic:
            topics = attempt.broker.topics
            try:
                made: pb.Topic = await attempt.command(topics.CreateTopic, request)
            except errors.TopicExists:
                if not (if_not_exists or attempt.maybe_done):
                    raise
                made = await attempt.query(topics.DescribeTopic, pb.DescribeTopicRequest(name=name))
                if not (if_not_exists or has_exact_settings(made, dict(request.settings))):
                    raise
            return made

        return to_info(await self._directory.any(create))

    async def list_topics(self) -> list[str]:
        """Names of all topics."""
        return list((await self._directory.query("topics", "ListTopics", pb.ListTopicsRequest())).names)

    async def describe_topic(self, name: str) -> TopicInfo:
        """A topic's settings in effect, offsets and sizes."""
        return to_info(await self._directory.query("topics", "DescribeTopic", pb.DescribeTopicRequest(name=name)))

    async def change_topic(self, name: str, *, unset: Iterable[str] = (), **settings: Unpack[TopicTuning]) -> TopicInfo:
        """Change settings while the topic is in use; those named in ``unset`` return to the broker's defaults."""
        request = pb.ChangeTopicRequest(name=name, settings=to_settings(settings), unset=list(unset))
        return to_info(await self._directory.command("topics", "ChangeTopic", request))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""
        await self._directory.command(
            "topics", "DeleteTopic", pb.DeleteTopicRequest(name=name), done_if=errors.TopicNotFound
        )
        self._directory.forget(name)

    async def purge_topic(
        self, name: str, *, partition: int | None = None, before: Instant | None = None
    ) -> list[PurgedPartition]:
        """Permanently remove the messages present now: of the topic or of one partition, all or those before an
        instant. Delayed messages and those of open transactions stay.

        Not retried: a second request would remove messages that were published since.
        """
        before_ns = None if before is None else instant_ns("before", before)
        try:
            request = pb.PurgeTopicRequest(name=name, partition=partition, before_ns=before_ns)
        except (ValueError, TypeError) as error:
            raise errors.InvalidRequest(f"partition is {partition!r} and before {before!r}: {error}") from None

        async def purge(attempt: Attempt) -> pb.PurgeTopicResponse:
            try:
                return await attempt.command(attempt.broker.topics.PurgeTopic, request)  # type: ignore[no-any-return]
            except NotConnected:
                raise
            except errors.BrokerUnavailable as error:
                raise errors.ClientError(
                    f"{error}; whether {name!r} was purged is not known: look at its offsets"
                ) from None

        return [struct_of(PurgedPartition, each) for each in (await self._directory.any(purge)).partitions]


def _topic_names(topics: object) -> list[str]:
    found: list[object] = list(topics) if isinstance(topics, Iterable) else [topics]
    named = [each for each in dict.fromkeys(found) if isinstance(each, str)]
    if len(named) != len(set(found)):
        raise errors.InvalidConfiguration(f"topics is {topics!r}; it must be a topic's name, or several")
    return named


def _build_config(kind: type[Any], options: Mapping[str, object]) -> Any:
    _check_names(options, {field.name for field in dataclasses.fields(kind)})
    return kind(**options)


def _check_names(options: Mapping[str, object], known: set[str]) -> None:
    if unknown := sorted(options.keys() - known):
        listed = ", ".join(sorted(known))
        raise errors.InvalidConfiguration(f"no such option: {', '.join(unknown)}; there are {listed}")
