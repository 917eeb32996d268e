"""The health service agrees with /readyz; a call that fails is logged with its trace."""

from __future__ import annotations

import pytest
from api_grpc_calls import Serve
from behaviour.faulty_files import FaultyFiles, of_topic
from grpc_health.v1 import health_pb2, health_pb2_grpc

from goqueue.api.grpc import server as server_module
from goqueue.model.errors import StorageFailed
from goqueue.model.publishing import NewMessage
from goqueue.wire.proto import goqueue_pb2 as pb

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_EXAMINE_EVERY_S", 0.01)


@pytest.mark.parametrize("service", ["", "goqueue.v1.Messages"])
async def test_those_who_watch_hear_of_a_full_disk_and_of_its_end(serve: Serve, service: str) -> None:
    disk = FaultyFiles()
    async with serve(files=disk) as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest(service=service))
        assert (await watch.read()).status == SERVING
        disk.free = 0
        assert (await watch.read()).status == NOT_SERVING
        disk.free = 1 << 40
        assert (await watch.read()).status == SERVING
        watch.cancel()


async def test_a_failed_partition_is_not_serving(serve: Serve) -> None:
    disk = FaultyFiles()
    async with serve(files=disk) as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        disk.fails = of_topic("t")
        assert isinstance((await served.broker.publish("t", [NewMessage(b"v")]))[0], StorageFailed)
        assert (await watch.read()).status == NOT_SERVING
        disk.fails = lambda path: False
        watch.cancel()


async def test_a_look_that_fails_is_followed_by_another(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as served:
        looks = iter([ZeroDivisionError("why")])

        def problems() -> dict[str, str]:
            for error in looks:
                raise error
            return {"disk": "full"}

        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        monkeypatch.setattr(served.broker.health, "problems", problems)
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
    assert "the health could not be told" in caplog.text


@pytest.mark.parametrize(
    ("parent", "trace_id"), [(f"00-{TRACE_ID}-b7ad6b7169203331-01", TRACE_ID), ("nonsense", None), (None, None)]
)
async def test_a_call_that_fails_is_logged_with_the_trace_that_it_belongs_to(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    parent: str | None,
    trace_id: str | None,
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("why")

    metadata = [] if parent is None else [("traceparent", parent)]
    async with serve() as served:
        monkeypatch.setattr(served.broker, "topic_names", fail)
        call = served.topics.ListTopics(pb.ListTopicsRequest(), metadata=metadata)
        assert (await call.code()).name == "INTERNAL"
    [line] = [each for each in caplog.records if getattr(each.msg, "event", "") == "call failed"]
    assert line.fields.get("trace_id") == trace_id  # type: ignore[attr-defined]
