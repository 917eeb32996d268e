"""What a client may ask for at once, and how long it may take to ask."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from behaviour.faulty_files import FaultyFiles, of_topic
from behaviour.host import Host, config_for
from behaviour.raw import Answer, RawConnection, ask, request
from behaviour.waiting import until

ONE = json.dumps({"messages": [{"value": "v", "partition": 0}]}).encode()
LONG_WAIT = "/topics/t/partitions/0/messages?wait=25s"
Begin = Callable[..., Host]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    started: list[Host] = []

    def start(files: FaultyFiles | None = None, **http: Any) -> Host:
        host = Host(config_for(tmp_path, http=http), http=True, files=files)
        started.append(host)
        assert ask(host.port, request("POST", "/topics", b'{"name": "t", "num_partitions": 1}')).status == 201
        return host

    yield start
    for host in started:
        host.stop()


async def _now(function: Callable[[], None]) -> None:
    function()


def refused(answer: Answer, status: int, code: str) -> None:
    assert (answer.status, answer.json["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json.keys() == {"error", "code", "retriable"}


def retry_later(answer: Answer) -> None:
    refused(answer, 503, "overloaded")
    assert answer.json["retriable"] is True
    assert int(answer.headers["retry-after"]) >= 1


def stored(host: Host) -> int:
    return host.broker.topic("t").partition(0).high_watermark


def test_a_body_that_announces_too_much_is_refused_before_it_is_sent(begin: Begin) -> None:
    host = begin(max_body_bytes=2_000)
    with RawConnection(host.port) as connection:
        connection.send(b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2001\r\n\r\n")
        refused(connection.answer(), 413, "body_too_large")
        assert connection.closed_by_peer()


def test_a_body_of_the_largest_size_is_taken(begin: Begin) -> None:
    host = begin(max_body_bytes=2_000)
    body = json.dumps({"messages": [{"value": ""}]}).encode()
    body = body.replace(b'""', b'"' + b"x" * (2_000 - len(body)) + b'"')
    assert len(body) == 2_000
    assert ask(host.port, request("POST", "/topics/t/messages", body)).status == 200


@pytest.mark.parametrize("path", ["/topics", "/topics/t/messages", "/topics/t/partitions/0/messages"])
def test_a_chunked_body_that_grows_too_large_is_refused_where_it_does(begin: Begin, path: str) -> None:
    host = begin(max_body_bytes=2_000)
    with RawConnection(host.port) as connection:
        kind = "application/octet-stream" if "partitions" in path else "application/json"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.send(head.encode())
        for _ in range(5):
            connection.send(b"1f4\r\n" + b"x" * 500 + b"\r\n")
        refused(connection.answer(), 413, "body_too_large")


def test_a_body_that_grows_too_large_while_its_request_waits_is_refused(begin: Begin) -> None:
    host = begin(max_body_bytes=2_000)
    with RawConnection(host.port) as connection:
        connection.send(request("GET", LONG_WAIT, b"", "Transfer-Encoding: chunked") + b"7d0\r\n" + b"x" * 2_000)
        until(lambda: host.waiting_readers("t", 0) == 1)
        connection.send(b"\r\n1\r\nx\r\n")
        refused(connection.answer(), 413, "body_too_large")
    until(lambda: host.waiting_readers("t", 0) == 0)


def test_a_body_that_was_refused_and_never_ends_has_no_second_answer(begin: Begin) -> None:
    host = begin(max_body_bytes=2_000, body_timeout_ms=300)
    with RawConnection(host.port) as connection:
        connection.send(b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send(b"fff\r\n" + b"x" * 2_001)
        refused(connection.answer(), 413, "body_too_large")
        assert connection.closed_by_peer()


def test_a_chunked_body_within_bounds_is_taken(begin: Begin) -> None:
    host = begin(max_body_bytes=2_000)
    with RawConnection(host.port) as connection:
        connection.send(b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for byte in ONE:
            connection.send(b"1\r\n" + bytes([byte]) + b"\r\n")
        connection.send(b"0\r\n\r\n")
        assert connection.answer().status == 200


@pytest.mark.parametrize("pieces", [1, 50])
def test_headers_that_are_too_large_are_refused(begin: Begin, pieces: int) -> None:
    host = begin(max_header_bytes=4_096)
    data = request("GET", "/health", b"", *(f"X-{number}: {'y' * 90}" for number in range(60)))
    assert len(data) > 5_000
    with RawConnection(host.port) as connection:
        step = -(-len(data) // pieces)
        try:
            for at in range(0, len(data), step):
                connection.send(data[at : at + step])
        except OSError:
            pass
        refused(connection.answer(), 400, "invalid_request")
        assert connection.closed_by_peer()


def test_headers_that_fit_are_taken(begin: Begin) -> None:
    host = begin(max_header_bytes=4_096)
    assert ask(host.port, request("GET", "/health", b"", *(f"X-{n}: {'y' * 90}" for n in range(30)))).status == 200


def test_headers_that_never_end_are_answered_408(begin: Begin) -> None:
    host = begin(header_timeout_ms=300)
    with RawConnection(host.port) as connection:
        connection.send(b"GET /health HTTP/1.1\r\nHost:")
        refused(connection.answer(), 408, "request_timeout")
        assert connection.closed_by_peer()


def test_a_connection_on_which_nothing_comes_is_closed(begin: Begin) -> None:
    host = begin(header_timeout_ms=300)
    with RawConnection(host.port) as connection:
        assert connection.closed_by_peer()


@pytest.mark.parametrize("path", ["/topics/t/messages", "/topics"])
def test_a_body_that_never_ends_is_answered_408_and_nothing_is_stored(begin: Begin, path: str) -> None:
    host = begin(body_timeout_ms=300)
    with RawConnection(host.port) as connection:
        connection.send(request("POST", path, ONE)[:-3])
        refused(connection.answer(), 408, "request_timeout")
        assert connection.closed_by_peer()
    assert stored(host) == 0


@pytest.mark.parametrize("path", ["/topics/t/messages", "/topics", "/topics/t/partitions/0/messages"])
def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(
    begin: Begin, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = begin()
    with RawConnection(host.port) as connection:
        connection.send(request("POST", path, ONE, kind="application/octet-stream")[:-3])
        until(lambda: host.server.server_state.tasks)
    until(lambda: not host.server.server_state.tasks)
    assert stored(host) == 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_request_that_is_whole_but_for_its_last_chunk_is_not_carried_out(begin: Begin) -> None:
    host = begin()
    with RawConnection(host.port) as connection:
        connection.send(b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send(b"%x\r\n%b\r\n" % (len(ONE), ONE))
        until(lambda: host.server.server_state.tasks)
    until(lambda: not host.server.server_state.tasks)
    assert stored(host) == 0


def test_a_slow_answer_is_not_cut_short_by_the_deadlines(begin: Begin) -> None:
    host = begin(header_timeout_ms=100, body_timeout_ms=100)
    answer = ask(host.port, request("GET", "/topics/t/partitions/0/messages?wait=1500ms"))
    assert (answer.status, answer.json["messages"]) == (200, [])


def test_one_connection_more_than_allowed_is_answered_503(begin: Begin) -> None:
    host = begin(max_connections=3)
    until(lambda: not host.server.server_state.connections)
    with ExitStack() as stack:
        open_ones = [stack.enter_context(RawConnection(host.port)) for _ in range(3)]
        for connection in open_ones:
            connection.send(request("GET", "/health"))
            assert connection.answer().status == 200
        with RawConnection(host.port) as extra:
            extra.send(request("GET", "/topics"))
            retry_later(extra.answer())
            assert extra.closed_by_peer()
        open_ones[0].close()
        until(lambda: len(host.server.server_state.connections) < 3)
        assert ask(host.port, request("GET", "/health")).status == 200


def test_however_many_connections_there_are_the_health_can_be_asked_for(begin: Begin) -> None:
    host = begin(max_connections=2)
    until(lambda: not host.server.server_state.connections)
    with ExitStack() as stack:
        # Far more than are kept for this: those who are idle push each other out.
        for _ in range(200):
            stack.enter_context(RawConnection(host.port))
        for path in ("/livez", "/readyz", "/v1/healthz?x=1"):
            with RawConnection(host.port) as probe:
                probe.send(request("GET", path))
                answer = probe.answer()
                assert answer.status == (400 if "?" in path else 200)
                assert answer.headers["connection"] == "close"
                assert probe.closed_by_peer()
        assert len(host.server.server_state.connections) < 100


def test_more_requests_at_once_than_allowed_are_answered_503(begin: Begin) -> None:
    disk = FaultyFiles()
    host = begin(disk, max_concurrent_requests=2)
    with ThreadPoolExecutor(2) as pool, disk.hanging(of_topic("t")):
        waiting = [pool.submit(ask, host.port, request("POST", "/topics/t/messages", ONE)) for _ in range(2)]
        until(lambda: host.broker.topic("t").partition(0).log.end_offset == 2)
        retry_later(ask(host.port, request("POST", "/topics/t/messages", ONE)))
        retry_later(ask(host.port, request("GET", "/topics")))
    assert [each.result().status for each in waiting] == [200, 200]
    assert ask(host.port, request("GET", "/topics")).status == 200
    assert stored(host) == 2


def test_reads_that_wait_leave_room_for_others(begin: Begin) -> None:
    host = begin(max_concurrent_requests=1)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(ask, host.port, request("GET", LONG_WAIT)) for _ in range(3)]
        until(lambda: host.waiting_readers("t", 0) == 3)
        assert ask(host.port, request("POST", "/topics/t/messages", ONE)).status == 200
        assert [len(each.result().json["messages"]) for each in waiting] == [1, 1, 1]


def test_more_waiting_reads_than_allowed_are_answered_503(begin: Begin) -> None:
    host = begin(max_waiting_reads=2)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(ask, host.port, request("GET", LONG_WAIT)) for _ in range(2)]
        until(lambda: host.waiting_readers("t", 0) == 2)
        retry_later(ask(host.port, request("GET", LONG_WAIT)))
        frames = request("GET", LONG_WAIT, b"", "Accept: application/octet-stream")
        retry_later(ask(host.port, frames))
        assert ask(host.port, request("POST", "/topics/t/messages", ONE)).status == 200
        assert [each.result().status for each in waiting] == [200, 200]


@pytest.mark.parametrize("accept", ["application/json", "application/octet-stream"])
def test_a_client_that_leaves_gives_up_its_place_among_those_who_wait(begin: Begin, accept: str) -> None:
    host = begin(max_waiting_reads=1)
    with RawConnection(host.port) as impatient:
        impatient.send(request("GET", LONG_WAIT, b"", f"Accept: {accept}"))
        until(lambda: host.waiting_readers("t", 0) == 1)
    until(lambda: host.waiting_readers("t", 0) == 0)
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(ask, host.port, request("GET", LONG_WAIT))
        until(lambda: host.waiting_readers("t", 0) == 1)
        assert ask(host.port, request("POST", "/topics/t/messages", ONE)).status == 200
        assert patient.result().status == 200


def test_bodies_together_are_bounded_by_memory(begin: Begin) -> None:
    host = begin(max_request_memory_bytes=1 << 20)
    announced = b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 700000\r\n\r\n"
    admission: Any = host.server.config.app
    with RawConnection(host.port) as first, RawConnection(host.port) as second:
        first.send(announced + b"x" * 699_999)
        until(lambda: admission.load.body_bytes == 699_999)
        second.send(announced + b"x" * 699_999)
        retry_later(second.answer())
    until(lambda: not host.server.server_state.tasks)
    assert admission.load.body_bytes == 0
    assert ask(host.port, request("POST", "/topics/t/messages", ONE)).status == 200


def test_bodies_that_are_announced_and_do_not_come_take_no_memory_from_others(begin: Begin) -> None:
    host = begin(max_request_memory_bytes=1 << 20)
    announced = b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(RawConnection(host.port)).send(announced)
        until(lambda: len(host.server.server_state.tasks) == 8)
        assert ask(host.port, request("POST", "/topics/t/messages", ONE)).status == 200


@pytest.fixture
def large(begin: Begin) -> Host:
    """With a message that is more than the system's buffers of a connection hold."""
    host = begin(max_unread_bytes=8 << 20, write_timeout_ms=3_600_000)
    body = json.dumps({"messages": [{"value": "x" * (15 << 20)}]}).encode()
    assert ask(host.port, request("POST", "/topics/t/messages", body)).status == 200
    return host


def test_answers_that_nobody_reads_are_bounded_together_and_do_not_last(large: Host) -> None:
    crowd = large.server.crowd
    with ExitStack() as stack:
        silent = [stack.enter_context(RawConnection(large.port)) for _ in range(20)]
        for connection in silent:
            connection.send(request("GET", "/topics/t/partitions/0/messages"))
        until(lambda: crowd.is_unread_full)
        # What is beyond the bound is at most one answer.
        assert crowd.unread_bytes < (8 << 20) + (16 << 20)
        retry_later(ask(large.port, request("GET", "/topics")))
        assert ask(large.port, request("GET", "/livez")).status == 200
        # Long before the hour is over that a client has otherwise.
        until(lambda: not crowd.is_unread_full)
        assert ask(large.port, request("GET", "/topics")).status == 200
    until(lambda: crowd.unread_bytes == 0)


def test_who_does_not_read_an_answer_has_no_other_one_made(large: Host) -> None:
    asked = request("GET", "/topics/t/partitions/0/messages")
    with RawConnection(large.port) as connection:
        connection.send(asked)
        until(lambda: any(each.flow.write_paused for each in list(large.server.server_state.connections)))
        connection.send(asked)
        (served,) = large.server.server_state.connections
        until(lambda: served._held is not None)
        assert not large.server.server_state.tasks
        assert len(connection.answer().json["messages"]) == 1
        assert len(connection.answer().json["messages"]) == 1


def test_a_backup_that_ends_early_is_cut_off_and_neither_a_success_nor_a_defect(
    large: Host, caplog: pytest.LogCaptureFixture
) -> None:
    with RawConnection(large.port) as connection:
        connection.send(request("GET", "/admin/backup"))
        assert connection.answer().status == 200
        large.thread.run(_now(large.broker.stop_accepting))
        assert not connection.drain().endswith(b"0\r\n\r\n")
    until(lambda: not large.server.server_state.tasks)
    (line,) = [each.getMessage() for each in caplog.records if "cut short" in each.getMessage()]
    assert "method='GET' path='/admin/backup'" in line
    assert "the broker is stopping" in line
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR" or each.exc_info] == []
    figures = ask(large.port, request("GET", "/metrics")).body.decode()
    assert re.findall(r'goqueue_requests_total.*/admin/backup",code="(\d+)"} (\d+)', figures) == [("503", "1")]


@pytest.mark.parametrize("header", ["Connection: close", "Connection: keep-alive"])
def test_a_client_that_does_not_read_its_answer_is_cut_off(begin: Begin, header: str) -> None:
    host = begin(write_timeout_ms=300, keep_alive_ms=1_000)
    large = json.dumps({"messages": [{"value": "x" * (15 << 20)}]}).encode()
    assert ask(host.port, request("POST", "/topics/t/messages", large)).status == 200
    connections = host.server.server_state.connections
    until(lambda: not connections)
    with RawConnection(host.port) as connection:
        connection.send(request("GET", "/topics/t/partitions/0/messages?encoding=base64", b"", header))
        until(lambda: any(each.transport.get_write_buffer_size() for each in list(connections)))
        until(lambda: not connections, within_s=10)


@pytest.mark.parametrize("value", ["", "x" * 100])
@pytest.mark.parametrize("path", ["/topics/t/messages", "/v1/topics/t/messages/"])
def test_more_messages_in_a_request_than_allowed_are_refused(begin: Begin, path: str, value: str) -> None:
    host = begin(max_publish_messages=10)
    messages = [{"value": value, "partition": 0}] * 11
    for number, status in ((11, 400), (10, 200)):
        answer = ask(host.port, request("POST", path, json.dumps({"messages": messages[:number]}).encode()))
        assert answer.status == status
    assert stored(host) == 10
