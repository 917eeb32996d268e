from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc.aio
import pytest
from api_grpc_calls import Serve, error_of
from behaviour.faulty_files import FaultyFiles, of_topic
from doubles.async_tests import until
from doubles.frames import publish, wire

from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_headers
from goqueue.wire.proto import goqueue_pb2 as pb


async def answers_of(stream: Any, count: int) -> list[pb.PublishResponse]:
    return [await stream.read() for _ in range(count)]


async def test_answers_come_in_the_order_of_the_requests_with_their_correlation_ids(serve: Serve) -> None:
    async with serve(topic={"partitions": 2}) as served:
        stream = served.messages.PublishStream()
        for number in range(50):
            await stream.write(publish(b"%d" % number, partition=number % 2, number=1_000 + number))
        answers = await answers_of(stream, 50)
        assert [each.correlation_id for each in answers] == list(range(1_000, 1_050))
        assert [each.stored.first_offset for each in answers] == [number // 2 for number in range(50)]


async def test_the_stream_ends_when_the_client_is_done_and_everything_is_answered(serve: Serve) -> None:
    async with serve() as served:
        stream = served.messages.PublishStream()
        for number in range(10):
            await stream.write(publish(b"v", number=number))
        await stream.done_writing()
        assert [each.correlation_id async for each in stream] == list(range(10))
        assert await stream.code() is grpc.StatusCode.OK


async def test_a_stream_without_requests_ends_cleanly(serve: Serve) -> None:
    async with serve() as served:
        stream = served.messages.PublishStream()
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_an_error_of_one_request_does_not_end_the_stream(serve: Serve) -> None:
    async with serve(topic={"max_message_bytes": 1_024}) as served:
        stream = served.messages.PublishStream()
        requests = [
            publish(b"first", number=1),
            publish(b"v", topic="nope", number=2),
            publish(b"v", partition=9, number=3),
            publish(b"x" * 2_000, number=4),
            pb.PublishRequest(topic="t", batch=b"no batch", correlation_id=5),
            publish(b"last", number=6),
        ]
        for request in requests:
            await stream.write(request)
        answers = await answers_of(stream, 6)
        assert [each.correlation_id for each in answers] == [1, 2, 3, 4, 5, 6]
        assert [each.error.code or "stored" for each in answers] == [
            "stored", "topic_not_found", "partition_not_found", "message_too_large", "invalid_frame", "stored",
        ]  # fmt: skip
        assert [answers[0].stored.first_offset, answers[5].stored.first_offset] == [0, 1]


async def test_refusals_wait_for_their_turn_behind_what_is_not_durable_yet(serve: Serve) -> None:
    disk = FaultyFiles()
    async with serve(files=disk) as served:
        stream = served.messages.PublishStream()
        with disk.hanging(of_topic("t")) as begun:
            await stream.write(publish(b"slow", number=1))
            await asyncio.to_thread(_wait, begun)
            await stream.write(publish(b"v", topic="nope", number=2))
        assert [each.correlation_id for each in await answers_of(stream, 2)] == [1, 2]


async def test_the_broker_stops_reading_while_too_many_batches_wait_for_their_answer(serve: Serve) -> None:
    disk = FaultyFiles()
    async with serve(files=disk, max_in_flight_batches=3) as served:
        log = served.broker.topic("t").partition(0).log
        stream = served.messages.PublishStream()
        with disk.hanging(of_topic("t")) as begun:
            for number in range(10):
                await stream.write(publish(b"v", number=number))
            await asyncio.to_thread(_wait, begun)
            await until(lambda: log.end_offset == 3)
            # The others have arrived long ago: a call that came later on the same connection was answered.
            await served.topics.ListTopics(pb.ListTopicsRequest())
            assert log.end_offset == 3
        assert [each.stored.first_offset for each in await answers_of(stream, 10)] == list(range(10))


async def test_a_publish_that_races_with_the_topic_being_deleted_is_stored_or_not_found(serve: Serve) -> None:
    disk = FaultyFiles()
    async with serve(files=disk) as served:
        stream = served.messages.PublishStream()
        with disk.hanging(of_topic("t")) as begun:
            await stream.write(publish(b"v", number=1))
            await asyncio.to_thread(_wait, begun)
            deleting = asyncio.create_task(served.broker.delete_topic("t"))
            await stream.write(publish(b"v", number=2))
            await until(lambda: served.broker.topic("t").partition(0).log.end_offset == 2)
        await deleting
        await stream.write(publish(b"v", number=3))
        *raced, late = await answers_of(stream, 3)
        assert {answer.error.code for answer in raced} <= {"", "topic_not_found"}
        assert late.error.code == "topic_not_found"


async def test_a_client_that_goes_away_frees_its_stream(serve: Serve) -> None:
    async with serve() as served:
        stream = served.messages.PublishStream()
        await stream.write(publish(b"v"))
        await stream.read()
        service = served.server._messages
        assert len(service._taking) == 1
        stream.cancel()
        await until(lambda: not service._taking)
        await until(lambda: not served.server._calls._to_answer)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", "invalid_frame"),
        (wire(b"v")[:-1], "invalid_frame"),
        (wire(b"v")[:-1] + b"w", "invalid_frame"),
        (wire(b"v", flags=int(Flag.CONTROL)), "invalid_frame"),
        (wire(b"v", flags=int(Flag.TRANSACTIONAL)), "invalid_frame"),
        (wire(b"v", flags=int(Flag.DELAYED)), "invalid_frame"),
        (wire(b"v", headers=encode_headers((due_header(1),))), "invalid_frame"),
        (
            wire(b"v", flags=int(Flag.DELAYED), headers=encode_headers((due_header(1), ("h", b"x")))),
            "invalid_frame",
        ),
        (
            wire(b"v", flags=int(Flag.DELAYED), headers=encode_headers((due_header((1 << 63) - 1),))),
            "invalid_message",
        ),
        (wire(b"good", b"bad" * 1_000), "message_too_large"),
        (wire(b"v", headers=encode_headers((("goqueue-producer", b"x"),))), "invalid_frame"),
        (wire(b"v", headers=encode_headers((("h", b"x"),))[:-1]), "invalid_frame"),
        (wire(b"v", timestamp_ns=(1 << 63) - 1), "timestamp_out_of_range"),
        (wire(b"v", timestamp_ns=-1), "timestamp_out_of_range"),
        (wire(b"v", flags=int(Flag.TOMBSTONE)), "invalid_frame"),
    ],
)
async def test_wrong_frames_are_refused_whole_and_nothing_is_stored(serve: Serve, batch: bytes, code: str) -> None:
    async with serve(topic={"max_message_bytes": 1_024}) as served:
        request = pb.PublishRequest(topic="t", batch=batch)
        assert (await error_of(served.messages.Publish(request))).code == code
        stream = served.messages.PublishStream()
        await stream.write(request)
        (answer,) = await answers_of(stream, 1)
        assert answer.error.code == code
        assert served.broker.topic("t").partition(0).log.end_offset == 0


async def test_a_message_of_one_call_that_is_too_large_ends_that_call_only(serve: Serve) -> None:
    async with serve(max_message_bytes=2 << 20) as served:
        large = publish(b"x" * (3 << 20))
        error = await error_of(served.messages.Publish(large))
        assert error.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        stream = served.messages.PublishStream()
        await stream.write(large)
        assert (await error_of(stream)).status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await served.messages.Publish(publish(b"v"))).stored.first_offset == 0
        await until(lambda: not served.server._messages._taking)


def _wait(begun: threading.Event) -> None:
    assert begun.wait(30)
