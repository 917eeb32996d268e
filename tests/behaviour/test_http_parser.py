"""Where one request ends and the next begins, whatever a client offers besides; and what is no HTTP/1.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from behaviour.host import Host, config_for
from behaviour.raw import RawConnection, ask, request

ONE = json.dumps({"messages": [{"value": "v"}]}).encode()
PUBLISH = "/topics/t/messages"
OFFERS = [
    ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"],
    ["Upgrade: websocket", "Connection: keep-alive, upgrade", "Sec-WebSocket-Key: AAAA"],
    ["UPGRADE : h2c", "CONNECTION: Upgrade"],
    ["Upgrade: h2c", "Upgrade: websocket", "Connection: upgrade"],
]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(config_for(tmp_path), http=True)
    assert ask(host.port, request("POST", "/topics", b'{"name": "t", "num_partitions": 1}')).status == 201
    yield host
    host.stop()


def values(host: Host) -> list[str]:
    page = ask(host.port, request("GET", "/topics/t/partitions/0/messages")).json
    return [message["value"] for message in page["messages"]]


@pytest.mark.parametrize("offer", OFFERS[:2] + OFFERS[3:])
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_an_offer_of_another_protocol_is_ignored_and_the_body_is_still_the_body(
    host: Host, offer: list[str], step: int
) -> None:
    # Whoever took the body for other requests would carry this one out.
    body = request("DELETE", "/topics/t")
    smuggled = json.dumps({"messages": [{"value": body.decode()}]}).encode()
    data = request("POST", PUBLISH, smuggled, *offer) + request("POST", PUBLISH, ONE, *offer)
    data += request("POST", PUBLISH, body, *offer) + request("GET", "/version")
    with RawConnection(host.port) as connection:
        for at in range(0, len(data), step):
            connection.send(data[at : at + step])
        assert [connection.answer().status for _ in range(4)] == [200, 200, 400, 200]
    assert values(host) == [body.decode(), "v"]


@pytest.mark.parametrize("offer", OFFERS[:1])
def test_an_offer_with_a_chunked_body_is_ignored_as_well(host: Host, offer: list[str]) -> None:
    head = request("POST", PUBLISH, b"", "Transfer-Encoding: chunked", *offer)
    with RawConnection(host.port) as connection:
        connection.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE) + request("GET", "/version", b"", *offer))
        assert [connection.answer().status for _ in range(2)] == [200, 200]
    assert values(host) == ["v"]


def test_a_header_that_is_none_ends_the_connection(host: Host) -> None:
    with RawConnection(host.port) as connection:
        connection.send(request("POST", PUBLISH, ONE, *OFFERS[2]))
        assert connection.answer().status == 400
        assert connection.closed_by_peer()
    assert values(host) == []


def test_an_offer_does_not_make_room_for_larger_headers(host: Host) -> None:
    with RawConnection(host.port) as connection:
        connection.send(request("GET", "/version", b"", *OFFERS[0], *(f"X-{n}: {'y' * 1_000}" for n in range(70))))
        assert connection.answer().json["code"] == "invalid_request"
        assert connection.closed_by_peer()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET /topics\r\n\r\n", "HTTP/0.9"),
        (b"GET /topics\n\n", ""),
        (b"GET /topics HTTP/0.9\r\nHost: localhost\r\n\r\n", "HTTP/0.9"),
        (b"GET /topics HTTP/2.0\r\nHost: localhost\r\n\r\n", "HTTP/2.0"),
        (b"GET /topics HTTP/1.1\r\n\r\n", "0 Host headers"),
        (b"GET /topics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "2 Host headers"),
        (b"GET /topics HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "2 Host headers"),
        (b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", "CONNECT"),
    ],
)
def test_what_is_no_whole_request_of_http_1_is_refused_and_the_connection_closed(
    host: Host, data: bytes, words: str
) -> None:
    with RawConnection(host.port) as connection:
        connection.send(data + request("POST", PUBLISH, ONE))
        answer = connection.answer()
        assert (answer.status, answer.json["code"]) == (400, "invalid_request")
        assert words in answer.json["error"]
        assert connection.closed_by_peer()
    assert values(host) == []


def test_http_1_0_knows_requests_without_a_host(host: Host) -> None:
    assert ask(host.port, b"GET /version HTTP/1.0\r\n\r\n").status == 200


# Bodies in chunks, and what comes beside them

CHUNKED = request("POST", PUBLISH, b"", "Transfer-Encoding: chunked") + b"%x\r\n%b\r\n" % (len(ONE), ONE)
FAR_TOO_MUCH = 1 << 20
"""More than what is read at once, which is not counted where a body ends."""


@pytest.mark.parametrize("trailer", ["Host: evil", "Origin: http://evil", "Content-Encoding: br", "Expect: x", "X:"])
def test_a_trailer_is_no_header_of_its_request_nor_of_the_next_one(host: Host, trailer: str) -> None:
    with RawConnection(host.port) as connection:
        connection.send(CHUNKED + f"0\r\n{trailer}\r\n\r\n".encode() + request("GET", "/version"))
        assert [connection.answer().status for _ in range(2)] == [200, 200]
    assert values(host) == ["v"]


@pytest.mark.parametrize(
    "rest",
    [
        b"0\r\n" + b"X0001: y\r\n" * (FAR_TOO_MUCH // 10) + b"\r\n",
        b"0\r\nX: " + b"y" * FAR_TOO_MUCH + b"\r\n\r\n",
        b"0;x=" + b"y" * FAR_TOO_MUCH + b"\r\n\r\n",
        (b"1;" + b"x" * 1_000 + b"\r\n \r\n") * (FAR_TOO_MUCH // 1_000) + b"0\r\n\r\n",
    ],
    ids=["trailers", "one trailer", "one extension", "extensions"],
)
def test_what_comes_beside_the_body_is_bounded_as_headers_are(host: Host, rest: bytes) -> None:
    with RawConnection(host.port) as connection:
        with suppress(OSError):
            connection.send(CHUNKED + rest)
        answer = connection.answer()
        assert (answer.status, answer.json["code"]) == (400, "invalid_request")
        assert "65536 bytes" in answer.json["error"]
        assert connection.closed_by_peer()
    assert values(host) == []


def test_a_body_in_many_small_chunks_is_taken(host: Host) -> None:
    spaces = b"1;x=y\r\n \r\n" * 100_000
    with RawConnection(host.port) as connection:
        connection.send(CHUNKED + spaces + b"0\r\nX: y\r\n\r\n" + request("GET", "/version"))
        assert [connection.answer().status for _ in range(2)] == [200, 200]
    assert values(host) == ["v"]


@pytest.mark.parametrize("codings", [["gzip, chunked"], ["gzip", "Chunked"]], ids="; ".join)
def test_a_transfer_coding_other_than_chunked_is_refused(host: Host, codings: list[str]) -> None:
    head = request("POST", PUBLISH, b"", *(f"Transfer-Encoding: {coding}" for coding in codings))
    with RawConnection(host.port) as connection:
        connection.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE))
        answer = connection.answer()
        assert (answer.status, answer.json["code"]) == (501, "unsupported_feature")
        assert connection.closed_by_peer()
    assert values(host) == []
