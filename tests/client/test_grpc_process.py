"""A broker process as operators see it: signals, ports, limits."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest
from behaviour.process import BrokerProcess as LoggedProcess
from behaviour.process import DidNotStart
from doubles.frames import publish
from doubles.patience import in_time
from grpc_health.v1 import health_pb2, health_pb2_grpc

from goqueue.testing import running_broker
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

IN_TIME_S = 20.0
OPTIONS = [("grpc.enable_http_proxy", 0)]


def test_sigterm_with_open_streams_of_every_kind_ends_in_time_with_status_0(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, grpc.insecure_channel(broker.address, OPTIONS) as channel:
        messages = pb_grpc.MessagesStub(channel)
        pb_grpc.TopicsStub(channel).CreateTopic(pb.CreateTopicRequest(name="t", settings={"partitions": "1"}))
        asked = _Requests()
        publishing = messages.PublishStream(asked)
        asked.send(publish(b"v"))
        assert next(publishing).stored.first_offset == 0
        following = messages.Fetch(pb.FetchRequest(topic="t", follow=True))
        assert next(following).next_offset == 1
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
        with broker.client() as client:
            records = client.read("t", follow=True)
            next(records)
            with in_time(IN_TIME_S):
                assert broker.stop() == 0
        assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
        for stream in (publishing, following):
            with pytest.raises(grpc.RpcError) as failure:
                next(stream)
            assert dict(failure.value.trailing_metadata())["goqueue-code"] == "shutting_down"
        asked.close()
    assert not [line for line in broker.log if "Traceback" in line or '"level": "error"' in line]


class _Requests:
    """Requests of a stream, one by one, as the test goes on."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[pb.PublishRequest | None] = SimpleQueue()

    def send(self, request: pb.PublishRequest) -> None:
        self._waiting.put(request)

    def close(self) -> None:
        self._waiting.put(None)

    def __iter__(self) -> _Requests:
        return self

    def __next__(self) -> pb.PublishRequest:
        request = self._waiting.get()
        if request is None:
            raise StopIteration
        return request


def test_a_grpc_port_that_is_in_use_is_a_clear_error_with_its_own_status(tmp_path: Path) -> None:
    with running_broker(tmp_path / "one") as broker:
        with pytest.raises(DidNotStart, match=f"127.0.0.1:{broker.grpc_port} for gRPC") as failure:
            LoggedProcess(tmp_path / "two", "--grpc-port", str(broker.grpc_port))
        assert failure.value.status == 2
        assert "Traceback" not in failure.value.log
        # The folder was let go of in order.
        with running_broker(tmp_path / "two"):
            pass


def test_without_grpc_the_broker_serves_http_and_stops_with_status_0(tmp_path: Path) -> None:
    broker = LoggedProcess(tmp_path, "--set", "grpc.enabled=false")
    with broker.client() as http:
        assert http.get("/topics").status_code == 200
    assert broker.wait_for_event("listening")["grpc_port"] == 0
    assert broker.stop() == 0
