"""What a Jaeger agent gets, read with the ``thrift`` package."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
from doubles.trace_spans import a_span, some_spans
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from goqueue.model.config import TraceConfig
from goqueue.observe.jaeger import JaegerExporter
from goqueue.observe.spans import SpansDropped


class Agent:
    def __init__(self, family: socket.AddressFamily, host: str) -> None:
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((host, 0))
        self.socket.settimeout(5)
        self.config = TraceConfig(jaeger_host=host, jaeger_port=self.socket.getsockname()[1])

    def receive(self) -> bytes:
        return self.socket.recv(70_000)

    def batch(self) -> dict[int, Any]:
        return decoded(self.receive())


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent(socket.AF_INET, "127.0.0.1")
    yield agent
    agent.socket.close()


@pytest.fixture
def exporter(agent: Agent) -> Iterator[JaegerExporter]:
    exporter = JaegerExporter(agent.config, "node-1")
    yield exporter
    exporter.close()


def decoded(datagram: bytes) -> dict[int, Any]:
    """The batch: fields by their numbers."""
    buffer = TMemoryBuffer(datagram)
    protocol = TCompactProtocol(buffer)
    assert protocol.readMessageBegin() == ("emitBatch", TMessageType.ONEWAY, 0)
    arguments = read_value(protocol, TType.STRUCT)
    protocol.readMessageEnd()
    assert buffer.cstringio_buf.read() == b"", "nothing follows"
    assert list(arguments) == [1]
    return arguments[1]


def read_value(protocol: TCompactProtocol, kind: int) -> Any:
    if kind == TType.STRUCT:
        fields = {}
        protocol.readStructBegin()
        while True:
            _, field_kind, number = protocol.readFieldBegin()
            if field_kind == TType.STOP:
                break
            fields[number] = read_value(protocol, field_kind)
            protocol.readFieldEnd()
        protocol.readStructEnd()
        return fields
    if kind == TType.LIST:
        item_kind, size = protocol.readListBegin()
        items = [read_value(protocol, item_kind) for _ in range(size)]
        protocol.readListEnd()
        return items
    readers = {
        TType.BOOL: protocol.readBool,
        TType.I32: protocol.readI32,
        TType.I64: protocol.readI64,
        TType.STRING: protocol.readString,
    }
    return readers[kind]()


def tags(encoded: list[dict[int, Any]]) -> dict[str, object]:
    """Each value lies in the field that its type says: 3 text, 5 yes or no, 6 number."""
    fields = {0: 3, 2: 5, 3: 6}
    for tag in encoded:
        assert set(tag) == {1, 2, fields[tag[2]]}
    return {tag[1]: tag[fields[tag[2]]] for tag in encoded}


def test_every_field_of_a_span_arrives(agent: Agent, exporter: JaegerExporter) -> None:
    span = a_span(
        attributes={"messaging.system": "goqueue", "offset": -(1 << 63), "flag": True, "off": False, "ö": "é\n"}
    )
    exporter.export([span])
    batch = agent.batch()
    assert set(batch) == {1, 2}
    assert batch[1][1] == "goqueue"
    assert tags(batch[1][2]) == {"service.instance.id": "node-1", "service.version": version("goqueue")}
    (sent,) = batch[2]
    assert tags(sent.pop(10)) == {**span.attributes, "span.kind": "producer"}
    assert sent == {
        1: 0x78695A4B3C2D1E0F,
        2: 0xF0E1D2C3B4A59687 - (1 << 64),
        3: 0xFEDCBA9876543210 - (1 << 64),
        4: 0x8000000000000001 - (1 << 64),
        5: "publish orders",
        7: 1,
        8: 1_700_000_000_123_456,
        9: 100_000,
    }


def test_a_first_span_has_the_parent_zero(agent: Agent, exporter: JaegerExporter) -> None:
    exporter.export([a_span(parent_id="")])
    assert agent.batch()[2][0][4] == 0


def test_a_failure_is_tagged_with_its_reason(agent: Agent, exporter: JaegerExporter) -> None:
    exporter.export([a_span(error="no such topic", kind="internal", attributes={})])
    assert tags(agent.batch()[2][0][10]) == {
        "span.kind": "internal",
        "error": True,
        "otel.status_code": "ERROR",
        "otel.status_description": "no such topic",
    }


def test_what_no_tracing_system_takes_is_made_so_that_it_does(agent: Agent, exporter: JaegerExporter) -> None:
    exporter.export([a_span(name="\ud800", attributes={"\udfff": "\ud800", "n": 1 << 63}, start_ns=10_000, end_ns=0)])
    (sent,) = agent.batch()[2]
    assert sent[5] == "\\ud800"
    assert tags(sent[10]) == {"\\udfff": "\\ud800", "n": hex(1 << 63), "span.kind": "producer"}
    assert (sent[8], sent[9]) == (10, 0), "a clock that was set back makes no negative duration"


def test_many_spans_are_split_over_datagrams_that_agents_take(agent: Agent, exporter: JaegerExporter) -> None:
    exporter.export(some_spans(512, attributes={"text": "x" * 1_000}))
    ids: list[int] = []
    sizes = []
    while len(ids) < 512:
        datagram = agent.receive()
        sizes.append(len(datagram))
        ids.extend(span[3] for span in decoded(datagram)[2])
    assert ids == list(range(1, 513))
    assert max(sizes) < 65_000
    assert min(sizes[:-1]) > 63_000, "they are full"


def test_the_largest_span_that_fits_is_sent_and_one_more_byte_is_not(agent: Agent, exporter: JaegerExporter) -> None:
    exporter.export([a_span(name="x" * 30_000)])
    besides = len(agent.receive()) - 30_000
    largest = 64_999 - besides - 10
    with pytest.raises(SpansDropped, match="too large") as caught:
        exporter.export([a_span(name="x" * (64_999 - besides + 1)), a_span(name="x" * largest), a_span(name="small")])
    assert caught.value.count == 1
    assert len(datagram := agent.receive()) < 65_000
    assert [span[5] for span in decoded(datagram)[2]] == ["x" * largest]
    assert [span[5] for span in agent.batch()[2]] == ["small"]


def test_a_span_that_cannot_be_encoded_takes_no_other_with_it(agent: Agent, exporter: JaegerExporter) -> None:
    with pytest.raises(SpansDropped, match="cannot be encoded") as caught:
        exporter.export([a_span(name="a"), a_span(trace_id="not hex"), a_span(name="b")])
    assert caught.value.count == 1
    assert [span[5] for span in agent.batch()[2]] == ["a", "b"]


def test_an_agent_may_have_an_ipv6_address() -> None:
    try:
        agent = Agent(socket.AF_INET6, "::1")
    except OSError:
        pytest.skip("no IPv6 here")
    exporter = JaegerExporter(agent.config, "n")
    exporter.export([a_span()])
    assert len(agent.batch()[2]) == 1
    exporter.close()
    agent.socket.close()


def test_an_agent_that_is_not_there_is_noticed(agent: Agent) -> None:
    agent.socket.close()
    exporter = JaegerExporter(agent.config, "n")
    with pytest.raises(SpansDropped, match="refused") as caught:
        # The host answers the first datagram that nobody listens, and the next attempt hears of it.
        for _ in range(2):
            exporter.export(some_spans(3))
    assert caught.value.count == 3
    exporter.close()


class Names:
    """A name server that counts."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked = 0

    def __call__(self, host: str, port: int) -> list[tuple[Any, ...]]:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", self.answer)]


def test_a_name_is_looked_up_once_a_minute_and_followed_when_it_moves(agent: Agent) -> None:
    now = [0.0]
    names = Names(agent.socket.getsockname())
    exporter = JaegerExporter(TraceConfig(jaeger_host="agent.test"), "n", clock=lambda: now[0], look_up=names)
    for _ in range(3):
        exporter.export([a_span()])
        agent.batch()
    assert names.asked == 1
    now[0] = 60
    names.answer = OSError("name server is down")
    exporter.export([a_span()])
    assert agent.batch()
    assert names.asked == 2, "an address that was good is kept"
    other = Agent(socket.AF_INET, "127.0.0.1")
    names.answer = other.socket.getsockname()
    now[0] = 120
    exporter.export([a_span()])
    assert other.batch()
    exporter.close()
    other.socket.close()


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")])
def test_a_name_that_cannot_be_found_is_an_error_and_not_looked_up_for_every_batch(
    agent: Agent, failure: Exception
) -> None:
    now = [0.0]
    names = Names(failure)
    exporter = JaegerExporter(TraceConfig(jaeger_host="no.test"), "n", clock=lambda: now[0], look_up=names)
    for _ in range(3):
        with pytest.raises(OSError, match=r"trace.jaeger_host: 'no.test' cannot be reached"):
            exporter.export([a_span()])
    assert names.asked == 1
    now[0], names.answer = 60, agent.socket.getsockname()
    exporter.export([a_span()])
    assert agent.batch()
    exporter.close()


def test_a_host_that_cannot_be_a_name_is_an_error() -> None:
    exporter = JaegerExporter(TraceConfig(jaeger_host="x" * 70), "n")
    with pytest.raises(OSError, match="cannot be reached"):
        exporter.export([a_span()])
    exporter.close()


def test_nothing_is_sent_after_closing(agent: Agent, exporter: JaegerExporter) -> None:
    exporter.export([a_span()])
    exporter.close()
    exporter.close()
    with pytest.raises(OSError, match="closed"):
        exporter.export([a_span()])
