"""What clients of HTTP take for granted: HEAD, OPTIONS, packed bodies, and a root that leads somewhere."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import zstandard

from behaviour.host import Host, config_for
from behaviour.load import wire_batch
from behaviour.raw import Answer, RawConnection, ask, request
from goqueue.api.http.server.content_coding import takes_gzip, unpacked

PUBLISH = "/topics/t/messages"
READ = "/topics/t/partitions/0/messages"
MAX_BODY = 1 << 20


def body_of(value: str) -> bytes:
    return json.dumps({"messages": [{"value": value}]}).encode()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKERS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "GZIP": gzip.compress, "zstd": zstd}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    http = {"max_body_bytes": MAX_BODY, "max_request_memory_bytes": 2 * MAX_BODY}
    host = Host(config_for(tmp_path_factory.mktemp("habits"), http=http), http=True)
    assert ask(host.port, request("POST", "/topics", b'{"name": "t", "num_partitions": 1}')).status == 201
    yield host
    host.stop()


def stored(host: Host) -> int:
    return host.broker.topic("t").partition(0).high_watermark


def send_packed(host: Host, body: bytes, coding: str, path: str = PUBLISH, *, kind: str = "application/json") -> Answer:
    return ask(host.port, request("POST", path, body, f"Content-Encoding: {coding}", kind=kind))


# HEAD and OPTIONS


@pytest.mark.parametrize(
    "path", ["/topics", "/v1/topics/t", READ, "/version", "/schemas/ids/1", "/docs", "/openapi.json"]
)
def test_head_answers_as_get_does_without_the_body(host: Host, path: str) -> None:
    whole = ask(host.port, request("GET", path))
    with RawConnection(host.port) as connection:
        connection.send(request("HEAD", path, b"", "Accept-Encoding: gzip"))
        head = connection.answer(bodyless=True)
        connection.send(request("GET", "/version"))
        assert connection.answer().status == 200
    assert head.status == whole.status
    assert {name: head.headers[name] for name in ("content-type", "content-length")} == {
        "content-type": whole.headers["content-type"],
        "content-length": str(len(whole.body)),
    }


@pytest.mark.parametrize("path", ["/admin/backup", "/v1/admin/backup/", "/groups/g/poll?member_id=m", "/messages/ack"])
def test_head_does_no_work_and_hands_out_nothing(host: Host, path: str) -> None:
    answer = ask(host.port, request("HEAD", path), bodyless=True)
    assert answer.status == 405
    assert "HEAD" not in answer.headers["allow"]


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/topics", "GET, HEAD, OPTIONS, POST"),
        ("/v1/topics/t", "DELETE, GET, HEAD, OPTIONS, PATCH"),
        (PUBLISH, "GET, HEAD, OPTIONS, POST"),
        ("/topics/t/delayed/0/1", "DELETE, OPTIONS, PATCH"),
        ("/messages/ack", "OPTIONS, POST"),
        ("/groups/g/poll", "GET, OPTIONS"),
        ("/config/s%2Ft", "DELETE, GET, HEAD, OPTIONS, PUT"),
        ("*", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"),
    ],
)
def test_options_lists_every_method_of_a_path_as_a_refused_method_does(host: Host, path: str, methods: str) -> None:
    answer = ask(host.port, request("OPTIONS", path))
    assert (answer.status, answer.headers["allow"]) == (204, methods)
    if path != "*":
        refused = ask(host.port, request("TRACE", path))
        assert (refused.status, refused.headers["allow"]) == (405, methods)


def test_options_of_no_path_is_not_found(host: Host) -> None:
    answer = ask(host.port, request("OPTIONS", "/nope"))
    assert (answer.status, answer.json["error"]) == (404, "OPTIONS /nope: Not Found")


# Packed requests


@pytest.mark.parametrize("coding", PACKERS)
def test_packed_bodies_are_taken(host: Host, coding: str) -> None:
    before = stored(host)
    assert send_packed(host, PACKERS[coding](body_of("v" * 1_000)), coding).status == 200
    frames = PACKERS[coding](wire_batch([b"a", b"b"]))
    assert send_packed(host, frames, coding, READ, kind="application/octet-stream").status == 200
    made = PACKERS[coding](b'{"member_id": "m"}')
    assert send_packed(host, made, coding, "/groups/nope/leave").json["code"] == "group_not_found"
    assert stored(host) == before + 3


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_packed_body_may_come_in_chunks(host: Host, coding: str) -> None:
    before, body = stored(host), PACKERS[coding](body_of("v"))
    with RawConnection(host.port) as connection:
        connection.send(request("POST", PUBLISH, b"", "Transfer-Encoding: chunked", f"Content-Encoding: {coding}"))
        for byte in body:
            connection.send(b"1\r\n" + bytes([byte]) + b"\r\n")
        connection.send(b"0\r\n\r\n")
        assert connection.answer().status == 200
    assert stored(host) == before + 1


@pytest.mark.parametrize("coding", ["", "identity"])
def test_a_body_that_is_said_not_to_be_packed_is_taken(host: Host, coding: str) -> None:
    assert send_packed(host, body_of("v"), coding).status == 200


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "zstd,gzip", "gzip;q=1", "\x80"])
def test_other_codings_are_refused_and_the_right_ones_named(host: Host, coding: str) -> None:
    before = stored(host)
    answer = send_packed(host, body_of("v"), coding)
    assert (answer.status, answer.json["code"]) == (415, "unsupported_media_type")
    assert answer.headers["accept-encoding"] == "gzip, zstd"
    assert stored(host) == before


def test_a_type_that_is_refused_is_no_word_about_the_coding(host: Host) -> None:
    answer = send_packed(host, gzip.compress(b"x"), "gzip", READ, kind="text/plain")
    assert (answer.status, answer.json["code"]) == (415, "unsupported_media_type")
    assert "accept-encoding" not in answer.headers


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("size", [MAX_BODY + 1, 200 * MAX_BODY])
def test_a_small_body_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    host: Host, coding: str, size: int
) -> None:
    bomb, before = PACKERS[coding](b"x" * size), stored(host)
    assert len(bomb) < MAX_BODY
    answer = send_packed(host, bomb, coding)
    assert (answer.status, answer.json["code"]) == (413, "body_too_large")
    admission: Any = host.server.config.app
    assert (stored(host), admission.load.body_bytes) == (before, 0)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_that_unpacks_to_the_largest_size_is_taken(host: Host, coding: str) -> None:
    value = "x" * (MAX_BODY - len(body_of("")))
    assert send_packed(host, PACKERS[coding](body_of(value)), coding).status == 200


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_no_step_of_unpacking_makes_more_than_the_loop_has_time_for(coding: str) -> None:
    pieces = unpacked(PACKERS[coding](b"x" * (64 << 20)), coding)
    assert max(len(piece) for piece in pieces) <= 9 << 20


@pytest.mark.parametrize("blocks", [0, 1, 6_553, 100_000])
def test_gzip_that_unpacks_to_nothing_is_unpacked_in_steps_as_well(blocks: int) -> None:
    packer = zlib.compressobj(wbits=31)
    head, *rest = packer.flush(zlib.Z_FULL_FLUSH), packer.compress(b"x"), packer.flush()
    body = head + b"\0\0\0\xff\xff" * blocks + b"".join(rest)
    pieces = list(unpacked(body, "gzip"))
    assert b"".join(pieces) == b"x"
    assert len(pieces) >= len(body) / (64 << 10)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_what_is_not_packed_as_it_says_is_refused(host: Host, coding: str) -> None:
    whole, before = PACKERS[coding](body_of("v" * 100)), stored(host)
    wrong = [whole[:-1], whole[:10], whole + b"x", whole + whole, body_of("v"), b"\0" * 50]
    wrong += [whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:]] if coding == "gzip" else []
    for body in wrong:
        answer = send_packed(host, body, coding)
        assert (answer.status, answer.json["code"]) == (400, "invalid_request")
        assert coding in answer.json["error"]
    assert stored(host) == before


def test_a_window_that_no_decoder_for_http_must_have_is_refused(host: Host) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = packer.compress(body_of("v")) + packer.flush()
    assert send_packed(host, body, "zstd").status == 400


# Packed answers


def test_a_large_answer_is_packed_for_those_who_ask_for_it(host: Host) -> None:
    for _ in range(20):
        assert ask(host.port, request("POST", PUBLISH, body_of("value " * 500))).status == 200
    for path in (READ, "/v1/openapi.json", "/metrics", "/docs"):
        plain = ask(host.port, request("GET", path))
        packed = ask(host.port, request("GET", path, b"", "Accept-Encoding: br, gzip;q=0.5"))
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["vary"] == "accept-encoding"
        assert packed.headers["content-type"] == plain.headers["content-type"]
        assert len(packed.body) < len(plain.body) / 2
        if path != "/metrics":
            assert zlib.decompress(packed.body, 31) == plain.body
        assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("GET", "/version", "Accept: */*"),
        ("GET", READ, "Accept: application/octet-stream"),
        ("POST", PUBLISH, "Accept: */*"),
        ("GET", "/topics/nope", "Accept: */*"),
    ],
)
def test_small_answers_frames_and_those_to_a_publish_are_not_packed(
    host: Host, method: str, path: str, accept: str
) -> None:
    many = json.dumps({"messages": [{"value": "v"}] * 100}).encode()
    body = many if method == "POST" else b""
    answer = ask(host.port, request(method, path, body, accept, "Accept-Encoding: gzip"))
    assert answer.body
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("gzip", True), ("deflate, GZIP", True), ("*", True), ("gzip;q=0.001", True), ("br;q=1, *;q=0.1", True),
        ("x-gzip", True), ("", False), ("br", False), ("gzip;q=0", False), ("gzip; q=0.000", False),
        ("*;q=0", False), ("gzip;q=0, *", False), ("identity", False), ("gzipped", False),
        ("gzip" + " " * 508, True), ("gzip" + " " * 509, False),
    ],
)  # fmt: skip
def test_whether_a_client_takes_gzip(accept: str, wanted: bool) -> None:
    assert takes_gzip(accept.encode()) is wanted


@pytest.mark.parametrize("seed", range(4))
def test_any_body_that_is_packed_is_unpacked_as_it_was(host: Host, seed: int) -> None:
    chance = random.Random(seed)
    for coding in ("gzip", "zstd"):
        value = "".join(chance.choices("abc 0123456789", k=chance.randrange(600_000)))
        before = stored(host)
        assert send_packed(host, PACKERS[coding](body_of(value)), coding).status == 200
        read = ask(host.port, request("GET", f"{READ}?offset={before}", b"", "Accept-Encoding: gzip"))
        assert json.loads(zlib.decompress(read.body, 31))["messages"][0]["value"] == value


# The root


def test_a_browser_is_led_to_the_page_and_a_program_told_where_to_go(host: Host) -> None:
    browser = ask(host.port, request("GET", "/", b"", "Accept: text/html,application/xhtml+xml,*/*;q=0.8"))
    assert (browser.status, browser.headers["location"]) == (303, "/docs")
    assert "content-type" not in browser.headers
    program = ask(host.port, request("GET", "/", b"", "Accept: */*"))
    assert program.status == 200
    assert program.json["name"] == "goqueue"
    for name in ("docs", "openapi", "health"):
        assert ask(host.port, request("GET", program.json[name])).status == 200
