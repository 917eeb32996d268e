"""The native server: listens, keeps its connections within bounds, and stops in order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from goqueue.api.calls.delays import DelayCalls
from goqueue.api.calls.groups import GroupCalls
from goqueue.api.calls.limits import AnswerLimits, max_request_bytes
from goqueue.api.calls.schemas import SchemaCalls
from goqueue.api.calls.subscription import Subscriptions
from goqueue.api.calls.topics import MetadataCalls, TopicCalls
from goqueue.api.calls.transactions import TransactionCalls
from goqueue.api.listening import advertised, listening_socket
from goqueue.api.native.connection import Connection
from goqueue.api.native.host import CallTarget
from goqueue.broker.operations import CallerProtocol, Operations
from goqueue.model.addresses import SCHEME
from goqueue.model.config import NativeConfig
from goqueue.model.errors import Overloaded
from goqueue.wire.native.operations import CALLS
from goqueue.wire.proto import goqueue_pb2 as pb

_BACKLOG = 1_024
_SWEEP_EVERY_S = 1.0
_CHECK_EVERY_S = 0.01
_PATIENCE_S = 5.0
"""How long a client may leave everything unread while there is no room for others."""


class NativeServer:
    """Serves a broker over the native protocol, on the broker's own loop."""

    def __init__(self, operations: Operations, config: NativeConfig) -> None:
        self.operations = operations
        self.config = config
        self.max_call_s = config.max_call_ms / 1_000
        requests = operations.requests(CallerProtocol.NATIVE)
        self.publish_endpoint = requests.endpoint("publish", "publish")
        self.read_endpoint = requests.endpoint("read", "read")
        self.subscribe_endpoint = requests.endpoint("subscribe", "subscribe")
        self.subscriptions = Subscriptions(operations, config.max_call_ms, config.max_batch_bytes)
        operations.count_connections(CallerProtocol.NATIVE, lambda: len(self._connections))
        self.calls: dict[int, CallTarget] = {}
        self.port = 0
        self._connections: dict[Connection, None] = {}
        self._streams = 0
        self._has_room = asyncio.Event()
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None

    def bind(self) -> socket.socket:
        """Take the port: if it is in use, say so before anything is recovered."""
        host, port = self.config.host, self.config.port
        listener = listening_socket(host, port, "the native protocol", "--set native.port=N", _BACKLOG)
        self._listener = listener
        self.port = listener.getsockname()[1]
        return listener

    async def start(self) -> None:
        """Serve; the broker must be ready."""
        listener = self._listener or self.bind()
        self.calls = self._calls()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), sock=listener)
        self._sweeping = asyncio.create_task(self._sweep(), name="native sweep")

    def _calls(self) -> dict[int, CallTarget]:
        operations, config = self.operations, self.config
        limits = AnswerLimits(config.max_message_bytes, config.max_batch_bytes, self._check_room)
        address = advertised(config.advertised_address, config.host, self.port)
        services = {
            "Topics": TopicCalls(operations),
            "Metadata": MetadataCalls(operations, SCHEME + address if address else ""),
            "Groups": GroupCalls(operations, limits),
            "Delays": DelayCalls(operations, limits),
            "Schemas": SchemaCalls(operations, limits),
            "Transactions": TransactionCalls(operations),
        }
        requests = operations.requests(CallerProtocol.NATIVE)
        found: dict[int, CallTarget] = {}
        for number, name in CALLS.items():
            service, _, method = name.partition(".")
            input_type = pb.DESCRIPTOR.services_by_name[service].methods_by_name[method].input_type.name
            found[number] = CallTarget(
                name,
                getattr(services[service], method),
                getattr(pb, input_type),
                max_request_bytes(name),
                requests.endpoint(name, method),
            )
        return found

    # Bounds

    def connected(self, connection: Connection) -> None:
        self._connections[connection] = None
        if len(self._connections) > self.config.max_connections:
            most = self.config.max_connections
            connection.refuse(
                Overloaded(f"there are {most} connections already (native.max_connections)", retry_after_s=1)
            )

    def disconnected(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self.made_room()

    @contextmanager
    def stream_slot(self) -> Iterator[None]:
        """One of the streams that may be open at once."""
        if self._streams >= self.config.max_streams:
            raise Overloaded(f"{self._streams} streams are open; native.max_streams is the bound", retry_after_s=1)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    @property
    def _unread_bytes(self) -> int:
        return sum(each.unread_bytes for each in self._connections)

    async def until_room(self) -> None:
        """Return when clients have read enough of all that was written."""
        while self._unread_bytes > self.config.max_unread_bytes:
            self._has_room.clear()
            await self._has_room.wait()

    def made_room(self) -> None:
        """A client has read what was written."""
        self._has_room.set()

    def _check_room(self, call: str, size_bytes: int) -> None:
        """Raise if clients leave so much unread that an answer of this size would go beyond the bound."""
        unread_bytes = self._unread_bytes
        if unread_bytes and unread_bytes + size_bytes > self.config.max_unread_bytes:
            raise Overloaded(
                f"the broker is at its limit: native.max_unread_bytes is {self.config.max_unread_bytes}",
                retry_after_s=1,
            )

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            self.sweep(loop.time())

    def sweep(self, now_s: float) -> None:
        """Disconnect clients that are silent, and those that keep others waiting by not reading."""
        is_full = self._unread_bytes > self.config.max_unread_bytes
        for connection in list(self._connections):
            if is_full and connection.reads_nothing(now_s, _PATIENCE_S):
                connection.abort()
            else:
                connection.check_heard(now_s)

    # Stopping

    async def stop(self, grace_s: float) -> None:
        """Answer what was accepted, for at most ``grace_s``; the broker must have been told to stop before."""
        if self._server is None:
            if self._listener is not None:
                self._listener.close()
            return
        self._server.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        deadline = asyncio.get_running_loop().time() + grace_s
        while self._connections and asyncio.get_running_loop().time() < deadline:
            for connection in list(self._connections):
                if connection.is_idle:
                    connection.close()
            await asyncio.sleep(_CHECK_EVERY_S)
        for connection in list(self._connections):
            connection.abort()
        await self._server.wait_closed()
