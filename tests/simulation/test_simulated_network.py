"""Connections between simulated processes: order, delay, cuts of one way or both, ends of all kinds, backpressure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from goqueue.simulation.network.endpoint import GIVE_UP_S
from goqueue.simulation.network.network import CONNECT_S
from goqueue.simulation.processes import Process
from goqueue.simulation.virtual_loop import SimulatedLoop

PORT = 7000


class Told(asyncio.Protocol):
    """Keeps what a protocol is told."""

    def __init__(self, *, stays_open: bool = False) -> None:
        self.stays_open = stays_open
        self.received = b""
        self.pieces = 0
        self.events: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.pieces += 1

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.stays_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(type(exc).__name__ if exc else "lost")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Pair:
    """A client at one host and a server at another, and what both were told."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.network = loop.network
        self.client_process, self.server_process = Process("client"), Process("server")
        self.client, self.server = Told(), Told()

    async def connected(self) -> Pair:
        async def listen() -> None:
            await asyncio.get_running_loop().create_server(lambda: self.server, "server", PORT)

        await self.loop.run_in(self.server_process, listen)
        await self.connect()
        return self

    async def connect(self) -> None:
        async def connect() -> None:
            await asyncio.get_running_loop().create_connection(lambda: self.client, "server", PORT)

        await self.loop.run_in(self.client_process, connect)


def run(work: Callable[[Pair], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    loop = SimulatedLoop(Random(seed))
    try:
        return loop.run_until_complete(work(Pair(loop)))
    finally:
        loop.close()


@pytest.mark.parametrize("seed", range(10))
def test_what_is_sent_arrives_once_and_in_order_some_time_later(seed: int) -> None:
    async def talk(pair: Pair) -> None:
        await pair.connected()
        sent = b""
        for number in range(500):
            data = b"%d," % number * (number % 7)
            pair.client.transport.write(data)
            sent += data
            if number % 50 == 0:
                await asyncio.sleep(0.001)
                pair.network.cut("client", "server")
                await asyncio.sleep(0.001)
                pair.network.heal("client", "server")
        assert pair.server.received != sent, "it takes time"
        await asyncio.sleep(10)
        assert pair.server.received == sent
        pair.server.transport.write(b"answer")
        await asyncio.sleep(10)
        assert pair.client.received == b"answer"

    run(talk, seed)


def test_a_stream_may_arrive_in_other_pieces_than_it_was_sent_in() -> None:
    async def pieces(pair: Pair) -> int:
        await pair.connected()
        for _ in range(100):
            pair.client.transport.write(b"0123456789")
        await asyncio.sleep(10)
        assert len(pair.server.received) == 1_000
        return pair.server.pieces

    assert len({run(pieces, seed) for seed in range(10)}) > 1


def test_the_same_seed_gives_the_same_history() -> None:
    async def history(pair: Pair) -> list[tuple[float, int]]:
        await pair.connected()
        seen = []
        for number in range(50):
            pair.client.transport.write(bytes(number * 100))
            await asyncio.sleep(0.0003)
            seen.append((pair.loop.time(), len(pair.server.received)))
        return seen

    assert run(history, 3) == run(history, 3)
    assert run(history, 3) != run(history, 4)


def test_behind_a_cut_of_one_way_there_is_silence_and_the_other_way_works() -> None:
    async def cut(pair: Pair) -> None:
        await pair.connected()
        pair.network.cut("client", "server")
        pair.client.transport.write(b"request")
        pair.server.transport.write(b"news")
        await asyncio.sleep(100)
        assert (pair.server.received, pair.server.events) == (b"", ["made"])
        assert (pair.client.received, pair.client.events) == (b"news", ["made"])
        pair.network.heal("client", "server")
        await asyncio.sleep(1)
        assert pair.server.received == b"request"

    run(cut)


def test_what_was_on_its_way_when_the_way_was_cut_arrives_before_what_was_sent_later() -> None:
    async def cut(pair: Pair) -> None:
        await pair.connected()
        for number in range(20):
            pair.client.transport.write(b"%03d" % number)
            await asyncio.sleep(0.0001)
            pair.network.cut("client", "server")
            pair.client.transport.write(b"%03d" % (number + 100))
            await asyncio.sleep(0.0001)
            pair.network.heal("client", "server")
        await asyncio.sleep(1)
        assert pair.server.received == b"".join(b"%03d%03d" % (each, each + 100) for each in range(20))

    for seed in range(5):
        run(cut, seed)


def test_a_connection_whose_data_are_never_confirmed_is_given_up() -> None:
    async def cut(pair: Pair) -> None:
        await pair.connected()
        pair.network.cut("server", "client")
        pair.client.transport.write(b"request")
        await asyncio.sleep(GIVE_UP_S / 2)
        pair.client.transport.write(b"and more")
        assert pair.client.events == ["made"]
        await asyncio.sleep(GIVE_UP_S / 2 + 1)
        assert pair.client.events == ["made", "TimeoutError"]
        assert pair.server.received == b"requestand more"
        assert pair.server.events == ["made"], "nobody told it"

    run(cut)


def test_a_side_that_closes_sends_what_it_has_and_then_the_end() -> None:
    async def close(pair: Pair) -> None:
        await pair.connected()
        pair.client.transport.write(bytes(100_000))
        pair.client.transport.close()
        assert pair.client.transport.is_closing()
        await asyncio.sleep(600)
        assert len(pair.server.received) == 100_000
        assert pair.server.events == ["made", "eof", "lost"]
        assert pair.client.events == ["made", "pause", "resume", "lost"]

    run(close)


def test_a_side_that_has_ended_writing_can_still_be_answered() -> None:
    async def half_close(pair: Pair) -> None:
        pair.server.stays_open = True
        await pair.connected()
        pair.client.transport.write(b"all")
        pair.client.transport.write_eof()
        await asyncio.sleep(1)
        pair.server.transport.write(b"answer")
        pair.server.transport.close()
        await asyncio.sleep(1)
        assert pair.client.received == b"answer"
        assert (pair.client.events, pair.server.events) == (["made", "eof", "lost"], ["made", "eof", "lost"])
        with pytest.raises(RuntimeError):
            pair.client.transport.write(b"more")

    run(half_close)


def test_who_writes_to_a_side_that_is_gone_is_told_by_a_reset() -> None:
    async def reset(pair: Pair) -> None:
        pair.client.stays_open = True
        await pair.connected()
        pair.server.transport.close()
        await asyncio.sleep(1)
        assert pair.client.events == ["made", "eof"]
        pair.client.transport.write(b"are you there?")
        await asyncio.sleep(1)
        assert pair.client.events == ["made", "eof", "ConnectionResetError"]

    run(reset)


def test_an_aborted_connection_is_reset_after_the_delay() -> None:
    async def abort(pair: Pair) -> None:
        await pair.connected()
        pair.client.transport.write(b"on its way")
        pair.client.transport.abort()
        await asyncio.sleep(0)
        assert (pair.client.events, pair.server.events) == (["made", "lost"], ["made"])
        await asyncio.sleep(1)
        assert pair.server.events == ["made", "ConnectionResetError"]

    run(abort)


@pytest.mark.parametrize("seed", range(5))
def test_the_system_of_a_killed_process_ends_its_connections(seed: int) -> None:
    async def kill(pair: Pair) -> None:
        await pair.connected()
        pair.loop.kill(pair.server_process)
        assert pair.client.events == ["made"]
        await asyncio.sleep(1)
        assert pair.client.events in (["made", "eof", "lost"], ["made", "ConnectionResetError"])
        assert pair.server.events == ["made"], "it is dead"
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()

    run(kill, seed)


def test_of_a_host_without_power_nothing_is_heard_until_it_is_back() -> None:
    async def lose_power(pair: Pair) -> None:
        await pair.connected()
        pair.network.lose_power("server")
        pair.loop.kill(pair.server_process)
        pair.client.transport.write(b"are you there?")
        await asyncio.sleep(100)
        assert pair.client.events == ["made"]
        pair.network.restore_power("server")
        await asyncio.sleep(1)
        assert pair.client.events == ["made", "ConnectionResetError"]
        assert pair.server.received == b""

    run(lose_power)


def test_connecting_through_a_cut_ends_in_a_timeout() -> None:
    async def connect(pair: Pair) -> None:
        await pair.connected()
        pair.network.cut("server", "client")
        before_s = pair.loop.time()
        with pytest.raises(TimeoutError, match="no answer from server:7000"):
            await pair.connect()
        assert pair.loop.time() == before_s + CONNECT_S
        pair.network.heal("server", "client")
        await asyncio.sleep(1)
        # It had heard of the connection, and hears now that its client has given up.
        assert pair.server.events == ["made", "made", "ConnectionResetError"]

    run(connect)


def test_both_sides_are_told_of_a_connection_that_was_lost_between_them() -> None:
    async def lose(pair: Pair) -> None:
        await pair.connected()
        pair.client.transport.write(b"on its way")
        pair.network.lose_connections("server", "client")
        await asyncio.sleep(1)
        assert pair.client.events == pair.server.events == ["made", "ConnectionResetError"]
        assert pair.server.received == b""

    run(lose)


def test_a_slow_reader_holds_up_who_writes() -> None:
    async def flood(pair: Pair) -> None:
        await pair.connected()
        pair.server.transport.pause_reading()
        pair.client.transport.set_write_buffer_limits(high=10_000, low=1_000)
        pair.client.transport.write(bytes(200_000))
        await asyncio.sleep(10)
        assert pair.client.events == ["made", "pause"]
        assert pair.client.transport.get_write_buffer_size() > 10_000
        assert pair.server.received == b""
        pair.server.transport.resume_reading()
        await asyncio.sleep(600)
        assert pair.client.events == ["made", "pause", "resume"]
        assert pair.client.transport.get_write_buffer_size() == 0
        assert len(pair.server.received) == 200_000

    run(flood)


def test_streams_of_asyncio_run_as_they_are() -> None:
    async def talk(pair: Pair) -> bytes:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        async def serve() -> int:
            server = await asyncio.start_server(answer, port=0)
            port = server.sockets[0].getsockname()[1]
            assert isinstance(port, int)
            return port

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection("server", port)
            writer.write(b"one\n" * 10_000)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

        port = await pair.loop.run_in(pair.server_process, serve)
        return await pair.loop.run_in(pair.client_process, ask)

    assert run(talk) == b"ONE\n" * 10_000


def test_a_protocol_that_fails_loses_its_connection() -> None:
    class Failing(Told):
        def data_received(self, data: bytes) -> None:
            raise ValueError("no")

    async def fail(pair: Pair) -> None:
        pair.server = Failing()
        reported: list[object] = []
        pair.loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        await pair.connected()
        pair.client.transport.write(b"?")
        await asyncio.sleep(1)
        assert pair.server.events == ["made", "ValueError"]
        assert pair.client.events == ["made", "ConnectionResetError"]
        assert [type(each) for each in reported] == [ValueError]

    run(fail)


def test_a_port_is_used_once_and_can_be_used_again() -> None:
    async def listen(pair: Pair) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Told, port=PORT)
        with pytest.raises(OSError, match="in use"):
            await loop.create_server(Told, port=PORT)
        server.close()
        await server.wait_closed()
        assert not server.is_serving()
        await loop.create_server(Told, port=PORT)

    run(listen)
