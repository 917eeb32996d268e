"""The broker reached over gRPC: topics and publishing through the client, reading and groups through the stubs."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec

from behaviour.delays_over_grpc import DelaysOverGrpc
from behaviour.driver import Described, Driver, Got, Page, Purged, Refused, Result, Stored
from behaviour.groups_in_process import refused
from behaviour.groups_over_grpc import GroupsOverGrpc
from behaviour.host import Host, LoopThread, config_for
from goqueue import AsyncClient
from goqueue.api.grpc.server import GrpcServer
from goqueue.client.connection.grpc_connection import to_error
from goqueue.client.producer.producer import AsyncProducer
from goqueue.model.config import GrpcConfig
from goqueue.model.errors import DeliveryTimeout, GoQueueError
from goqueue.model.fields import specs
from goqueue.model.message import PRIORITY_LABELS
from goqueue.model.publishing import NewMessage
from goqueue.model.topic_settings import TopicSettings
from goqueue.wire.batch import parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

T = TypeVar("T")
_TIMEOUT_S = 60.0
_OPTIONS = (("grpc.max_receive_message_length", 32 << 20), ("grpc.enable_http_proxy", 0))


class GrpcHost(Host):
    """A host with a gRPC server in front, on the same port after a restart."""

    _grpc_port = 0

    def start(self) -> None:
        super().start()
        self.grpc = self.thread.run(self._serve())
        self._grpc_port = self.grpc.port

    async def _serve(self) -> GrpcServer:
        server = GrpcServer(self.broker.operations, GrpcConfig(port=self._grpc_port))
        await server.start()
        return server

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.grpc.port}"

    def stop(self) -> None:
        self.begin_stop()
        self.thread.run(self.grpc.stop(_TIMEOUT_S))
        super().stop()


class GrpcDriver(Driver):
    host: GrpcHost

    def __init__(self, path: Path, *, files: Any = None, clock: Any = None, **config: dict[str, Any]) -> None:
        self.host = GrpcHost(config_for(path, **config), files=files, clock=clock)
        self.clock = clock
        self._pool = ThreadPoolExecutor(16)
        self._connect()
        self.groups = GroupsOverGrpc(lambda: self._channel)
        self.delays = DelaysOverGrpc(lambda: self._channel, lambda: self._client, self._run)

    def _connect(self) -> None:
        # On a loop of its own, as a client is that lives in another process.
        self._loop = LoopThread()
        self._client, self._producer = self._loop.run(_open(self.host.address))
        self._channel = grpc.insecure_channel(self.host.address, options=_OPTIONS)

    def _disconnect(self) -> None:
        self._channel.close()
        self._loop.run(self._client.close())
        self._loop.close()

    def restart(self, away_ms: int = 0) -> None:
        self._disconnect()
        super().restart(away_ms)
        self._connect()

    def close(self) -> None:
        self._disconnect()
        super().close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(work)
        except GoQueueError as error:
            raise refused(error) from error

    def create_topic(self, name: str, **settings: Any) -> int:
        return len(self._run(self._client.create_topic(name, **settings)).partitions)

    def list_topics(self) -> list[str]:
        return self._run(self._client.list_topics())

    def describe(self, name: str) -> Described:
        info = self._run(self._client.describe_topic(name))
        declared = specs(TopicSettings)
        bounds = {number: (each.earliest_offset, each.latest_offset) for number, each in enumerate(info.partitions)}
        total = sum(latest - earliest for earliest, latest in bounds.values())
        settings = {name: declared[name].parse(value) for name, value in info.settings.items()}
        return Described(info.id, len(info.partitions), total, bounds, settings)

    def change_topic(self, name: str, **settings: Any) -> None:
        self._run(self._client.change_topic(name, **settings))

    def unset(self, name: str, *settings: str) -> None:
        self._run(self._client.change_topic(name, unset=settings))

    def purge(self, name: str, partition: int | None = None, before_ns: int | None = None) -> list[Purged]:
        found = self._run(self._client.purge_topic(name, partition=partition, before=before_ns))
        return [Purged(**msgspec.structs.asdict(each)) for each in found]

    def delete_topic(self, name: str) -> None:
        self._run(self._client.delete_topic(name))

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[Result]:
        return self._run(_publish(self._producer, topic, messages))

    def read(
        self,
        topic: str,
        partition: int = 0,
        *,
        offset: int | None = None,
        from_time_ns: int | None = None,
        limit: int = 100,
        max_bytes: int | None = None,
        wait_ms: int = 0,
    ) -> Page:
        """Pages out of a stream: the first batch, or as many as it takes to reach the limit."""
        if not 0 <= partition < 1 << 32:
            raise Refused("partition_not_found", "the request cannot even say so", retriable=False)
        start = pb.Start(position=pb.POSITION_EARLIEST)
        if from_time_ns is not None:
            start = pb.Start(instant_ns=from_time_ns)
        elif offset is not None:
            start = pb.Start(offset=offset)
        request = pb.FetchRequest(topic=topic, partition=partition, start=start)
        if max_bytes is not None:
            request.max_batch_bytes = max_bytes
        page = self._fetch(request, limit, _TIMEOUT_S)
        if page.messages or not wait_ms:
            return page
        request.start.offset, request.follow = page.next_offset, True
        return self._fetch(request, limit, wait_ms / 1_000)

    def _fetch(self, request: pb.FetchRequest, limit: int, timeout_s: float) -> Page:
        stub = pb_grpc.MessagesStub(self._channel)
        found: list[Got] = []
        page = Page([], request.start.offset, 0)
        call = stub.Fetch(request, timeout=timeout_s, wait_for_ready=True)
        try:
            for response in call:
                found += _got(response, request.partition)
                page = Page(found, response.next_offset, response.high_watermark)
                if request.follow or request.max_batch_bytes or len(found) >= limit:
                    break
        except grpc.RpcError as error:
            if request.follow and error.code() in _WAITED_IN_VAIN:
                return page
            raise refused(to_error(error, self.host.address)) from error
        finally:
            call.cancel()
        if len(found) > limit:
            return Page(found[:limit], found[limit - 1].offset + 1, page.high_watermark)
        return page


_WAITED_IN_VAIN = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}


async def _open(address: str) -> tuple[AsyncClient, AsyncProducer]:
    """The first pause is longer than a message may take: what is refused for now is reported, not tried again."""
    client = AsyncClient(address, retry_backoff_ms=60_000, max_backoff_ms=60_000)
    return client, client.producer(delivery_timeout_ms=25_000)


async def _publish(producer: AsyncProducer, topic: str, messages: Sequence[NewMessage]) -> list[Result]:
    sent: list[Any] = []
    for each in messages:
        try:
            sent.append(
                await producer.send(
                    topic,
                    each.value,
                    key=each.key,
                    headers=each.headers,
                    partition=each.partition,
                    priority=each.priority,
                    timestamp=each.timestamp_ns,
                    ttl=None if each.ttl_ms is None else timedelta(milliseconds=each.ttl_ms),
                    delay=None if each.delay_ms is None else timedelta(milliseconds=each.delay_ms),
                    deliver_at=each.deliver_at_ns,
                )
            )
        except GoQueueError as error:
            if error.code == "topic_not_found":
                raise
            sent.append(refused(error))
    results: list[Result] = []
    for delivery in sent:
        try:
            results.append(delivery if isinstance(delivery, Refused) else _stored(await delivery))
        except DeliveryTimeout as error:
            assert isinstance(error.__cause__, GoQueueError)
            results.append(refused(error.__cause__))
        except GoQueueError as error:
            results.append(refused(error))
    return results


def _stored(published: Any) -> Stored:
    priority = PRIORITY_LABELS[published.priority]
    return Stored(published.partition, published.offset, priority, published.deliver_at_ns)


def _got(response: pb.FetchResponse, partition: int) -> list[Got]:
    if not response.batch:
        return []
    messages, _ = decode_run(parse_batch(response.batch))
    return [
        Got(
            partition,
            message.offset,
            message.timestamp_ns,
            message.key,
            None if message.tombstone else message.value,
            message.headers,
            PRIORITY_LABELS[message.priority],
        )
        for message in messages
    ]
