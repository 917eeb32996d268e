"""The network between simulated hosts: listening, connecting, and what goes wrong on the way.

A cut way delivers nothing, and its sender is told nothing: it hears what the other side sends, if only one way is cut,
and sees neither an answer nor an error. What was sent arrives when the way is there again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from errno import EADDRINUSE, ECONNREFUSED, ETIMEDOUT
from random import Random

from goqueue.simulation.network.endpoint import Address, Endpoint
from goqueue.simulation.network.ways import Pipe, Way
from goqueue.simulation.processes import OUTSIDE, Process, process_of

Factory = Callable[[], asyncio.BaseProtocol]

CONNECT_S = 127.0
"""Without an answer, connecting is given up after so long, as on a Linux host."""
_FIRST_FREE_PORT = 40_000


class Network:
    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self.loop = loop
        self._random = random
        self._ways: dict[tuple[str, str], Way] = {}
        self._listeners: dict[Address, Listener] = {}
        self._ends: dict[Endpoint, None] = {}
        self._without_power: set[str] = set()
        self._next_port = _FIRST_FREE_PORT

    # What goes wrong

    def cut(self, source: str, target: str) -> None:
        """Nothing arrives from one host at another; the way back is not concerned."""
        self.way(source, target).is_cut = True

    def heal(self, source: str, target: str) -> None:
        way = self.way(source, target)
        way.is_cut = False
        way.resume()

    def slow_down(self, source: str, target: str, slowness: float) -> None:
        self.way(source, target).slowness = slowness

    def lose_connections(self, one: str, other: str) -> None:
        """What stands between two hosts has forgotten their connections: both sides are told."""
        for end in list(self._ends):
            if {end.own.host, end.peer.own.host} == {one, other}:
                end.reset()

    def way(self, source: str, target: str) -> Way:
        way = self._ways.get((source, target))
        if way is None:
            way = self._ways[source, target] = Way(source, target, has_target=target not in self._without_power)
        return way

    # Hosts and processes

    def end_process(self, process: Process) -> None:
        for address, listener in list(self._listeners.items()):
            if listener.process is process:
                del self._listeners[address]
        for end in list(self._ends):
            if end.process is process:
                end.end_with_process()

    def lose_power(self, host: str) -> None:
        """Nothing arrives at the host until it has power again; then nothing is known there of connections."""
        self._without_power.add(host)
        for address in [each for each in self._listeners if each.host == host]:
            del self._listeners[address]
        for end in list(self._ends):
            if end.own.host == host:
                end.end_with_host()
        for way in self._ways.values():
            if way.source == host:
                way.forget()
            if way.target == host:
                way.has_target = False

    def restore_power(self, host: str) -> None:
        self._without_power.discard(host)
        for way in self._ways.values():
            if way.target == host:
                way.has_target = True
                way.resume()

    def close(self) -> None:
        """The simulation is over: what was open is not left open by anyone."""
        for end in list(self._ends):
            end.end_with_host()

    # Connecting

    def listen(self, factory: Factory, port: int) -> Listener:
        address = Address(_own_host(), port or self._free_port())
        if address in self._listeners:
            raise OSError(EADDRINUSE, f"{address.host}:{address.port} is in use")
        context = copy_context()
        listener = Listener(self, address, factory, context, process_of(context))
        self._listeners[address] = listener
        return listener

    def stop_listening(self, listener: Listener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def connect(self, factory: Factory, host: str, port: int) -> tuple[Endpoint, asyncio.BaseProtocol]:
        target = Address(host, port)
        own = Address(_own_host(), self._free_port())
        there, back = self._pipe(own.host, host), self._pipe(host, own.host)
        client = self._endpoint(own, copy_context(), there)
        connected: asyncio.Future[asyncio.BaseProtocol] = self.loop.create_future()

        def established(server: Endpoint) -> None:
            if connected.done() or (client.process is not None and client.process.is_dead):
                # Nothing is known here of such a connection any more.
                there.send(server.reset)
            else:
                self._ends[client] = None
                connected.set_result(client.connect(server, factory))

        def refused() -> None:
            if not connected.done():
                connected.set_exception(ConnectionRefusedError(ECONNREFUSED, f"nothing listens at {host}:{port}"))

        there.send(lambda: self._accept(client, target, back, established, refused))
        try:
            async with asyncio.timeout(CONNECT_S):
                return client, await connected
        except TimeoutError:
            raise TimeoutError(ETIMEDOUT, f"no answer from {host}:{port}") from None

    def _accept(
        self,
        client: Endpoint,
        target: Address,
        back: Pipe,
        established: Callable[[Endpoint], None],
        refused: Callable[[], None],
    ) -> None:
        listener = self._listeners.get(target)
        if listener is None:
            back.send(refused)
            return
        server = self._endpoint(target, listener.context.copy(), back)
        # What it sends arrives behind this.
        back.send(lambda: established(server))
        self._ends[server] = None
        server.connect(client, listener.factory)

    def _endpoint(self, own: Address, context: Context, pipe: Pipe) -> Endpoint:
        return Endpoint(self.loop, self._random, own, context, pipe, lambda end: self._ends.pop(end, None))

    def _pipe(self, source: str, target: str) -> Pipe:
        return Pipe(self.loop, self._random, self.way(source, target))

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


@dataclass(eq=False)
class Listener(asyncio.AbstractServer):
    """What ``create_server`` returns."""

    network: Network
    address: Address
    factory: Factory
    context: Context
    process: Process | None
    _closed: asyncio.Event = field(default_factory=asyncio.Event)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.network.loop

    @property
    def sockets(self) -> tuple[Socket, ...]:
        return () if self._closed.is_set() else (Socket(self.address),)

    def is_serving(self) -> bool:
        return not self._closed.is_set()

    async def start_serving(self) -> None:
        """It does so from the beginning."""

    async def serve_forever(self) -> None:
        await self._closed.wait()

    def close(self) -> None:
        self.network.stop_listening(self)
        self._closed.set()

    async def wait_closed(self) -> None:
        await self._closed.wait()


@dataclass(frozen=True, slots=True)
class Socket:
    """As much of a listening socket as tells where it listens."""

    address: Address

    def getsockname(self) -> tuple[str, int]:
        return self.address.host, self.address.port


def _own_host() -> str:
    process = process_of()
    return OUTSIDE if process is None else process.host
