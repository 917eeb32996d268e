"""The gRPC server: bounds, health, reflection, start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from goqueue.api.calls.delays import DelayCalls
from goqueue.api.calls.groups import GroupCalls
from goqueue.api.calls.limits import AnswerLimits
from goqueue.api.calls.schemas import SchemaCalls
from goqueue.api.calls.topics import MetadataCalls, TopicCalls
from goqueue.api.calls.transactions import TransactionCalls
from goqueue.api.grpc.calls import Calls, servicer
from goqueue.api.grpc.cutting import cut_off
from goqueue.api.grpc.messages import MessagesService, messages_handler
from goqueue.api.grpc.stream_room import StreamRoom
from goqueue.api.grpc.subscribing import SubscriptionService
from goqueue.api.grpc.unread import Unread
from goqueue.api.grpc.unreadable import HandOverUnreadable
from goqueue.api.listening import CannotListen, advertised, host_with_port, listening_socket
from goqueue.broker.operations import Caller, CallerProtocol, Operations
from goqueue.model.config import GrpcConfig
from goqueue.model.logging import get_logger
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

log = get_logger(__name__)

_SERVICES = tuple(service.full_name for service in pb.DESCRIPTOR.services_by_name.values())
_CUT_AFTER_S = 1.0
_ITSELF = Caller(protocol=CallerProtocol.GRPC)
_EXAMINE_EVERY_S = 1.0


class GrpcServer:
    """Serves a broker over gRPC, on the broker's own loop."""

    def __init__(self, operations: Operations, config: GrpcConfig) -> None:
        self._operations = operations
        self._config = config
        self._server = grpc.aio.server(
            interceptors=[HandOverUnreadable()],
            options=_options(config),
            maximum_concurrent_rpcs=config.max_concurrent_calls,
        )
        self._health = health_aio.HealthServicer()
        self._unread = Unread(config.max_unread_bytes, config.max_concurrent_calls, self._cut_off)
        most_streams = config.max_fetch_streams + config.max_subscriptions
        self._stream_room = StreamRoom(config.max_unread_bytes, most_streams, self._cut_off)
        requests = operations.requests(CallerProtocol.GRPC)
        self._calls = Calls(config.max_call_ms / 1_000, requests, self._unread, self._stream_room)
        operations.count_connections(CallerProtocol.GRPC, lambda: len(self._calls.streaming))
        self._messages = MessagesService(operations, config, self._calls)
        self._leaving: asyncio.Task[None] | None = None
        self._examining: asyncio.Task[None] | None = None
        self._started = False
        self.port = 0

    def bind(self) -> None:
        """Take the port: if it is in use, say so before anything is recovered. Calls wait until ``start``."""
        address = host_with_port(self._config.host, self._config.port)
        # gRPC tells nobody but the standard error why a port cannot be taken.
        listening_socket(self._config.host, self._config.port, "gRPC", "--grpc-port").close()
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise CannotListen(f"cannot listen on {address} for gRPC; choose another port with --grpc-port")

    async def start(self) -> None:
        """Serve; the broker must be ready."""
        if not self.port:
            self.bind()
        operations, config, calls, server = self._operations, self._config, self._calls, self._server
        limits = AnswerLimits(config.max_message_bytes, config.max_batch_bytes, self._unread.check_room)
        groups = servicer(GroupCalls(operations, limits), calls)
        groups.Subscribe = SubscriptionService(operations, config, calls).Subscribe
        server.add_generic_rpc_handlers((messages_handler(self._messages),))
        pb_grpc.add_GroupsServicer_to_server(groups, server)
        pb_grpc.add_TopicsServicer_to_server(servicer(TopicCalls(operations), calls), server)
        metadata = MetadataCalls(operations, advertised(config.advertised_address, config.host, self.port))
        pb_grpc.add_MetadataServicer_to_server(servicer(metadata, calls), server)
        pb_grpc.add_DelaysServicer_to_server(servicer(DelayCalls(operations, limits), calls), server)
        pb_grpc.add_TransactionsServicer_to_server(servicer(TransactionCalls(operations), calls), server)
        pb_grpc.add_SchemasServicer_to_server(servicer(SchemaCalls(operations, limits), calls), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if self._config.reflection:
            reflection.enable_server_reflection(
                [*_SERVICES, "grpc.health.v1.Health", reflection.SERVICE_NAME], self._server
            )
        await self._tell_health(is_ready=self._is_ready())
        await self._server.start()
        self._examining = asyncio.create_task(self._examine(), name="gRPC examination")
        self._started = True

    async def _examine(self) -> None:
        """Health is what ``/readyz`` says, told to those who watch it when it changes. Clients that do not read are cut
        off here as well."""
        was_ready: bool | None = None
        while True:
            try:
                is_ready = self._is_ready()
                if is_ready != was_ready:
                    await self._tell_health(is_ready=is_ready)
                    was_ready = is_ready
            except Exception as error:
                log.error("the health could not be told, it will be tried again", exc_info=error)
            try:
                self._unread.sweep()
                self._stream_room.sweep()
            except Exception as error:
                log.error("clients that do not read could not be cut off", exc_info=error)
            await asyncio.sleep(_EXAMINE_EVERY_S)

    def _is_ready(self) -> bool:
        return not self._operations.system.problems(_ITSELF)

    async def _tell_health(self, *, is_ready: bool) -> None:
        kinds = health_pb2.HealthCheckResponse
        for service in ("", *_SERVICES):
            # Bounded: someone who watches one of them and does not read holds it up.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CUT_AFTER_S):
                    await self._health.set(service, kinds.SERVING if is_ready else kinds.NOT_SERVING)

    def _cut_off(self, peers: Collection[str]) -> None:
        cut_off(peers, self.port)

    def leave(self) -> None:
        """Tell those who ask for the health that the end is near, so that they go elsewhere."""
        if self._started and self._leaving is None:
            self._leaving = asyncio.create_task(self._health.enter_graceful_shutdown())

    async def stop(self, grace_s: float) -> None:
        """Answer what was accepted, for at most ``grace_s``; the broker must have been told to stop before."""
        self.leave()
        if self._examining is not None:
            self._examining.cancel()
            await asyncio.gather(self._examining, return_exceptions=True)
        if self._leaving is None:
            return
        # Bounded: someone who watches the health and does not read holds it up.
        with suppress(TimeoutError):
            async with asyncio.timeout(_CUT_AFTER_S):
                await self._leaving
        self._messages.stop_reading()
        await self._calls.finish(grace_s)
        # What is left are streams without an end: those who watch, and readers that do not read.
        await self._server.stop(_CUT_AFTER_S)


def _options(config: GrpcConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", config.max_message_bytes),
        ("grpc.max_send_message_length", config.max_message_bytes),
        ("grpc.max_allowed_incoming_connections", config.max_connections),
        # One more than are served, so that it is refused instead of waiting in the client.
        ("grpc.max_concurrent_streams", config.max_concurrent_calls + 1),
        ("grpc.keepalive_time_ms", config.keep_alive_ms),
        ("grpc.keepalive_timeout_ms", config.keep_alive_timeout_ms),
        ("grpc.http2.min_ping_interval_without_data_ms", config.min_ping_interval_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.so_reuseport", 0),
    ]
