from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from api_grpc_calls import Serve, Served
from doubles.async_tests import until
from doubles.frames import publish, values_of
from silent_client import SilentClient

from goqueue.api.grpc.stream_room import StreamRoom, Turn
from goqueue.broker.partitions.read import Bounds
from goqueue.wire.proto import goqueue_pb2 as pb

BOUND = 1 << 20
LARGE = b"x" * (300 << 10)
FETCH = pb.FetchRequest(topic="t")


@asynccontextmanager
async def with_large_messages(serve: Serve) -> AsyncIterator[tuple[Served, StreamRoom]]:
    """Three of them find room, and what is below 1 KiB always does."""
    async with serve(max_unread_bytes=BOUND, max_fetch_streams=512, max_subscriptions=512) as served:
        for _ in range(2):
            await served.messages.Publish(publish(LARGE))
        yield served, served.server._stream_room


async def fill(served: Served, room: StreamRoom, *clients: SilentClient) -> None:
    """Return when the batches of some streams are on their way, and all others wait for room."""
    for client in clients:
        for _ in range(5):
            client.call("/goqueue.v1.Messages/Fetch", FETCH)
    await until(lambda: len(room._waiting) + len(room._queue) == 5 * len(clients) and room._queue)


async def test_batches_that_clients_do_not_read_are_bounded_over_all_streams(serve: Serve) -> None:
    async with with_large_messages(serve) as (served, room):
        await served.broker.create_topic("u", {"partitions": 1})
        await served.messages.Publish(publish(b"a", b"b", topic="u"))
        with ExitStack() as stack:
            clients = [stack.enter_context(SilentClient(served.server.port)) for _ in range(4)]
            await fill(served, room, *clients)
            # Nothing of it is read, so that it was never more.
            assert BOUND - 2 * len(LARGE) < room.size_bytes <= BOUND
            # Streams of small messages go on, and so do single calls.
            small = served.messages.Fetch(pb.FetchRequest(topic="u"))
            assert values_of(await small.read()) == [b"a", b"b"]
            assert (await served.messages.Publish(publish(b"c", topic="u"))).stored.first_offset == 2
            late = served.messages.Fetch(FETCH)
            reading = asyncio.ensure_future(late.read())
            waiting = len(room._queue)
            await until(lambda: len(room._queue) == waiting + 1)
        found = values_of(await reading)
        while len(found) < 2:
            found += values_of(await late.read())
        assert found == [LARGE, LARGE]
        await until(lambda: room.size_bytes == 0 and not room._queue)


@pytest.mark.parametrize("mode", ["queue", "stream"])
async def test_a_subscription_waits_for_room_and_loses_nothing(serve: Serve, mode: str) -> None:
    async with with_large_messages(serve) as (served, room):
        subscription = served.groups.Subscribe()
        with SilentClient(served.server.port) as silent:
            await fill(served, room, silent)
            waiting = len(room._queue)
            join = pb.JoinRequest(group="g", topics=["t"], client_id="c", settings={"mode": mode}, credit=10)
            await subscription.write(pb.SubscribeRequest(join=join))
            await until(lambda: len(room._queue) == waiting + 1)
        received = 0
        while received < 2:
            answer = await subscription.read()
            for each in answer.messages.deliveries:
                assert each.deliveries == (1 if mode == "queue" else 0)
                received += len(each.batch) // len(LARGE)
        subscription.cancel()
        await until(lambda: room.size_bytes == 0 and not room._queue)


class Peer:
    """A context as far as it matters here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def peer(self) -> str:
        return self.name


def turn_of(room: StreamRoom, peer: str = "peer") -> Turn:
    context: Any = Peer(peer)
    return Turn(room, context)


class Cut(list[str]):
    def __call__(self, peers: Collection[str]) -> None:
        self.extend(peers)


BOUNDS = Bounds(8_000, wait_ms=1_000)


def test_a_stream_reads_less_while_there_is_no_room_for_more() -> None:
    room = StreamRoom(10_000, 10, Cut())
    first, second = turn_of(room), turn_of(room)
    assert first.narrowed(BOUNDS) == BOUNDS
    assert first.take(8_000)
    assert second.narrowed(BOUNDS).max_bytes == room.share_bytes == 1_024
    assert second.take(1_024)
    assert not second.take(8_000)
    first.done()
    assert second.narrowed(BOUNDS) == BOUNDS


async def test_large_messages_have_their_turn_one_after_the_other() -> None:
    room = StreamRoom(10_000, 10, Cut())
    first, second, third = (turn_of(room) for _ in range(3))
    assert first.take(8_000)
    for each in (second, third):
        assert not each.take(9_000)
        # Once more, and small; then it is known that there is no smaller one.
        await each.make_room(9_000)
        assert each.narrowed(BOUNDS).max_bytes == room.share_bytes
        assert not each.take(9_000)
    waiting = [asyncio.create_task(each.make_room(9_000)) for each in (second, third)]
    await until(lambda: len(room._queue) == 2)
    first.done()
    await waiting[0]
    # It reads what it has room for, and does not keep the room while it waits for messages.
    assert second.narrowed(BOUNDS) == Bounds(8_000, wait_ms=0)
    assert second.take(9_000)
    assert not waiting[1].done()
    second.done()
    await waiting[1]
    third.done()
    assert room.size_bytes == 0


async def test_a_stream_that_ends_while_it_waits_holds_up_nobody() -> None:
    room = StreamRoom(10_000, 10, Cut())
    first, second, third = (turn_of(room) for _ in range(3))
    assert first.take(8_000)
    waiting = [asyncio.create_task(each.wait(9_000)) for each in (second, third)]
    await until(lambda: len(room._queue) == 2)
    waiting[0].cancel()
    with suppress(asyncio.CancelledError):
        await waiting[0]
    first.done()
    await waiting[1]
    third.done()
    assert room.size_bytes == 0


async def test_a_stream_that_ends_as_its_turn_comes_gives_it_to_the_next() -> None:
    room = StreamRoom(10_000, 10, Cut())
    first, second, third = (turn_of(room) for _ in range(3))
    assert first.take(8_000)
    waiting = [asyncio.create_task(each.wait(9_000)) for each in (second, third)]
    await until(lambda: len(room._queue) == 2)
    first.done()
    waiting[0].cancel()
    with suppress(asyncio.CancelledError):
        await waiting[0]
    await waiting[1]
    third.done()
    assert room.size_bytes == 0


async def test_who_does_not_read_its_streams_is_cut_off_only_while_others_wait_for_room() -> None:
    cut = Cut()
    room = StreamRoom(10_000, 10, cut)
    silent, other = turn_of(room, "silent"), turn_of(room, "other")
    assert silent.take(8_000)
    for _ in range(200):
        room.sweep()
    assert not cut
    waiting = asyncio.create_task(other.wait(9_000))
    await until(lambda: room._queue)
    for _ in range(60):
        room.sweep()
    assert not cut
    room.sweep()
    assert cut == ["silent"]
    silent.done()
    await waiting
    other.done()
