"""Span exporter for an OpenTelemetry collector, built on OpenTelemetry's own exporters.

They are an extra (``goqueue[otel]``), so they are imported when an exporter is created. No process-wide state of
OpenTelemetry is used or changed: no tracer provider, no detectors, no exit handlers.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from goqueue.model.config import TraceConfig
from goqueue.model.errors import InvalidConfiguration
from goqueue.model.fields import shown
from goqueue.observe.bounded_calls import BoundedCalls
from goqueue.observe.spans import SERVICE, Span, SpansDropped, sendable, sendable_text, service_version

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter as SdkExporter

_TIMEOUT_S: Final = 10.0
_SDK_SHARE: Final = 0.8
"""Share of the timeout given to the SDK's exporter: it gives up first, so that it can report the reason."""
_CLOSE_TIMEOUT_S: Final = 1.0
_HTTP_PATH: Final = "/v1/traces"
_LONGEST_REASON: Final = 500

_HEADER_NAME = re.compile(r"[a-z0-9_.-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_NOT_YOURS = frozenset({"content-type", "content-encoding", "content-length", "transfer-encoding", "te"})


class OtlpExporter:
    """Sends spans to ``trace.otlp_endpoint``. A failed export raises after at most ``timeout_s``, and so does an export
    after ``close``, which does not wait for a collector that hangs."""

    def __init__(self, config: TraceConfig, node_id: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._endpoint = collector_endpoint(config.otlp_endpoint, config.otlp_protocol)
        headers = collector_headers(config.otlp_headers)
        self._timeout_s = timeout_s
        self._calls = BoundedCalls("OTLP export")
        self._is_closed = False
        try:
            self._exporter = _sdk_exporter(config.otlp_protocol, self._endpoint, headers, timeout_s * _SDK_SHARE)
            self._to_sdk = _SpanConversion(node_id)
        except ImportError as error:
            raise InvalidConfiguration(
                f"trace.exporters has 'otlp' (trace.otlp_protocol is {config.otlp_protocol!r}), which needs packages "
                f"that are not installed ({error}); install them with: pip install 'goqueue[otel]'"
            ) from None
        except Exception as error:
            # Settings that the exporters take from OTEL_* variables, such as a certificate, can be invalid as well.
            raise InvalidConfiguration(
                f"trace.exporters has 'otlp', which cannot be set up: {type(error).__name__}: {error}; "
                f"check trace.otlp_* and the OTEL_EXPORTER_OTLP_* environment variables"
            ) from error
        _install_capture()

    def export(self, spans: list[Span]) -> None:
        if self._is_closed:
            raise SpansDropped(len(spans), "the exporter is closed")
        theirs, reasons = [], set()
        for span in spans:
            try:
                theirs.append(self._to_sdk.span(span))
            except ValueError as error:
                # One invalid span must not fail the whole batch.
                reasons.add(f"a span cannot be encoded: {error}")
        if theirs:
            self._export(theirs)
        if reasons:
            raise SpansDropped(len(spans) - len(theirs), "; ".join(sorted(reasons)))

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._calls.give_up()
        try:
            # Some versions wait here for an export that hangs.
            BoundedCalls("otlp shutdown").call(self._shut_down, _CLOSE_TIMEOUT_S)
        except TimeoutError:
            return

    def _export(self, spans: list[ReadableSpan]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        lines: list[str] = []

        def send() -> bool:
            _heard.lines = lines
            return self._exporter.export(spans) is SpanExportResult.SUCCESS

        try:
            if self._calls.call(send, self._timeout_s):
                return
            failure = "the collector did not take them"
        except Exception as error:
            failure = str(error)
        said = "; ".join([failure, *lines[-2:]])
        raise ConnectionError(f"{self._endpoint}: {said[:_LONGEST_REASON]}")

    def _shut_down(self) -> None:
        _heard.lines = []
        self._exporter.shutdown()


def collector_endpoint(endpoint: str, protocol: str) -> str:
    """``endpoint`` in the form that the exporters expect, with the path for HTTP; raises ``InvalidConfiguration``."""
    hint = "use http://host:port, or https://host:port for TLS"
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError as error:
        raise InvalidConfiguration(f"trace.otlp_endpoint: {shown(endpoint)}: {error}; {hint}") from None
    if parts.username is not None or parts.password is not None:
        # The value is not shown: it contains a password.
        raise InvalidConfiguration(
            "trace.otlp_endpoint has a user or a password in it; send them along with trace.otlp_headers, "
            "as in authorization=Basic%20…"
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or re.search(r"[^\x21-\x7e]", endpoint):
        raise InvalidConfiguration(f"trace.otlp_endpoint: {shown(endpoint)} is not an address; {hint}")
    if parts.query or parts.fragment:
        raise InvalidConfiguration(f"trace.otlp_endpoint: {shown(endpoint)} has a query or a fragment; {hint}")
    if protocol == "grpc":
        if parts.path not in {"", "/"}:
            raise InvalidConfiguration(
                f"trace.otlp_endpoint: {shown(endpoint)} has a path, and gRPC knows none; "
                f"leave it out, or set trace.otlp_protocol to http"
            )
        # Without a port, gRPC uses 443 even without TLS.
        return f"{parts.scheme}://{parts.netloc}" + ("" if port else ":443" if parts.scheme == "https" else ":80")
    path = parts.path if parts.path not in {"", "/"} else _HTTP_PATH
    return f"{parts.scheme}://{parts.netloc}{path}"


def collector_headers(text: str) -> dict[str, str]:
    """Parse ``name=value,name=value``; values may have %-escapes, and are secrets: no error shows one."""
    headers: dict[str, str] = {}
    for place, entry in enumerate(text.split(","), 1):
        if not entry.strip():
            continue
        name, equals, raw = entry.partition("=")
        name, value = name.strip().lower(), unquote(raw.strip())
        where = f"trace.otlp_headers, entry {place}"
        if not equals:
            raise InvalidConfiguration(f"{where} has no '='; write name=value, and a comma in a value as %2C")
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidConfiguration(
                f"{where}: {shown(name)} is not a header's name; it may have letters, digits, '-', '_' and '.'"
            )
        if name in _NOT_YOURS or name.startswith("grpc-") or name.endswith("-bin"):
            raise InvalidConfiguration(f"{where}: {name} cannot be set; leave it out")
        if name in headers:
            raise InvalidConfiguration(f"{where}: {name} is given twice; give it once")
        if not _HEADER_VALUE.fullmatch(value):
            raise InvalidConfiguration(f"{where}: the value of {name} may have printable ASCII characters only")
        headers[name] = value
    return headers


def _sdk_exporter(protocol: str, endpoint: str, headers: dict[str, str], timeout_s: float) -> SdkExporter:
    if protocol == "grpc":
        from grpc import Compression as GrpcCompression
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter(
            endpoint=endpoint,
            insecure=endpoint.startswith("http://"),
            headers=tuple(headers.items()) or None,
            timeout=timeout_s,
            compression=GrpcCompression.Gzip,
        )
    import requests
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

    session = requests.Session()
    session.hooks["response"].append(_refuse_redirect)
    return HttpExporter(
        endpoint=endpoint, headers=headers or None, timeout=timeout_s, compression=Compression.Gzip, session=session
    )


def _refuse_redirect(response: requests.Response, *_: object, **__: object) -> None:
    """Raise on redirects: the exporters take a redirect for success although no span has arrived."""
    if response.is_redirect:
        response.close()
        raise ConnectionError(f"redirected with {response.status_code}; set trace.otlp_endpoint to where it leads")


class _SpanConversion:
    """Conversion of spans into the SDK's spans."""

    def __init__(self, node_id: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        # Not Resource.create, which reads the environment and runs detectors.
        self._resource = Resource(
            {
                "service.name": SERVICE,
                "service.instance.id": sendable_text(node_id),
                "service.version": service_version(),
            }
        )
        self._scope = InstrumentationScope(SERVICE, service_version())

    def span(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        sampled = TraceFlags(TraceFlags.SAMPLED)
        trace_id = int(span.trace_id, 16)
        context = SpanContext(trace_id, int(span.span_id, 16), is_remote=False, trace_flags=sampled)
        if not context.is_valid:
            raise ValueError(f"trace id {shown(span.trace_id)}, span id {shown(span.span_id)}")
        parent = None
        if span.parent_id:
            # Remote: the parent's id came with the message, possibly from another process.
            parent = SpanContext(trace_id, int(span.parent_id, 16), is_remote=True, trace_flags=sampled)
        return ReadableSpan(
            name=sendable_text(span.name),
            context=context,
            parent=parent,
            resource=self._resource,
            attributes={sendable_text(key): sendable(value) for key, value in span.attributes.items()},
            kind=SpanKind[span.kind.upper()],
            status=Status(StatusCode.ERROR, sendable_text(span.error)) if span.error else Status(StatusCode.UNSET),
            start_time=max(0, span.start_ns),
            end_time=max(0, span.start_ns, span.end_ns),
            instrumentation_scope=self._scope,
        )


class _CapturedErrors(threading.local):
    lines: list[str] | None = None


_heard = _CapturedErrors()


class _ErrorCapture(logging.Filter):
    """Log filter that captures the exporters' errors, which they report only in their log. Lines logged in this
    exporter's threads are kept from the log and become part of its exceptions; lines from other threads pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _heard.lines is None:
            return True
        _heard.lines.append(record.getMessage())
        return False


_ERROR_CAPTURE = _ErrorCapture()


def _install_capture() -> None:
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if not name.startswith("opentelemetry.") or not isinstance(logger, logging.Logger):
            continue
        if _ERROR_CAPTURE not in logger.filters:
            # Inserted first: a filter of OpenTelemetry hides repeated lines.
            logger.filters.insert(0, _ERROR_CAPTURE)
