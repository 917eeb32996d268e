"""One member on one stream: how it ends, and who it ends for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import grpc.aio
from api_grpc_calls import Serve, Served, error_of
from doubles.async_tests import until

from goqueue.model.publishing import NewMessage
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

Stream = grpc.aio.StreamStreamCall[pb.SubscribeRequest, pb.SubscribeResponse]


async def subscribe(to: Served, member_id: str = "", **join: object) -> tuple[Stream, str]:
    stream = pb_grpc.GroupsStub(to.channel).Subscribe()
    request = pb.JoinRequest(group="g", client_id="c", topics=["t"], member_id=member_id, **join)  # type: ignore[arg-type]
    await stream.write(pb.SubscribeRequest(join=request))
    return stream, (await stream.read()).assignment.member_id


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
