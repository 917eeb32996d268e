"""Calls are counted by method and by how they ended."""

from __future__ import annotations

import grpc
import pytest
from api_grpc_calls import Serve
from doubles.async_tests import until

from goqueue.observe.exposition import Figures
from goqueue.observe.requests import Requests
from goqueue.wire.proto import goqueue_pb2 as pb


def counted(requests: Requests, name: str = "goqueue_requests_total") -> dict[str, str]:
    """Values by everything before them."""
    figures = Figures()
    requests.add_to(figures)
    return {series: value for series, _, value in (line.strip().rpartition(" ") for line in figures.lines(name))}


def labels(endpoint: str, code: str) -> str:
    return f'goqueue_requests_total{{api="grpc",endpoint="{endpoint}",code="{code}"}}'


async def test_calls_are_counted_by_method_and_code(serve: Serve) -> None:
    async with serve() as served:
        await served.topics.CreateTopic(pb.CreateTopicRequest(name="u"))
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError):
                await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="nowhere"))
        requests = served.broker.metrics.grpc
        # A call is counted after its answer has left, so its caller may look too early.
        await until(lambda: counted(requests).get(labels("DescribeTopic", "NOT_FOUND")) == "2")
        assert counted(requests) == {labels("CreateTopic", "OK"): "1", labels("DescribeTopic", "NOT_FOUND"): "2"}
        times = counted(requests, "goqueue_request_seconds")
        assert times['goqueue_request_seconds_count{api="grpc",endpoint="DescribeTopic"}'] == "2"


async def test_a_stream_is_counted_when_it_ends_and_its_connection_while_it_is_open(serve: Serve) -> None:
    async with serve() as served:
        metrics = served.broker.metrics
        assert metrics.connections["grpc"]() == 0
        streams = [served.messages.Fetch(pb.FetchRequest(topic="t", follow=True)) for _ in range(2)]
        await until(lambda: served.waiting_readers() == 2)
        # Two streams of one connection.
        assert metrics.connections["grpc"]() == 1
        assert counted(metrics.grpc) == {}
        for stream in streams:
            stream.cancel()
        await until(lambda: counted(metrics.grpc).get(labels("Fetch", "CANCELLED")) == "2")
        assert metrics.connections["grpc"]() == 0
        async for _ in served.messages.Fetch(pb.FetchRequest(topic="t")):
            pass
        await until(lambda: counted(metrics.grpc).get(labels("Fetch", "OK")) == "1")
        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in served.messages.Fetch(pb.FetchRequest(topic="nowhere")):
                pass
        await until(lambda: counted(metrics.grpc).get(labels("Fetch", "NOT_FOUND")) == "1")
