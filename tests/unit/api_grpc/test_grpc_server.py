from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import grpc
import grpc.aio
import pytest
from api_grpc_calls import Serve, Served, error_of
from behaviour.faulty_files import FaultyFiles, of_topic
from doubles.async_tests import until
from doubles.frames import publish
from doubles.patience import in_time
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from goqueue.api.grpc.server import GrpcServer
from goqueue.model.config import GrpcConfig
from goqueue.model.errors import InvalidConfiguration
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("service", ["", "goqueue.v1.Messages", "goqueue.v1.Topics", "goqueue.v1.Metadata"])
async def test_every_service_is_healthy_while_the_broker_serves(serve: Serve, service: str) -> None:
    async with serve() as served:
        health = health_pb2_grpc.HealthStub(served.channel)
        assert (await health.Check(health_pb2.HealthCheckRequest(service=service))).status == SERVING


async def test_those_who_watch_the_health_hear_of_the_shutdown(serve: Serve) -> None:
    async with serve() as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        stopping = asyncio.create_task(served.server.stop(10))
        assert (await watch.read()).status == NOT_SERVING
        await stopping


async def test_those_who_watch_the_health_do_not_hold_up_the_shutdown(serve: Serve) -> None:
    async with serve() as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        with in_time(40):
            await served.server.stop(60)


async def listed_services(served: Served) -> list[str]:
    stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    return [each.name for each in (await call.read()).list_services_response.service]


async def test_the_api_cannot_be_explored_unless_it_was_asked_for(serve: Serve) -> None:
    async with serve() as served:
        stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        assert (await error_of(call)).status is grpc.StatusCode.UNIMPLEMENTED


async def test_the_api_can_be_explored_when_it_was_asked_for(serve: Serve) -> None:
    async with serve(reflection=True) as served:
        assert set(await listed_services(served)) >= {
            "goqueue.v1.Messages",
            "goqueue.v1.Topics",
            "goqueue.v1.Metadata",
            "grpc.health.v1.Health",
        }


async def test_a_port_that_is_in_use_is_a_clear_error(serve: Serve) -> None:
    async with serve() as served:
        second = GrpcServer(served.broker.operations, GrpcConfig(port=served.server.port))
        with pytest.raises(InvalidConfiguration, match=f"127.0.0.1:{served.server.port}.*--grpc-port"):
            await second.start()
        await second.stop(1)


async def test_a_port_is_taken_before_the_broker_is_ready(serve: Serve) -> None:
    async with serve() as served:
        second = GrpcServer(served.broker.operations, GrpcConfig(port=0))
        second.bind()
        third = GrpcServer(served.broker.operations, GrpcConfig(port=second.port))
        with pytest.raises(InvalidConfiguration, match=f"127.0.0.1:{second.port}.*--grpc-port"):
            third.bind()


async def test_a_call_that_comes_before_the_broker_is_ready_waits_for_it(serve: Serve) -> None:
    async with serve() as served:
        second = GrpcServer(served.broker.operations, GrpcConfig(port=0))
        second.bind()
        early = Served(served.broker, second)
        listing = asyncio.ensure_future(early.topics.ListTopics(pb.ListTopicsRequest(), wait_for_ready=True))
        await second.start()
        assert list((await listing).names) == ["t"]
        await early.channel.close()
        await second.stop(1)


async def test_the_health_is_bad_as_soon_as_the_stop_begins_while_calls_are_still_answered(serve: Serve) -> None:
    async with serve() as served:
        health = health_pb2_grpc.HealthStub(served.channel)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        served.server.leave()
        served.server.leave()
        assert (await watch.read()).status == NOT_SERVING
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING
        assert (await served.messages.Publish(publish(b"v"))).stored.first_offset == 0


async def test_a_server_that_was_never_started_stops(serve: Serve) -> None:
    async with serve() as served:
        await GrpcServer(served.broker.operations, GrpcConfig()).stop(1)


async def test_ipv6_works(serve: Serve) -> None:
    async with serve(host="::1") as served:
        channel = grpc.aio.insecure_channel(f"[::1]:{served.server.port}", options=[("grpc.enable_http_proxy", 0)])
        call = channel.unary_unary(
            "/goqueue.v1.Metadata/DescribeCluster",
            pb.DescribeClusterRequest.SerializeToString,
            pb.DescribeClusterResponse.FromString,
        )
        assert (await call(pb.DescribeClusterRequest())).nodes[0].address == f"[::1]:{served.server.port}"
        await channel.close()


async def test_an_idle_publish_stream_does_not_hold_up_the_shutdown_and_is_told_to_come_back(serve: Serve) -> None:
    async with serve() as served:
        stream = served.messages.PublishStream()
        await stream.write(publish(b"v"))
        await stream.read()
        served.broker.stop_accepting()
        with in_time(40):
            await served.server.stop(60)
        error = await error_of(stream.read())
        assert (error.status, error.code) == (grpc.StatusCode.UNAVAILABLE, "shutting_down")


async def test_what_was_accepted_is_answered_before_the_server_stops(serve: Serve) -> None:
    disk = FaultyFiles()
    async with serve(files=disk) as served:
        stream = served.messages.PublishStream()
        log = served.broker.topic("t").partition(0).log
        with disk.hanging(of_topic("t")):
            unary = asyncio.ensure_future(served.messages.Publish(publish(b"a")))
            await until(lambda: log.end_offset == 1)
            await stream.write(publish(b"b", number=7))
            await until(lambda: log.end_offset == 2)
            served.broker.stop_accepting()
            stopping = asyncio.create_task(served.server.stop(30))
            await until(lambda: served.server._calls.stopping)
            assert not stopping.done()
        assert (await unary).stored.first_offset == 0
        answer = await stream.read()
        assert (answer.correlation_id, answer.stored.first_offset) == (7, 1)
        await stopping


async def test_a_reader_that_does_not_read_does_not_hold_up_the_shutdown(serve: Serve) -> None:
    async with serve() as served:
        for _ in range(8):
            await served.messages.Publish(publish(b"x" * (900 << 10)))
        call = served.messages.Fetch(pb.FetchRequest(topic="t"))
        await call.read()
        with in_time(40):
            served.broker.stop_accepting()
            await served.server.stop(60)
        call.cancel()


async def test_a_call_that_begins_during_the_shutdown_is_told_to_come_back(serve: Serve) -> None:
    async with serve() as served:
        served.broker.stop_accepting()
        assert (await error_of(served.messages.Publish(publish(b"v")))).code == "shutting_down"
        stream = served.messages.PublishStream()
        await stream.write(publish(b"v", number=3))
        answer = await stream.read()
        assert (answer.correlation_id, answer.error.code, answer.error.retriable) == (3, "shutting_down", True)
        assert answer.error.retry_after_ms == 1_000


async def test_one_connection_more_than_allowed_is_closed_and_those_that_are_there_are_served(serve: Serve) -> None:
    async with serve(max_connections=2) as served, AsyncExitStack() as stack:
        address = f"127.0.0.1:{served.server.port}"
        ask, own = pb.DescribeTopicRequest(name="t"), [("grpc.use_local_subchannel_pool", 1)]
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(address, own)) for _ in range(3)]
        first, second, third = (pb_grpc.TopicsStub(channel) for channel in channels)
        await first.DescribeTopic(ask)
        await second.DescribeTopic(ask)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await third.DescribeTopic(ask)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        await first.DescribeTopic(ask)
        await channels[1].close()
        assert (await third.DescribeTopic(ask, wait_for_ready=True, timeout=60)).name == "t"


async def test_what_a_page_in_a_browser_can_send_is_no_call(serve: Serve) -> None:
    """To a port without TLS a page speaks HTTP/1.1, under whatever name; gRPC is HTTP/2."""
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        body = b"\0\0\0\0\3" + pb.DeleteTopicRequest(name="t").SerializeToString()
        head = (
            "POST /goqueue.v1.Topics/DeleteTopic HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/grpc\r\n"
        )
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        with suppress(ConnectionError):
            assert b" 200 " not in await reader.read()
        writer.close()
        assert [topic.name for topic in served.broker.running_topics()] == ["t"]
