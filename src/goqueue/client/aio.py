"""The asynchronous client."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

from goqueue.client.config import ClientConfig, ProducerConfig
from goqueue.client.directory import Attempt, Directory
from goqueue.client.producer import AsyncProducer
from goqueue.client.reader import Batch, Reader, Record, Start, to_start
from goqueue.client.serializers import Deserializer, Serializer, to_bytes
from goqueue.client.topics import TopicInfo, is_as_asked, to_info, to_settings
from goqueue.model.errors import InvalidConfiguration, TopicExists, TopicNotFound
from goqueue.model.logging import get_logger
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

DEFAULT_ADDRESS = "localhost:9090"


class AsyncClient:
    """Brokers at ``addresses`` (one, or several of a cluster); options are those of ``ClientConfig``.

    Everything raises a ``GoQueueError``; connections open when first used.
    """

    def __init__(self, addresses: str | list[str] = DEFAULT_ADDRESS, **options: Any) -> None:
        listed = [addresses] if isinstance(addresses, str) else list(addresses)
        if not listed or not all(isinstance(address, str) and address for address in listed):
            raise InvalidConfiguration("a client needs at least one address, such as 'localhost:9090'")
        self.config = _configured(ClientConfig, options)
        self._directory = Directory(listed, self.config)
        self._producers: set[AsyncProducer] = set()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish what producers have taken, then let go of the connections."""
        try:
            await self._close_producers()
        finally:
            await self._directory.close()

    async def _close_at_exit(self) -> None:
        """``close`` for a program that ends: it does not wait long for a broker that is away."""
        try:
            async with asyncio.timeout(self.config.exit_timeout_ms / 1_000):
                await self._close_producers()
        except TimeoutError:
            given_up = sum(producer.unsettled_messages for producer in self._producers)
            log.warning("messages given up at exit", messages=given_up, exit_timeout_ms=self.config.exit_timeout_ms)
        finally:
            await self._directory.close(at_exit=True)

    async def _close_producers(self) -> None:
        await asyncio.gather(*(producer.close() for producer in list(self._producers)))

    # Messages

    def producer(self, *, serializer: Serializer = to_bytes, **options: Any) -> AsyncProducer:
        """Options are those of ``ProducerConfig``. Closed with the client, or by its own context."""
        self._directory.check_open()
        config = _configured(ProducerConfig, options)
        producer = AsyncProducer(self._directory, config, serializer, closed=self._producers.discard)
        self._producers.add(producer)
        return producer

    async def read(
        self,
        topic: str,
        partition: int | None = None,
        start: Start = "earliest",
        *,
        follow: bool = False,
        deserializer: Deserializer | None = None,
    ) -> AsyncGenerator[Record, None]:
        """The messages of a partition, or of the whole topic; with ``follow`` also those that are yet to come."""
        reader = self._reader(topic, partition, start, follow)
        try:
            while (batch := await reader.next()) is not None:
                for record in batch.records(deserializer):
                    yield record
        finally:
            await reader.close()

    async def read_batches(
        self, topic: str, partition: int | None = None, start: Start = "earliest", *, follow: bool = False
    ) -> AsyncGenerator[Batch, None]:
        """Like ``read`` with the frames left as they are: ``batch.records()`` decodes, or work on ``batch.run``."""
        reader = self._reader(topic, partition, start, follow)
        try:
            while (batch := await reader.next()) is not None:
                yield batch
        finally:
            await reader.close()

    def _reader(self, topic: str, partition: int | None, start: Start, follow: bool) -> Reader:
        return Reader(
            self._directory,
            topic,
            partition,
            start,
            follow=follow,
            prefetch_batches=self.config.prefetch_batches,
            retry_for_s=float("inf") if follow else self.config.connect_timeout_ms / 1_000,
        )

    async def find_offset(self, topic: str, partition: int, start: Start) -> int:
        """The offset where ``read`` would begin."""
        request = pb.FindOffsetRequest(topic=topic, partition=partition, start=to_start(start))
        leader = await self._directory.leader(topic, partition)
        return int((await leader.call(leader.metadata.FindOffset, request)).offset)

    # Topics

    async def create_topic(self, name: str, **settings: object) -> TopicInfo:
        """``await client.create_topic("orders", partitions=6, retention_ms="7d")``."""
        request = pb.CreateTopicRequest(name=name, settings=to_settings(settings))

        async def create(attempt: Attempt) -> pb.Topic:
            topics = attempt.broker.topics
            try:
                made: pb.Topic = await attempt.command(topics.CreateTopic, request)
            except TopicExists:
                if not attempt.maybe_done:
                    raise
                made = await attempt.question(topics.DescribeTopic, pb.DescribeTopicRequest(name=name))
                if not is_as_asked(made, dict(request.settings)):
                    raise
            return made

        return to_info(await self._directory.any(create))

    async def list_topics(self) -> list[str]:
        request = pb.ListTopicsRequest()
        found = await self._directory.any(lambda attempt: attempt.question(attempt.broker.topics.ListTopics, request))
        return list(found.names)

    async def describe_topic(self, name: str) -> TopicInfo:
        """Settings in effect, offsets and sizes."""
        request = pb.DescribeTopicRequest(name=name)
        return to_info(
            await self._directory.any(lambda attempt: attempt.question(attempt.broker.topics.DescribeTopic, request))
        )

    async def change_topic(self, name: str, **settings: object) -> TopicInfo:
        """Change settings while the topic is in use; the others stay."""
        request = pb.ChangeTopicRequest(name=name, settings=to_settings(settings))
        return to_info(
            await self._directory.any(lambda attempt: attempt.command(attempt.broker.topics.ChangeTopic, request))
        )

    async def delete_topic(self, name: str) -> None:
        request = pb.DeleteTopicRequest(name=name)

        async def delete(attempt: Attempt) -> None:
            try:
                await attempt.command(attempt.broker.topics.DeleteTopic, request)
            except TopicNotFound:
                if not attempt.maybe_done:
                    raise

        await self._directory.any(delete)
        self._directory.forget(name)


def _configured(kind: type[Any], options: dict[str, Any]) -> Any:
    known = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(options.keys() - known)
    if unknown:
        raise InvalidConfiguration(f"no such option: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return kind(**options)
