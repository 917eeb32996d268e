"""Span exporter for a Jaeger agent: batches in Thrift's compact protocol, one per UDP datagram.

Field numbers are those of Jaeger's ``jaeger.thrift`` and ``agent.thrift``.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from goqueue.model.config import TraceConfig
from goqueue.observe import thrift_compact as thrift
from goqueue.observe.bounded_calls import BoundedCalls
from goqueue.observe.spans import SERVICE, Attribute, Span, SpansDropped, sendable, sendable_text, service_version

MAX_DATAGRAM_BYTES: Final = 64_999
"""Agents accept 65,000 bytes at most by default."""
_LIST_ROOM: Final = 8
"""Bytes reserved for the number of spans, which is written before them."""
_LOOKUP_TIMEOUT_S: Final = 5.0
_LOOKUP_AGAIN_S: Final = 60.0
_SEND_TIMEOUT_S: Final = 1.0
_STRING, _BOOL, _LONG = 0, 2, 3
_SAMPLED: Final = 1
_NANOS_PER_MICRO: Final = 1_000
_MASK: Final = (1 << 64) - 1

Lookup = Callable[[str, int], list[tuple[Any, ...]]]


def look_up(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM))


class JaegerExporter:
    """Sends spans to the agent at ``trace.jaeger_host`` and ``trace.jaeger_port``.

    The host name is resolved at most once a minute, whether that succeeds or not. UDP does not report loss; a host that
    reports the port as closed makes one of the next batches fail.
    """

    def __init__(
        self,
        config: TraceConfig,
        node_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        look_up: Lookup = look_up,
    ) -> None:
        self._host, self._port = config.jaeger_host, config.jaeger_port
        self._clock = clock
        self._look_up = look_up
        self._calls = BoundedCalls("jaeger")
        self._looked_up_at: float | None = None
        self._lookup_error = ""
        self._address: tuple[Any, ...] | None = None
        self._socket: socket.socket | None = None
        self._is_closed = False
        tags = [_tag("service.instance.id", node_id), _tag("service.version", service_version())]
        self._process = thrift.struct(thrift.text_field(1, SERVICE), thrift.structs_field(2, tags))
        self._room = MAX_DATAGRAM_BYTES - len(self._datagram([])) - _LIST_ROOM

    def export(self, spans: list[Span]) -> None:
        agent = self._connected()
        encoded, reasons = self._encoded(spans)
        dropped = len(spans) - len(encoded)
        for batch in self._batches(encoded):
            try:
                agent.send(self._datagram(batch))
            except OSError as error:
                dropped += len(batch)
                reasons.add(f"{self._host}:{self._port}: {error}")
        if dropped:
            raise SpansDropped(dropped, "; ".join(sorted(reasons)))

    def close(self) -> None:
        self._is_closed = True
        self._calls.give_up()
        if self._socket is not None:
            self._socket.close()

    def _encoded(self, spans: list[Span]) -> tuple[list[bytes], set[str]]:
        """The encoded spans, and why others cannot be sent: one invalid span must not fail the whole batch."""
        encoded, reasons = [], set()
        for span in spans:
            try:
                content = encoded_span(span)
            except ValueError as error:
                reasons.add(f"a span cannot be encoded: {error}")
                continue
            if len(content) > self._room:
                reasons.add(f"a span of {len(content)} bytes is too large for a datagram")
                continue
            encoded.append(content)
        return encoded, reasons

    def _batches(self, encoded_spans: list[bytes]) -> Iterator[list[bytes]]:
        batch: list[bytes] = []
        size = 0
        for content in encoded_spans:
            if size + len(content) > self._room:
                yield batch
                batch, size = [], 0
            batch.append(content)
            size += len(content)
        if batch:
            yield batch

    def _datagram(self, encoded_spans: list[bytes]) -> bytes:
        batch = thrift.struct(thrift.struct_field(1, self._process), thrift.structs_field(2, encoded_spans))
        return thrift.one_way_call("emitBatch", thrift.struct(thrift.struct_field(1, batch)))

    def _connected(self) -> socket.socket:
        """The socket, connected so that errors for a closed port are reported to it."""
        if self._is_closed:
            raise OSError("the exporter is closed")
        now = self._clock()
        if self._looked_up_at is None or now - self._looked_up_at >= _LOOKUP_AGAIN_S:
            self._looked_up_at = now
            self._find()
        if self._socket is None:
            raise OSError(self._lookup_error)
        return self._socket

    def _find(self) -> None:
        """Resolve the host name. If that fails, the last known address stays in use."""
        try:
            found = self._calls.call(lambda: self._look_up(self._host, self._port), _LOOKUP_TIMEOUT_S)
            family, kind, protocol, _, address = found[0]
            if address == self._address:
                return
            fresh = socket.socket(family, kind, protocol)
            try:
                fresh.settimeout(_SEND_TIMEOUT_S)
                fresh.connect(address)
            except BaseException:
                fresh.close()
                raise
        except (OSError, ValueError, IndexError) as error:
            # A ValueError means an invalid name, such as a label of more than 63 characters.
            self._lookup_error = (
                f"trace.jaeger_host: {self._host!r} cannot be reached: {error}; "
                f"it is looked up again after {_LOOKUP_AGAIN_S:g} s"
            )
            return
        if self._socket is not None:
            self._socket.close()
        self._socket, self._address = fresh, address
        if self._is_closed:
            fresh.close()


def encoded_span(span: Span) -> bytes:
    trace_id, span_id = int(span.trace_id, 16), int(span.span_id, 16)
    low, high = thrift.signed(trace_id & _MASK), thrift.signed(trace_id >> 64)
    parent_id = thrift.signed(int(span.parent_id, 16)) if span.parent_id else 0
    tags = [_tag(key, value) for key, value in span.attributes.items()]
    tags.append(_tag("span.kind", span.kind))
    if span.error:
        tags += [_tag("error", True), _tag("otel.status_code", "ERROR"), _tag("otel.status_description", span.error)]
    return thrift.struct(
        thrift.i64_field(1, low),
        thrift.i64_field(2, high),
        thrift.i64_field(3, thrift.signed(span_id)),
        # Field 6, references to other spans, need not repeat the parent.
        thrift.i64_field(4, parent_id),
        thrift.text_field(5, sendable_text(span.name)),
        thrift.i32_field(7, _SAMPLED),
        thrift.i64_field(8, span.start_ns // _NANOS_PER_MICRO),
        thrift.i64_field(9, max(0, span.end_ns - span.start_ns) // _NANOS_PER_MICRO),
        thrift.structs_field(10, tags),
    )


def _tag(key: str, value: Attribute) -> bytes:
    value = sendable(value)
    name = thrift.text_field(1, sendable_text(key))
    if isinstance(value, bool):
        return thrift.struct(name, thrift.i32_field(2, _BOOL), thrift.bool_field(5, value))
    if isinstance(value, int):
        return thrift.struct(name, thrift.i32_field(2, _LONG), thrift.i64_field(6, value))
    return thrift.struct(name, thrift.i32_field(2, _STRING), thrift.text_field(3, value))
