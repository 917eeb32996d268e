from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from behaviour.process import BrokerProcess, DidNotStart, broker_process
from behaviour.raw import RawConnection, request
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def test_a_grpc_port_that_is_in_use_is_told_before_anything_is_recovered(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as broker:
        port = broker.wait_for_event("listening")["grpc_port"]
        with pytest.raises(DidNotStart, match=f"127.0.0.1:{port} for gRPC") as failure:
            # The folder is in use as well, which is noticed when recovery begins.
            BrokerProcess(tmp_path / "data", "--grpc-port", str(port))
        assert failure.value.status == 2
        assert "Traceback" not in failure.value.log


def test_the_health_over_grpc_is_bad_while_a_stop_waits_for_requests_over_http(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker, RawConnection(broker.port) as connection:
        address = f"127.0.0.1:{broker.wait_for_event('listening')['grpc_port']}"
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            health = iter(health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60))
            assert next(health).status == SERVING
            slow = request("POST", "/topics", b'{"name": "t"}', "Expect: 100-continue")
            connection.send(slow[:-3])
            assert connection.answer().status == 100
            broker.terminate()
            assert next(health).status == NOT_SERVING
            connection.send(slow[-3:])
            assert connection.answer().status in {201, 503}
        assert broker.wait() == 0
