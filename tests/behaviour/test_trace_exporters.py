"""Traces of a broker process arrive at a collector and at an agent, and the broker does not wait for either."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.transport.TTransport import TMemoryBuffer

from behaviour.waiting import until
from goqueue.testing import running_broker


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def collector() -> Iterator[tuple[Collector, int]]:
    server = grpc.server(ThreadPoolExecutor(2))
    taking = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(taking, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield taking, port
    server.stop(0).wait()


def test_a_collector_and_an_agent_see_the_message_in_its_producers_trace() -> None:
    with collector() as (taking, port), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("127.0.0.1", 0))
        agent.settimeout(60)
        settings = {
            "trace.exporters": "file,otlp,jaeger",
            "trace.otlp_endpoint": f"http://127.0.0.1:{port}",
            "trace.jaeger_port": agent.getsockname()[1],
        }
        provider = TracerProvider()
        with running_broker(settings=settings) as broker, broker.client() as client:
            client.create_topic("orders", partitions=1)
            tracer = provider.get_tracer("shop")
            with tracer.start_as_current_span("checkout") as checkout, client.producer() as producer:
                producer.send("orders", "2 tickets").result()
            with client.consumer("billing", ["orders"], kind="shared") as consumer:
                (message,) = consumer.poll(1, timeout=60)
                message.ack().result()
            until(lambda: taking.named("deliver orders") and taking.named("publish orders"), 60)
            datagram = agent.recv(65_536)
        provider.shutdown()
    context = checkout.get_span_context()
    (published,), (delivered,) = taking.named("publish orders"), taking.named("deliver orders")
    assert published.trace_id.hex() == delivered.trace_id.hex() == trace.format_trace_id(context.trace_id)
    assert published.parent_span_id.hex() == trace.format_span_id(context.span_id)
    assert delivered.parent_span_id == published.span_id
    assert delivered.start_time_unix_nano <= delivered.end_time_unix_nano
    attributes = {each.key: each.value.string_value for each in delivered.attributes}
    assert attributes["messaging.consumer.group.name"] == "billing"
    assert attributes["messaging.goqueue.outcome"] == "ack"
    assert TCompactProtocol(TMemoryBuffer(datagram)).readMessageBegin()[0] == "emitBatch"
    assert b"publish orders" in datagram


def test_a_collector_that_is_not_there_costs_spans_and_nothing_else() -> None:
    settings = {"trace.exporters": "otlp", "trace.otlp_endpoint": "http://127.0.0.1:9"}
    with running_broker(settings=settings) as broker, broker.client() as client:
        client.create_topic("orders", partitions=1)
        with client.producer() as producer:
            stored = producer.send_many("orders", [f"order {number}" for number in range(100)])
        assert [each.offset for each in stored] == list(range(100))
        assert len(list(client.read("orders", 0))) == 100
        # It stops in time although nobody takes what it has to tell.
        assert broker.stop() == 0
