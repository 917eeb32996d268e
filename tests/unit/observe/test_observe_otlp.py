"""What an OpenTelemetry collector gets from us, over gRPC and over HTTP, and what happens without one."""

from __future__ import annotations

import atexit
import gzip
import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import Any

import grpc
import pytest
from doubles.patience import in_time
from doubles.trace_spans import PARENT_ID, SPAN_ID, TRACE_ID, a_span, some_spans
from doubles.unheard_port import unheard_port
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status as WireStatus

from goqueue.model.config import TraceConfig
from goqueue.model.errors import InvalidConfiguration
from goqueue.observe.export_thread import ExportFigures, ExportThread
from goqueue.observe.otlp import OtlpExporter
from goqueue.observe.spans import SpansDropped

LONG_S = 30.0


class Collector(TraceServiceServicer):
    """Takes requests over either protocol. ``gate`` holds answers back; ``refusal`` is what it answers instead."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.refusal: Any = None

    def take(self, request: ExportTraceServiceRequest, headers: dict[str, str]) -> None:
        self.requests.append(request)
        self.headers.append(headers)
        self.entered.set()
        self.gate.wait(LONG_S)

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:  # noqa: N802
        self.take(request, dict(context.invocation_metadata()))
        if self.refusal is not None:
            context.abort(self.refusal, "go away")
        return ExportTraceServiceResponse()


@contextmanager
def over_grpc() -> Iterator[Collector]:
    collector = Collector()
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        add_TraceServiceServicer_to_server(collector, server)
        collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield collector
        finally:
            collector.gate.set()
            server.stop(None).wait(LONG_S)


@contextmanager
def over_http() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["content-type"] == "application/x-protobuf"
            collector.paths.append(self.path)
            collector.take(
                ExportTraceServiceRequest.FromString(body), {name.lower(): text for name, text in self.headers.items()}
            )
            self.send_response(collector.refusal or 200)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield collector
        finally:
            collector.gate.set()
            server.shutdown()
            serving.join(LONG_S)


PROTOCOLS = {"grpc": over_grpc, "http": over_http}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def collector(protocol: str) -> Iterator[Collector]:
    with PROTOCOLS[protocol]() as collector:
        yield collector


@contextmanager
def exporting_to(endpoint: str, protocol: str, *, timeout_s: float = 10.0, **settings: Any) -> Iterator[OtlpExporter]:
    config = TraceConfig(otlp_endpoint=endpoint, otlp_protocol=protocol, **settings)
    exporter = OtlpExporter(config, "node-1", timeout_s=timeout_s)
    try:
        yield exporter
    finally:
        exporter.close()


def values(attributes: Any) -> dict[str, object]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}


def test_every_field_of_a_span_arrives(collector: Collector, protocol: str) -> None:
    attributes = {"messaging.system": "goqueue", "messaging.goqueue.offset": 42, "flag": True}
    with exporting_to(collector.endpoint, protocol, otlp_headers="Authorization=Bearer%20me,x-team=a") as exporter:
        exporter.export(
            [
                a_span(attributes=attributes),
                a_span(name="deliver orders", kind="consumer", parent_id="", error="expired"),
                a_span(kind="internal"),
            ]
        )
    (request,) = collector.requests
    (resource_spans,) = request.resource_spans
    assert values(resource_spans.resource.attributes) == {
        "service.name": "goqueue",
        "service.instance.id": "node-1",
        "service.version": version("goqueue"),
    }
    (scope_spans,) = resource_spans.scope_spans
    assert (scope_spans.scope.name, scope_spans.scope.version) == ("goqueue", version("goqueue"))
    first, second, third = scope_spans.spans
    assert first.trace_id.hex() == TRACE_ID
    assert first.span_id.hex() == SPAN_ID
    assert first.parent_span_id.hex() == PARENT_ID
    assert first.name == "publish orders"
    assert first.kind == WireSpan.SPAN_KIND_PRODUCER
    assert first.start_time_unix_nano == 1_700_000_000_123_456_789
    assert first.end_time_unix_nano == 1_700_000_000_223_456_789
    assert values(first.attributes) == attributes
    assert first.status.code == WireStatus.STATUS_CODE_UNSET
    assert second.name == "deliver orders"
    assert second.parent_span_id == b""
    assert second.kind == WireSpan.SPAN_KIND_CONSUMER
    assert (second.status.code, second.status.message) == (WireStatus.STATUS_CODE_ERROR, "expired")
    assert third.kind == WireSpan.SPAN_KIND_INTERNAL
    assert collector.headers[0]["authorization"] == "Bearer me"
    assert collector.headers[0]["x-team"] == "a"
    assert collector.paths in ([], ["/v1/traces"])


def test_a_path_of_the_endpoint_is_kept() -> None:
    with over_http() as collector, exporting_to(collector.endpoint + "/otlp", "http") as exporter:
        exporter.export([a_span()])
        assert collector.paths == ["/otlp"]


def test_what_protobuf_does_not_take_is_made_so_that_it_does(collector: Collector, protocol: str) -> None:
    with exporting_to(collector.endpoint, protocol) as exporter:
        odd = a_span(
            name="\ud800", error="\ud800", attributes={"\udfff": "\ud800", "n": 1 << 63}, start_ns=-5, end_ns=-9
        )
        exporter.export([odd, a_span(start_ns=9, end_ns=5)])
    first, second = collector.requests[0].resource_spans[0].scope_spans[0].spans
    assert first.name == first.status.message == "\\ud800"
    assert values(first.attributes) == {"\\udfff": "\\ud800", "n": hex(1 << 63)}
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (0, 0)
    assert (second.start_time_unix_nano, second.end_time_unix_nano) == (9, 9)


@pytest.mark.parametrize("bad", [{"trace_id": "not hex"}, {"trace_id": "0" * 32}, {"span_id": "f" * 17}])
def test_a_span_with_a_bad_id_takes_no_other_with_it(bad: dict[str, str]) -> None:
    with over_grpc() as collector, exporting_to(collector.endpoint, "grpc") as exporter:
        with pytest.raises(SpansDropped, match="cannot be encoded") as caught:
            exporter.export([a_span(name="a"), a_span(**bad), a_span(name="b")])
        assert caught.value.count == 1
        assert [span.name for span in collector.requests[0].resource_spans[0].scope_spans[0].spans] == ["a", "b"]


@pytest.mark.parametrize(
    ("protocol", "refusal", "reason"),
    [("grpc", grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"), ("http", 403, "403")],
    indirect=["protocol"],
)
def test_a_refusal_is_raised_with_its_reason_and_not_logged(
    collector: Collector, protocol: str, refusal: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    collector.refusal = refusal
    with exporting_to(collector.endpoint, protocol) as exporter:
        for _ in range(3):
            with pytest.raises(ConnectionError, match=reason):
                exporter.export([a_span()])
        collector.refusal = None
        exporter.export([a_span()])
    assert caplog.records == [], "whoever called decides what is logged"


def test_a_redirect_is_no_success() -> None:
    with over_http() as collector, exporting_to(collector.endpoint, "http") as exporter:
        collector.refusal = 307
        with pytest.raises(ConnectionError, match="redirected with 307"):
            exporter.export([a_span()])
        assert collector.paths == ["/v1/traces"]


def test_what_the_exporters_log_for_others_still_passes(caplog: pytest.LogCaptureFixture) -> None:
    with exporting_to("http://127.0.0.1:1", "http"):
        logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").warning("of another")
    assert [record.message for record in caplog.records] == ["of another"]


def test_a_collector_that_is_not_there_is_an_error_in_time(protocol: str) -> None:
    refusal = r"http://127\.0\.0\.1:\d+(/v1/traces)?: .*(UNAVAILABLE|[Mm]ax retries)"
    with (
        unheard_port() as port,
        exporting_to(f"http://127.0.0.1:{port}", protocol, timeout_s=1) as exporter,
        in_time(8),
        pytest.raises(OSError, match=refusal),
    ):
        exporter.export([a_span()])


def test_a_collector_that_hangs_is_an_error_in_time(collector: Collector, protocol: str) -> None:
    collector.gate.clear()
    with exporting_to(collector.endpoint, protocol, timeout_s=0.3) as exporter:
        with in_time(8), pytest.raises(OSError):
            exporter.export([a_span()])
        collector.gate.set()


def test_tls_is_used_when_the_endpoint_says_https(protocol: str) -> None:
    with PROTOCOLS[protocol]() as plain:
        endpoint = plain.endpoint.replace("http:", "https:")
        with exporting_to(endpoint, protocol, timeout_s=0.5) as exporter, pytest.raises(OSError):
            exporter.export([a_span()])
        assert plain.requests == []


def test_closing_frees_an_export_that_hangs(collector: Collector, protocol: str) -> None:
    collector.gate.clear()
    with exporting_to(collector.endpoint, protocol) as exporter:
        thread = ExportThread(exporter, "otlp")
        thread.offer(some_spans(600))
        assert collector.entered.wait(LONG_S)
        worker = next(one for one in threading.enumerate() if one.name == "goqueue-export-otlp")
        with in_time(30):
            thread.close(0.1)
            assert thread.figures() == ExportFigures(0, 600, 0)
            worker.join(LONG_S)


def test_a_thread_counts_what_an_absent_collector_did_not_take(protocol: str) -> None:
    with unheard_port() as port, exporting_to(f"http://127.0.0.1:{port}", protocol, timeout_s=0.3) as exporter:
        thread = ExportThread(exporter, "otlp")
        thread.offer(some_spans(10))
        thread.close(LONG_S)
        assert thread.figures() == ExportFigures(0, 10, 0)


def test_a_thread_counts_what_arrived(collector: Collector, protocol: str) -> None:
    with exporting_to(collector.endpoint, protocol) as exporter:
        thread = ExportThread(exporter, "otlp")
        thread.offer(some_spans(1_100))
        thread.close(LONG_S)
        assert thread.figures() == ExportFigures(1_100, 0, 0)
    arrived = [
        span.span_id for request in collector.requests for span in request.resource_spans[0].scope_spans[0].spans
    ]
    assert [int.from_bytes(span_id) for span_id in arrived] == list(range(1, 1_101))


def test_nothing_is_sent_after_closing(collector: Collector, protocol: str) -> None:
    with exporting_to(collector.endpoint, protocol) as exporter:
        exporter.close()
        with pytest.raises(SpansDropped, match="closed"):
            exporter.export([a_span()])
    assert collector.requests == []


def test_nothing_that_a_process_has_only_one_of_is_touched(collector: Collector, protocol: str) -> None:
    from opentelemetry import metrics, trace

    # What is imported at first use may have something to do at exit, once in a process.
    with exporting_to(collector.endpoint, protocol) as exporter:
        exporter.export([a_span()])
    at_exit = atexit._ncallbacks()  # type: ignore[attr-defined]
    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    with exporting_to(collector.endpoint, protocol) as exporter:
        exporter.export([a_span()])
    assert trace.get_tracer_provider() is tracers
    assert metrics.get_meter_provider() is meters
    assert atexit._ncallbacks() == at_exit  # type: ignore[attr-defined]


def test_a_missing_package_says_what_to_install(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"opentelemetry.exporter.otlp.proto.{protocol}.trace_exporter", None)
    with pytest.raises(
        InvalidConfiguration, match=r"trace.exporters has 'otlp'.*pip install 'goqueue\[otel\]'"
    ) as caught:
        OtlpExporter(TraceConfig(otlp_protocol=protocol), "n")
    assert f"trace.otlp_protocol is '{protocol}'" in str(caught.value)


def test_a_missing_sdk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(InvalidConfiguration, match=r"pip install 'goqueue\[otel\]'"):
        OtlpExporter(TraceConfig(otlp_protocol="http"), "n")


def test_a_bad_variable_of_the_exporters_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon")
    with pytest.raises(InvalidConfiguration, match="OTEL_EXPORTER_OTLP_"):
        OtlpExporter(TraceConfig(otlp_protocol="grpc"), "n")
