"""Bytes that are nearly HTTP, or not at all: the server answers or closes, and lives on."""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Iterator

import pytest
from behaviour.host import Host, config_for
from behaviour.load import wire_batch
from behaviour.raw import RawConnection, ask, request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("GOQUEUE_FUZZ", "400"))
BODY = b'{"messages": [{"key": "k", "value": "v", "headers": {"h": ["1"]}, "priority": "high"}]}'
SEEDS = [
    request("GET", "/topics/t/partitions/0/messages?offset=0&limit=5&wait=1ms"),
    request("GET", "/topics/t/partitions/0/messages", b"", "Accept: application/octet-stream"),
    request("POST", "/topics/t/messages", BODY),
    request("POST", "/topics/t/partitions/0/messages", wire_batch([b"a", b"b"]), kind="application/octet-stream"),
    request("POST", "/topics", b'{"name": "n", "num_partitions": 1, "settings": {"retention_ms": "1h"}}'),
    request("DELETE", "/topics/n"),
    request("POST", "/topics/t/messages", BODY, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"),
    request("HEAD", "/topics", b"", "Accept-Encoding: gzip", "Origin: http://localhost"),
    request("OPTIONS", "/topics/t"),
    request("POST", "/topics/t/messages", gzip.compress(BODY), "Content-Encoding: gzip"),
    request(
        "POST", "/groups/g/join", b'{"client_id": "c", "topics": ["t"], "session_timeout": "30s", "kind": "shared"}'
    ),
    request("GET", "/groups/g/poll?member_id=c-0&max_messages=5&timeout=1ms"),
    request("POST", "/groups/g/offsets", b'{"member_id": "c-0", "offsets": {"t": {"0": 1}}, "generation": 1}'),
    request("POST", "/messages/nack", b'{"receipt_handles": ["t:0:0:1:AAAAAAAAAAAAAAAAAAAAAAAAAABn"], "delay": "1s"}'),
    b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    % (len(BODY), BODY),
]


class Defects(logging.Handler):
    """Gathers what the server logs as an error: nothing that a client sends is one."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.getMessage()}: {record.exc_info}")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    http = {"header_timeout_ms": 1_000, "body_timeout_ms": 1_000, "keep_alive_ms": 1_000, "max_body_bytes": 1 << 20}
    host = Host(config_for(tmp_path_factory.mktemp("fuzz"), http=http), http=True)
    assert ask(host.port, request("POST", "/topics", b'{"name": "t", "num_partitions": 1}')).status == 201
    defects = Defects(logging.ERROR)
    logging.getLogger().addHandler(defects)
    yield host
    logging.getLogger().removeHandler(defects)
    host.stop()
    assert defects.messages == []


@st.composite
def nearly_http(draw: st.DrawFn) -> bytes:
    """Requests that are cut, spliced, repeated and changed here and there."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(SEEDS), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["byte", "insert", "delete", "crlf", "repeat"])):
            case "byte" if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case "insert":
                data[at:at] = draw(st.binary(max_size=20))
            case "delete":
                del data[at : at + draw(st.integers(1, 40))]
            case "crlf":
                data[at:at] = b"\r\n"
            case _:
                data[at:at] = data[at : at + 30] * draw(st.integers(1, 5))
    return bytes(data)


@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.one_of(nearly_http(), st.binary(max_size=300)), pieces=st.integers(1, 4))
def test_no_bytes_bring_the_server_down(host: Host, data: bytes, pieces: int) -> None:
    with RawConnection(host.port) as connection:
        try:
            step = -(-max(1, len(data)) // pieces)
            for at in range(0, len(data), step):
                connection.send(data[at : at + step])
            connection.finish_sending()
        except OSError:
            pass
        answered = connection.drain()
    assert answered == b"" or answered.startswith(b"HTTP/1.1 ")
    assert b" 500 " not in answered.partition(b"\r\n")[0]
    assert b"internal_error" not in answered
    assert ask(host.port, request("GET", "/livez")).status == 200


def test_after_all_that_the_broker_still_works(host: Host) -> None:
    assert ask(host.port, request("POST", "/topics/t/messages", BODY)).status == 200
    page = ask(host.port, request("GET", "/topics/t/partitions/0/messages?limit=10000")).json
    offsets = [each["offset"] for each in page["messages"]]
    assert offsets == list(range(len(offsets)))
    assert host.broker.problems() == {}
