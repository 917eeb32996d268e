"""Bytes that are no protobuf, or of another kind: refused with a code, by single calls and by streams alike."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from api_grpc_calls import Serve, Served, error_of
from doubles.frames import publish

from goqueue.wire.proto import goqueue_pb2 as pb

TRUNCATED = b"\x0a\x05ab"
NO_TEXT = b"\x12\x01\xff"
NO_FIELD = b"\x00\x00"


def raw(served: Served, method: str, *, is_stream: bool) -> Any:
    """A call that sends bytes as they are."""
    make = served.channel.stream_stream if is_stream else served.channel.unary_unary
    return make(f"/goqueue.v1.{method}", request_serializer=bytes, response_deserializer=bytes)


@pytest.mark.parametrize("method", ["Messages/Publish", "Topics/CreateTopic", "Groups/DescribeGroup"])
async def test_a_call(serve: Serve, method: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as served:
        for data in (TRUNCATED, NO_FIELD):
            error = await error_of(raw(served, method, is_stream=False)(data))
            assert (error.status, error.code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_request")
            assert "no message of the kind" in error.details
    assert not caplog.records


@pytest.mark.parametrize("data", [TRUNCATED, NO_TEXT, NO_FIELD])
async def test_a_publish_stream_answers_what_came_before_and_stores_nothing_behind(serve: Serve, data: bytes) -> None:
    async with serve() as served:
        stream = raw(served, "Messages/PublishStream", is_stream=True)()
        for each in (publish(b"before", number=1).SerializeToString(), data, publish(b"behind").SerializeToString()):
            await stream.write(each)
        first = pb.PublishResponse.FromString(await stream.read())
        assert (first.correlation_id, first.stored.count) == (1, 1)
        error = await error_of(stream.read())
        assert (error.status, error.code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_request")
        assert served.broker.topic("t").partition(0).log.end_offset == 1


async def test_a_subscription(serve: Serve) -> None:
    async with serve() as served:
        first = raw(served, "Groups/Subscribe", is_stream=True)()
        await first.write(NO_FIELD)
        assert (await error_of(first.read())).code == "invalid_request"
        join = pb.SubscribeRequest(join=pb.JoinRequest(group="g", topics=["t"], client_id="c"))
        second = raw(served, "Groups/Subscribe", is_stream=True)()
        await second.write(join.SerializeToString())
        assert pb.SubscribeResponse.FromString(await second.read()).WhichOneof("response") == "assignment"
        await second.write(NO_FIELD)
        assert (await error_of(second.read())).code == "invalid_request"
