from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from api_grpc_calls import Serve, Served, error_of
from doubles.async_tests import until
from doubles.frames import publish
from grpc_health.v1 import health_pb2, health_pb2_grpc
from silent_client import SilentClient

from goqueue.api.grpc import unread as module
from goqueue.api.grpc.cutting import _address_of
from goqueue.api.grpc.unread import Unread
from goqueue.model.errors import Overloaded
from goqueue.wire.proto import goqueue_pb2 as pb

BOUND = 1 << 20
VALUE = b"x" * (300 << 10)
"""Three answers with it find room, and small ones beside them."""
PEEK = pb.PeekGroupRequest(group="g", limit=1)
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that do not read are not cut off."""
    monkeypatch.setattr(module, "_PATIENCE", 1 << 40)


@asynccontextmanager
async def with_large_answers(serve: Serve) -> AsyncIterator[tuple[Served, Unread]]:
    async with serve(max_unread_bytes=BOUND) as served:
        await served.messages.Publish(publish(VALUE))
        await served.groups.Join(pb.JoinRequest(group="g", topics=["t"], client_id="c"))
        await served.groups.PeekGroup(PEEK)
        unread = served.server._unread
        await until(lambda: unread.size_bytes == 0)
        yield served, unread


def peek(client: SilentClient, times: int) -> None:
    for _ in range(times):
        client.call("/goqueue.v1.Groups/PeekGroup", PEEK)


def ended(served: Served, method: str) -> int:
    return sum(served.server._calls.endpoint(method).by_code.values())


async def fill(served: Served, *clients: SilentClient) -> None:
    """All answers are on their way or refused when this returns."""
    before, times = ended(served, "PeekGroup"), 10
    for client in clients:
        peek(client, times)
    await until(lambda: ended(served, "PeekGroup") == before + times * len(clients))


@pytest.mark.usefixtures("patient")
async def test_answers_that_clients_do_not_read_are_bounded_over_all_connections(serve: Serve) -> None:
    async with with_large_answers(serve) as (served, unread):
        with ExitStack() as stack:
            clients = [stack.enter_context(SilentClient(served.server.port)) for _ in range(4)]
            await fill(served, *clients)
            # Nothing of it is read, so that it was never more.
            assert BOUND - len(VALUE) * 5 // 4 < unread.size_bytes <= BOUND
            refused = await error_of(served.groups.PeekGroup(PEEK))
            assert (refused.status, refused.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded")
            assert (refused.retriable, refused.retry_after_ms) == ("true", "1000")
            assert "grpc.max_unread_bytes" in refused.details
            health = health_pb2_grpc.HealthStub(served.channel)
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == SERVING
        await until(lambda: unread.size_bytes == 0)
        assert len((await served.groups.PeekGroup(PEEK)).messages) == 1


async def test_who_does_not_read_is_cut_off_and_others_are_served_again(serve: Serve) -> None:
    async with with_large_answers(serve) as (served, unread):
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        with SilentClient(served.server.port) as silent:
            peek(silent, 10)
            await asyncio.to_thread(silent.wait_until_closed)
            await until(lambda: unread.size_bytes == 0)
            assert len((await served.groups.PeekGroup(PEEK)).messages) == 1
            # Its connection is the one it had.
            assert not watch.done()


@pytest.mark.usefixtures("patient")
async def test_messages_of_a_poll_that_finds_no_room_are_given_back(serve: Serve) -> None:
    async with with_large_answers(serve) as (served, unread):
        await served.broker.create_topic("u", {"partitions": 1})
        member = await served.groups.Join(pb.JoinRequest(group="h", topics=["u"], client_id="c"))
        poll = pb.PollRequest(group="h", member_id=member.member_id, wait_ms=30_000)
        polling = asyncio.ensure_future(error_of(served.groups.Poll(poll)))
        await until(lambda: ended(served, "Poll") == 0 and served.server._calls._to_answer)
        with SilentClient(served.server.port) as silent:
            await fill(served, silent)
            await served.messages.Publish(publish(VALUE, topic="u"))
            assert (await polling).code == "overloaded"
        await until(lambda: unread.size_bytes == 0)
        (delivery,) = (await served.groups.Poll(poll)).deliveries
        assert (delivery.topic, delivery.deliveries) == ("u", 1)


class Peer:
    """A context as far as it matters here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def peer(self) -> str:
        return self.name


class Sending:
    """An answer that is on its way until it is taken."""

    def __init__(self, unread: Unread, peer: str, size_bytes: int) -> None:
        self._is_taken = asyncio.Event()
        self._task = asyncio.create_task(self._send(unread, Peer(peer), size_bytes))

    async def _send(self, unread: Unread, context: Any, size_bytes: int) -> None:
        unread.add(context, size_bytes)
        await self._is_taken.wait()

    async def take(self) -> None:
        self._is_taken.set()
        await self._task
        await asyncio.sleep(0)


class Cut(list[str]):
    def __call__(self, peers: Collection[str]) -> None:
        self.extend(peers)


async def test_a_client_that_takes_one_answer_after_the_other_is_not_cut_off() -> None:
    cut = Cut()
    unread = Unread(10, 100, cut)
    slow = [Sending(unread, "slow", 1) for _ in range(20)]
    silent = Sending(unread, "silent", 1)
    await asyncio.sleep(0)
    for each in slow[:4]:
        unread.sweep()
        await each.take()
        # More of them do not make it silent, and do not make up for anything.
        slow.append(Sending(unread, "silent", 1))
        await asyncio.sleep(0)
    assert set(cut) == {"silent"}
    for each in [*slow, silent]:
        await each.take()
    assert unread.size_bytes == 0


async def test_nobody_is_cut_off_while_there_is_room_enough() -> None:
    cut = Cut()
    unread = Unread(10, 100, cut)
    silent = Sending(unread, "silent", 4)
    await asyncio.sleep(0)
    for _ in range(10):
        unread.sweep()
    assert not cut
    await silent.take()


async def test_who_takes_up_the_calls_with_small_answers_is_cut_off() -> None:
    cut = Cut()
    unread = Unread(1 << 20, 4, cut)
    silent = [Sending(unread, "silent", 0) for _ in range(2)]
    await asyncio.sleep(0)
    for _ in range(3):
        unread.sweep()
    assert cut == ["silent"]
    for each in silent:
        await each.take()


async def test_a_large_answer_has_more_time() -> None:
    cut = Cut()
    unread = Unread(64 << 20, 100, cut)
    large = Sending(unread, "a", 32 << 20)
    await asyncio.sleep(0)
    for _ in range(4):
        unread.sweep()
    assert not cut
    unread.sweep()
    assert cut == ["a"]
    await large.take()


async def test_one_answer_beyond_the_bound_is_sent_when_nothing_else_waits() -> None:
    unread = Unread(10, 100, Cut())
    unread.check_room("a", 11)
    first = Sending(unread, "a", 11)
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        unread.check_room("a")
    await first.take()
    unread.check_room("a")


async def test_no_work_is_done_for_answers_that_would_find_no_room() -> None:
    unread = Unread(10, 100, Cut())
    waiting = [Sending(unread, "a", 4) for _ in range(2)]
    await asyncio.sleep(0)
    unread.check_room("large")
    with pytest.raises(Overloaded):
        unread.check_room("large", 5)
    with pytest.raises(Overloaded):
        unread.check_room("large")
    unread.check_room("small")
    unread.check_room("small", 2)
    await waiting[0].take()
    unread.check_room("large")
    await waiting[1].take()


async def test_a_large_answer_that_was_refused_does_not_count_against_smaller_ones_for_long() -> None:
    unread = Unread(10, 100, Cut())
    waiting = Sending(unread, "a", 4)
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        unread.check_room("peek", 7)
    with pytest.raises(Overloaded):
        unread.check_room("peek")
    unread.sweep()
    unread.check_room("peek")
    await waiting.take()


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:50000", ("127.0.0.1", 50000)),
        ("ipv6:%5B::1%5D:50000", ("::1", 50000)),
        ("ipv6:[::1]:50000", ("::1", 50000)),
        ("ipv6:%5B::ffff:127.0.0.1%5D:50000", ("127.0.0.1", 50000)),
        ("ipv6:%5Bfe80::1%252%5D:50000", ("fe80::1", 50000)),
        ("unix:/tmp/socket", None),
        ("", None),
    ],
)
def test_peers_are_understood_as_grpc_names_them(peer: str, address: tuple[str, int] | None) -> None:
    assert _address_of(peer) == address
