from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from api_grpc_calls import Serve, Served, error_of
from doubles.async_tests import until
from doubles.frames import NOW_NS, publish, values_of
from doubles.patience import in_time

from goqueue.wire.proto import goqueue_pb2 as pb

AT_ONCE_S = 20.0


def fetch(start: pb.Start | None = None, **fields: Any) -> pb.FetchRequest:
    return pb.FetchRequest(topic="t", partition=fields.pop("partition", 0), start=start, **fields)


async def fill(served: Served, count: int) -> None:
    for number in range(count):
        await served.messages.Publish(publish(b"%d" % number, timestamp_ns=NOW_NS + number))


async def read_all(served: Served, request: pb.FetchRequest) -> list[bytes]:
    return [value async for response in served.messages.Fetch(request) for value in values_of(response)]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (None, 0),
        (pb.Start(position=pb.POSITION_EARLIEST), 0),
        (pb.Start(position=pb.POSITION_LATEST), 5),
        (pb.Start(offset=3), 3),
        (pb.Start(offset=5), 5),
        (pb.Start(instant_ns=NOW_NS + 2), 2),
        (pb.Start(instant_ns=NOW_NS + 100), 5),
    ],
)
async def test_reading_begins_where_it_was_asked_to(serve: Serve, start: pb.Start | None, first: int) -> None:
    async with serve() as served:
        await fill(served, 5)
        assert await read_all(served, fetch(start)) == [b"%d" % number for number in range(first, 5)]


async def test_without_follow_the_stream_ends_at_the_end_and_tells_the_offsets(serve: Serve) -> None:
    async with serve() as served:
        await fill(served, 3)
        last = [response async for response in served.messages.Fetch(fetch())][-1]
        assert (last.batch, last.next_offset, last.high_watermark) == (b"", 3, 3)


async def test_batches_are_as_large_as_asked_for(serve: Serve) -> None:
    async with serve() as served:
        await fill(served, 10)
        responses = [response async for response in served.messages.Fetch(fetch(max_batch_bytes=3 * 35))]
        assert [len(values_of(response)) for response in responses] == [3, 3, 3, 1, 0]
        assert [response.next_offset for response in responses] == [3, 6, 9, 10, 10]


async def test_a_batch_larger_than_the_broker_allows_is_refused(serve: Serve) -> None:
    async with serve(max_batch_bytes=2_048) as served:
        error = await error_of(served.messages.Fetch(fetch(max_batch_bytes=2_049)))
        assert (error.code, error.status) == ("invalid_request", grpc.StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (fetch(pb.Start(offset=4)), "offset_out_of_range"),
        (fetch(pb.Start(offset=-1)), "invalid_request"),
        (fetch(partition=1), "partition_not_found"),
        (pb.FetchRequest(topic="nope"), "topic_not_found"),
    ],
)
async def test_a_read_that_cannot_begin_says_why(serve: Serve, request_: pb.FetchRequest, code: str) -> None:
    async with serve() as served:
        await fill(served, 3)
        assert (await error_of(served.messages.Fetch(request_))).code == code


async def test_a_follower_gets_what_is_there_and_then_each_message_at_once(serve: Serve) -> None:
    async with serve() as served:
        await fill(served, 2)
        call = served.messages.Fetch(fetch(follow=True))
        assert values_of(await call.read()) == [b"0", b"1"]
        for number in range(3):
            await until(lambda: served.waiting_readers() == 1)
            with in_time(AT_ONCE_S):
                await served.messages.Publish(publish(b"new %d" % number))
                assert values_of(await call.read()) == [b"new %d" % number]
        call.cancel()


async def test_a_follower_from_the_latest_sees_only_what_comes(serve: Serve) -> None:
    async with serve() as served:
        await fill(served, 2)
        call = served.messages.Fetch(fetch(pb.Start(position=pb.POSITION_LATEST), follow=True))
        reading = asyncio.ensure_future(call.read())
        await until(lambda: served.waiting_readers() == 1)
        await served.messages.Publish(publish(b"new"))
        assert values_of(await reading) == [b"new"]
        call.cancel()


async def test_a_client_that_cancels_frees_its_place(serve: Serve) -> None:
    async with serve() as served:
        calls = [served.messages.Fetch(fetch(follow=True)) for _ in range(5)]
        reads = [asyncio.ensure_future(call.read()) for call in calls]
        await until(lambda: served.waiting_readers() == 5)
        for call in calls:
            call.cancel()
        await until(lambda: served.waiting_readers() == 0)
        await until(lambda: not served.server._calls._to_cut)
        await asyncio.gather(*reads, return_exceptions=True)


async def test_a_client_that_does_not_read_holds_nothing_up_and_is_freed_when_it_goes(serve: Serve) -> None:
    async with serve() as served:
        for _ in range(8):
            await served.messages.Publish(publish(b"x" * (900 << 10)))
        call = served.messages.Fetch(fetch())
        await call.read()
        await served.messages.Publish(publish(b"v"))
        call.cancel()
        await until(lambda: not served.server._calls._to_cut)


async def test_deleting_the_topic_ends_those_who_follow_it(serve: Serve) -> None:
    async with serve() as served:
        following = asyncio.create_task(error_of(served.messages.Fetch(fetch(follow=True))))
        await until(lambda: served.waiting_readers() == 1)
        await served.broker.delete_topic("t")
        error = await following
        assert (error.code, error.retriable) == ("topic_not_found", "false")


async def test_a_shutdown_tells_those_who_follow_to_come_back(serve: Serve) -> None:
    async with serve() as served:
        following = asyncio.create_task(error_of(served.messages.Fetch(fetch(follow=True))))
        await until(lambda: served.waiting_readers() == 1)
        served.broker.stop_accepting()
        error = await following
        assert (error.status, error.code) == (grpc.StatusCode.UNAVAILABLE, "shutting_down")
        assert (error.retriable, error.retry_after_ms) == ("true", "1000")


async def test_a_reader_that_has_gone_in_the_middle_of_a_write_is_no_failure(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def written(*_: object) -> None:
        raise grpc.aio.InternalError('Failed "execute_batch"')

    async with serve() as served:
        monkeypatch.setattr(type(served.server._messages), "_fetch", written)
        assert [response async for response in served.messages.Fetch(fetch())] == []
        assert served.broker.metrics.grpc.find("Fetch") is not None
    assert not caplog.records


async def test_damage_that_a_reader_has_met_is_known_once_it_asks(serve: Serve) -> None:
    async with serve() as served:
        await fill(served, 5)
        partition = served.broker.topic("t").partition(0)
        path = partition.log.active.log_path
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        async for _ in served.messages.Fetch(fetch()):
            pass
        assert not partition.damaged
        async for _ in served.messages.Fetch(fetch(verify=True)):
            pass
        assert partition.damaged == {4}
        assert served.broker.damage()
