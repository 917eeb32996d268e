from __future__ import annotations

import asyncio

import grpc
import pytest
from api_grpc_calls import Serve, Served, error_of
from behaviour.clock import ManualClock
from doubles.async_tests import until
from doubles.frames import packed, publish, values_of

from goqueue.wire.batch import parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.proto import goqueue_pb2 as pb

SECOND_NS = 1_000_000_000


def delayed_frame(value: bytes, due_ns: int, *, relative: bool = True, priority: int = 2) -> bytes:
    headers = encode_headers((due_header(due_ns, relative=relative),))
    return encode_frame(b"", value, headers, 1, priority, int(Flag.DELAYED))


async def store(served: Served, *frames: bytes, number: int = 0) -> pb.Stored:
    request = pb.PublishRequest(topic="t", batch=packed(list(frames)), correlation_id=number)
    return (await served.messages.Publish(request)).stored


async def test_a_publish_tells_when_each_message_will_be_seen(serve: Serve) -> None:
    clock = ManualClock()
    async with serve(clock=clock) as served:
        now_ns = clock.now_ns()
        plain = encode_frame(b"", b"p", b"", 1)
        past = delayed_frame(b"past", now_ns - 1, relative=False)
        stored = await store(served, plain, delayed_frame(b"d", SECOND_NS), past)
        assert list(stored.deliver_at_ns) == [0, now_ns + SECOND_NS, 0]
        assert list((await store(served, plain, past)).deliver_at_ns) == []
        at = await store(served, delayed_frame(b"e", now_ns + 7, relative=False))
        assert (at.first_offset, list(at.deliver_at_ns)) == (5, [now_ns + 7])
        stream = served.messages.PublishStream()
        await stream.write(pb.PublishRequest(topic="t", batch=packed([delayed_frame(b"f", SECOND_NS)])))
        answer = await stream.read()
        assert list(answer.stored.deliver_at_ns) == [now_ns + SECOND_NS]
        await stream.done_writing()


async def test_a_fetch_goes_on_behind_what_nobody_sees(serve: Serve) -> None:
    async with serve() as served:
        frames = [delayed_frame(b"%d" % number, 3_600 * SECOND_NS) for number in range(50)]
        await store(served, *frames[:20], encode_frame(b"", b"a", b"", 1), *frames[20:])
        await store(served, encode_frame(b"", b"b", b"", 1), *frames)
        request = pb.FetchRequest(topic="t", max_batch_bytes=1_024)
        responses = [response async for response in served.messages.Fetch(request)]
        assert [value for response in responses for value in values_of(response)] == [b"a", b"b"]
        assert len(responses) <= 3
        assert (responses[-1].next_offset, responses[-1].high_watermark) == (102, 102)
        from_the_middle = pb.FetchRequest(topic="t", start=pb.Start(offset=60))
        (last,) = [response async for response in served.messages.Fetch(from_the_middle)]
        assert (last.batch, last.next_offset) == (b"", 102)


async def test_a_follower_waits_at_a_tail_that_nobody_sees_and_gets_what_comes(serve: Serve) -> None:
    async with serve() as served:
        await store(served, delayed_frame(b"later", 3_600 * SECOND_NS))
        call = served.messages.Fetch(pb.FetchRequest(topic="t", follow=True))
        reading = asyncio.ensure_future(call.read())
        await until(lambda: served.waiting_readers() == 1)
        await store(served, delayed_frame(b"later still", 3_600 * SECOND_NS))
        await until(lambda: served.waiting_readers() == 1)
        assert not reading.done()
        await served.delays.RescheduleDelayed(pb.RescheduleDelayedRequest(topic="t", offset=0, delay_ms=0))
        response = await asyncio.wait_for(reading, 60)
        assert values_of(response) == [b"later"]
        assert response.next_offset == 4
        call.cancel()


async def test_a_list_leaves_out_what_is_too_much_and_each_can_be_asked_for(serve: Serve) -> None:
    async with serve(max_batch_bytes=4_096) as served:
        sizes = [3_000, 3_000, 500]
        frames = [delayed_frame(b"x" * size, (place + 1) * 3_600 * SECOND_NS) for place, size in enumerate(sizes)]
        await store(served, *frames)
        found = await served.delays.ListDelayed(pb.ListDelayedRequest(topic="t"))
        assert [bool(each.message) for each in found.messages] == [True, False, True]
        assert ([each.offset for each in found.messages], found.total, found.next) == ([0, 1, 2], 3, "")
        one = await served.delays.GetDelayed(pb.GetDelayedRequest(topic="t", offset=1))
        [message], _ = decode_run(parse_batch(one.message))
        assert (len(message.value), message.offset, message.headers) == (3_000, 1, ())


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        ("ListDelayed", pb.ListDelayedRequest(topic="nope"), "topic_not_found"),
        ("ListDelayed", pb.ListDelayedRequest(topic="t", limit=1_001), "invalid_request"),
        ("ListDelayed", pb.ListDelayedRequest(topic="t", after="x"), "invalid_request"),
        ("GetDelayed", pb.GetDelayedRequest(topic="t"), "delayed_not_found"),
        ("GetDelayed", pb.GetDelayedRequest(topic="t", offset=-1), "delayed_not_found"),
        ("GetDelayed", pb.GetDelayedRequest(topic="t", partition=9), "partition_not_found"),
        ("CancelDelayed", pb.CancelDelayedRequest(topic="t"), "delayed_not_found"),
        ("RescheduleDelayed", pb.RescheduleDelayedRequest(topic="t"), "invalid_request"),
        ("RescheduleDelayed", pb.RescheduleDelayedRequest(topic="t", delay_ms=1), "delayed_not_found"),
        ("RescheduleDelayed", pb.RescheduleDelayedRequest(topic="t", delay_ms=(1 << 64) - 1), "invalid_message"),
        ("RescheduleDelayed", pb.RescheduleDelayedRequest(topic="t", deliver_at_ns=-1), "invalid_message"),
    ],
)
async def test_what_cannot_be_done_says_why(serve: Serve, method: str, request_: object, code: str) -> None:
    async with serve() as served:
        error = await error_of(getattr(served.delays, method)(request_))
        assert error.code == code
        not_found = code.endswith("_not_found")
        assert error.status is (grpc.StatusCode.NOT_FOUND if not_found else grpc.StatusCode.INVALID_ARGUMENT)


async def test_lanes_are_told_page_by_page(serve: Serve) -> None:
    async with serve(topic={"partitions": 3}) as served:
        await served.broker.create_topic("u", {"partitions": 2})
        await served.messages.Publish(publish(b"a", b"b", partition=2))
        request = pb.LaneStatsRequest(limit=2)
        seen = []
        more = True
        while more:
            page = await served.groups.LaneStats(request)
            seen += [(each.topic, each.partition) for each in page.partitions]
            request.after.topic, request.after.partition = seen[-1]
            more = page.more
        assert seen == [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)]
        only = await served.groups.LaneStats(pb.LaneStatsRequest(topic="t"))
        assert [lane.stored for lane in only.partitions[2].lanes] == [0, 0, 2, 0, 0]
        assert not only.more
        for wrong, code in (
            (pb.LaneStatsRequest(topic="nope"), "topic_not_found"),
            (pb.LaneStatsRequest(limit=1_001), "invalid_request"),
        ):
            assert (await error_of(served.groups.LaneStats(wrong))).code == code
