"""One member on one stream: how it ends, and who it ends for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from api_grpc_calls import Serve, Served, error_of
from doubles.async_tests import until

from goqueue.api.calls import subscription as subscription_module
from goqueue.api.calls.subscription import MemberStream, Subscription, Subscriptions
from goqueue.api.grpc import subscribing as subscribing_module
from goqueue.model.publishing import NewMessage
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

Stream = grpc.aio.StreamStreamCall[pb.SubscribeRequest, pb.SubscribeResponse]


async def subscribe(to: Served, member_id: str = "", **join: object) -> tuple[Stream, str]:
    stream = pb_grpc.GroupsStub(to.channel).Subscribe()
    request = pb.JoinRequest(group="g", client_id="c", topics=["t"], member_id=member_id, **join)  # type: ignore[arg-type]
    await stream.write(pb.SubscribeRequest(join=request))
    return stream, (await stream.read()).assignment.member_id


class UnfinishedWrites:
    """The next write of a kind of answer, on any subscription, goes out, and the broker never hears that it did."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kind = ""
        self.begun = asyncio.Event()
        patch.setattr(subscribing_module, "Subscription", self._subscription)

    def _subscription(self, subscriptions: Subscriptions, stream: MemberStream) -> Subscription:
        stream.write = _Writes(stream.write, self).write  # type: ignore[method-assign]
        return Subscription(subscriptions, stream)


class _Writes:
    """Those of a stream."""

    def __init__(self, write: Any, unfinished: UnfinishedWrites) -> None:
        self._write = write
        self._unfinished = unfinished

    async def write(self, answer: pb.SubscribeResponse) -> None:
        await self._write(answer)
        if answer.WhichOneof("response") == self._unfinished.kind:
            self._unfinished.kind = ""
            self._unfinished.begun.set()
            await asyncio.Event().wait()


@pytest.fixture
def unfinished(monkeypatch: pytest.MonkeyPatch) -> UnfinishedWrites:
    return UnfinishedWrites(monkeypatch)


async def delivered(stream: Stream) -> pb.Delivery:
    """The next delivery; it is the only one in its answer."""
    [delivery] = (await stream.read()).messages.deliveries
    return delivery


async def ack(stream: Stream, delivery: pb.Delivery) -> pb.SettleResponse:
    """Ack its first message."""
    claim = pb.LeaseClaim(
        topic=delivery.topic,
        partition=delivery.partition,
        lease=delivery.lease,
        deliveries=delivery.deliveries,
        token=delivery.token,
        runs=[0, 1],
    )
    await stream.write(pb.SubscribeRequest(settle=pb.SettleRequest(verb=pb.VERB_ACK, leases=[claim])))
    answer = await stream.read()
    assert answer.WhichOneof("response") == "settled"
    return answer.settled


async def rest_of(stream: Stream) -> AsyncIterator[pb.SubscribeResponse]:
    while (answer := await stream.read()) is not grpc.aio.EOF:
        yield answer


async def test_a_member_that_leaves_is_told_so_although_it_was_waiting_for_messages(serve: Serve) -> None:
    async with serve() as it:
        stream, member = await subscribe(it)
        runtime = it.broker.groups.shards.find("g").runtime
        await until(lambda: bool(runtime.waiters))
        await stream.write(pb.SubscribeRequest(leave=pb.LeaveRequest()))
        answers = [answer.WhichOneof("response") async for answer in rest_of(stream)]
        assert answers[-1] == "left"
        assert await stream.code() == grpc.StatusCode.OK
        assert member not in it.broker.groups.shards.find("g").group.state.members


async def test_a_member_whose_group_is_gone_comes_as_a_new_one(serve: Serve) -> None:
    async with serve() as it:
        stream, member = await subscribe(it, "c-of-old")
        assert member in it.broker.groups.shards.find("g").group.state.members
        assert member != "c-of-old"
        stream.cancel()


async def test_a_claim_for_more_messages_than_a_member_can_have_is_refused(serve: Serve) -> None:
    async with serve() as it:
        claim = pb.LeaseClaim(topic="t", partition=0, lease=1, deliveries=1, token=b"x", runs=[0, 1_024])
        call = pb_grpc.GroupsStub(it.channel).Settle(pb.SettleRequest(group="g", leases=[claim] * 100))
        assert (await error_of(call)).code == "invalid_request"


async def test_a_stream_that_was_left_behind_is_told_that_its_member_goes_on_elsewhere(serve: Serve) -> None:
    async with serve() as it:
        old, member = await subscribe(it)
        new, again = await subscribe(it, member)
        assert again == member
        assert (await error_of(rest_of(old))).code == "member_fenced"
        await it.broker.publish("t", [NewMessage(b"x")])
        assert (await new.read()).WhichOneof("response") == "messages"
        new.cancel()
        session = it.broker.groups.shards.find("g").runtime.sessions[member]
        await until(lambda: session.calls == 0)


async def test_what_arrived_while_its_write_was_cut_short_stays_with_its_member(
    serve: Serve, unfinished: UnfinishedWrites
) -> None:
    async with serve() as it:
        await it.broker.publish("t", [NewMessage(b"x")])
        unfinished.kind = "messages"
        old, member = await subscribe(it)
        delivery = await delivered(old)
        held = [pb.HeldLease(topic="t", partition=0, lease=delivery.lease)]
        new, again = await subscribe(it, member, held=held)
        assert again == member
        # It comes to nobody else, and this member can still ack it.
        assert not (await ack(new, delivery)).refusals
        new.cancel()


async def test_what_did_not_arrive_because_its_write_was_cut_short_comes_again_and_does_not_count(
    serve: Serve, unfinished: UnfinishedWrites
) -> None:
    async with serve() as it:
        await it.broker.publish("t", [NewMessage(b"x")])
        unfinished.kind = "messages"
        old, member = await subscribe(it)
        await unfinished.begun.wait()
        new, _ = await subscribe(it, member)
        delivery = await delivered(new)
        assert delivery.deliveries == 1
        assert not (await ack(new, delivery)).refusals
        for stream in (old, new):
            stream.cancel()


async def test_what_was_not_written_when_a_stream_ended_goes_to_others_at_once_and_does_not_count(
    serve: Serve, unfinished: UnfinishedWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_next = asyncio.Event()
    put_deliveries = subscription_module.put_deliveries

    def put(*args: Any) -> None:
        put_deliveries(*args)
        # Whoever waits for this goes on when the broker's task waits for the write before.
        is_next.set()

    monkeypatch.setattr(subscription_module, "put_deliveries", put)
    async with serve() as it:
        old, _ = await subscribe(it, settings={"kind": "shared"})
        unfinished.kind = "settled"
        await old.write(pb.SubscribeRequest(settle=pb.SettleRequest(verb=pb.VERB_ACK)))
        await unfinished.begun.wait()
        await it.broker.publish("t", [NewMessage(b"x")])
        await is_next.wait()
        old.cancel()
        new, _ = await subscribe(it)
        assert (await delivered(new)).deliveries == 1
        new.cancel()
