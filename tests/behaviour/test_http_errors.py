"""Every refusal over HTTP has one shape and the right status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from behaviour.host import Host, config_for
from behaviour.raw import RawConnection, ask, request
from behaviour.waiting import until

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("http")), http=True)
    with httpx.Client(base_url=host.url, trust_env=False) as client:
        client.post("/topics", json={"name": "t", "num_partitions": 1})
    yield host
    host.stop()


@pytest.fixture(scope="module")
def client(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield client


def check(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert {"error", "code", "retriable"} <= body.keys()
    assert body["code"] == code
    assert isinstance(body["retriable"], bool)
    assert body["error"]
    return dict(body)


@pytest.mark.parametrize("path", ["/nope", "/v1/nope", "/v1/v1/topics", "/topics/a/b", "/v2/topics"])
def test_an_unknown_path_is_not_found(client: httpx.Client, path: str) -> None:
    check(client.get(path), 404, "not_found")


@pytest.mark.parametrize("path", ["/health", "/topics", "/topics/t/messages", "/topics/t/partitions/0/messages"])
def test_a_query_parameter_that_does_not_exist_is_refused(client: httpx.Client, path: str) -> None:
    assert "no such parameter: 'ofset'" in check(client.get(f"{path}?ofset=1"), 400, "invalid_request")["error"]


def test_a_misspelt_query_parameter_is_told_the_right_one(client: httpx.Client) -> None:
    answer = client.get("/topics/t/partitions/0/messages?ofset=1")
    assert "did you mean 'offset'" in check(answer, 400, "invalid_request")["error"]


def test_a_misspelt_topic_is_told_the_right_one(client: httpx.Client) -> None:
    client.post("/topics", json={"name": "invoices"})
    assert "did you mean 'invoices'" in check(client.get("/topics/invoces"), 404, "topic_not_found")["error"]


def test_a_page_of_another_site_cannot_publish_through_its_visitors_browser(client: httpx.Client) -> None:
    body = json.dumps({"name": "planted"})
    foreign = {"Origin": "https://elsewhere.example", "Content-Type": "text/plain"}
    check(client.post("/topics", content=body, headers=foreign), 403, "cross_origin")
    assert "planted" not in client.get("/topics").json()["topics"]


def test_the_brokers_own_page_may_publish(client: httpx.Client) -> None:
    own = {"Origin": str(client.base_url).rstrip("/")}
    assert client.post("/topics", json={"name": "from-our-own-page"}, headers=own).status_code == 201


@pytest.mark.parametrize(("method", "path"), [("PUT", "/topics"), ("DELETE", "/health"), ("POST", "/topics/t")])
def test_a_method_that_a_path_does_not_have_is_not_allowed(client: httpx.Client, method: str, path: str) -> None:
    answer = client.request(method, path)
    check(answer, 405, "method_not_allowed")
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b"\xff",
        b"{}",
        b'{"name": 1}',
        b'{"name": null}',
        b'{"name": "\\ud800"}',
    ],
)
def test_a_body_that_does_not_fit_is_refused(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/topics", content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] in {"invalid_request", "invalid_topic_name"}


def test_a_body_that_is_missing_is_named_as_such(client: httpx.Client) -> None:
    assert "body" in check(client.post("/topics"), 400, "invalid_request")["error"]


def test_deeply_nested_json_is_refused_and_not_fatal(client: httpx.Client) -> None:
    body = b'{"name": "n", "settings": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    assert client.post("/topics", content=body, headers=JSON).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/topics", {"name": "n", "partitons": 3}, "partitons"),
        ("/topics/t/messages", {"messages": [{"value": "v", "prio": 1}]}, "prio"),
        ("/topics/t/messages", {"messages": [{"value": "v"}], "more": 1}, "more"),
    ],
)
def test_an_unknown_field_is_refused_and_named(client: httpx.Client, path: str, body: Any, field: str) -> None:
    assert field in check(client.post(path, json=body), 400, "invalid_request")["error"]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"key": "k"},
        {"value": 1},
        {"value": "v", "key": 1},
        {"value": "v", "headers": {"a": 1}},
        {"value": "v", "encoding": "rot13"},
        {"value": "v", "partition": "0"},
        {"value": "v", "timestamp": 5},
    ],
)
def test_a_message_of_the_wrong_types_refuses_the_request(client: httpx.Client, message: Any) -> None:
    check(client.post("/topics/t/messages", json={"messages": [message]}), 400, "invalid_request")


def test_a_publish_of_nothing_is_refused(client: httpx.Client) -> None:
    check(client.post("/topics/t/messages", json={"messages": []}), 400, "invalid_request")


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ({"value": "!", "encoding": "base64"}, 400, "invalid_message"),
        ({"value": "", "key": "=", "encoding": "base64"}, 400, "invalid_message"),
        ({"value": "v", "timestamp": "yesterday"}, 400, "invalid_request"),
        ({"value": "v", "timestamp": "2024-01-01T00:00:00"}, 400, "invalid_request"),
        ({"value": "v", "timestamp": "2200-01-01T00:00:00Z"}, 400, "timestamp_out_of_range"),
        ({"value": "v", "priority": "urgent"}, 400, "invalid_message"),
        ({"value": "v", "priority": 5}, 400, "invalid_message"),
        ({"value": "v", "delay": "soon"}, 400, "invalid_request"),
        ({"value": "v", "delay": "5s", "deliverAt": "2030-01-01T00:00:00Z"}, 400, "invalid_message"),
        ({"value": "v", "partition": 7}, 404, "partition_not_found"),
        ({"value": None}, 400, "invalid_message"),
        ({"value": "v", "headers": {"goqueue-x": "1"}}, 400, "invalid_message"),
        ({"value": "v", "key": "k" * 70_000}, 413, "message_too_large"),
    ],
)
def test_a_publish_of_which_nothing_is_stored_has_the_status_of_its_error(
    client: httpx.Client, message: Any, status: int, code: str
) -> None:
    body = check(client.post("/topics/t/messages", json={"messages": [message]}), status, code)
    assert [each["code"] for each in body["results"]] == [code]


def test_half_of_a_surrogate_pair_is_refused(client: httpx.Client) -> None:
    for field in ('"value": "\\ud800"', '"value": "", "key": "\\udc00"', '"value": "", "headers": {"\\ud800": ""}'):
        body = b'{"messages": [{' + field.encode() + b"}]}"
        assert client.post("/topics/t/messages", content=body, headers=JSON).status_code == 400


def test_numbers_beyond_64_bits_are_refused_in_a_few_words(client: httpx.Client) -> None:
    for digits in (20, 400, 4_200, 5_000):
        number = "9" * digits
        for field in ('"partition": ', '"priority": '):
            body = f'{{"messages": [{{"value": "v", {field}{number}}}]}}'
            answer = client.post("/topics/t/messages", content=body, headers=JSON)
            assert answer.status_code in {400, 404}, answer.text
            assert len(answer.content) < 1_000
        for path in (f"/topics/t/partitions/{number}/messages", f"/topics/t/messages?partition={number}"):
            assert client.get(path).status_code in {400, 404}
        for query in ("offset", "limit", "max_bytes"):
            answer = client.get(f"/topics/t/partitions/0/messages?{query}={number}")
            assert answer.status_code == 400
            assert len(answer.content) < 1_000


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1", "offset=x", "offset=1.5", "offset=", "limit=0", "limit=-1", "limit=10001", "limit=x",
        "max_bytes=0", "max_bytes=99999999999", "wait=5", "wait=-1s", "wait=1h", "wait=", "from_time=now",
        "from_time=2024-01-01",
        "encoding=rot13", "offset=0&from_time=2024-01-01T00:00:00Z", "from_time=9999-01-01T00:00:00Z",
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_answered_is_refused(client: httpx.Client, query: str) -> None:
    check(client.get(f"/topics/t/partitions/0/messages?{query}"), 400, "invalid_request")


def test_waiting_needs_a_partition(client: httpx.Client) -> None:
    check(client.get("/topics/t/messages?wait=1s"), 400, "invalid_request")


def test_an_offset_that_is_not_there_yet_is_out_of_range(client: httpx.Client) -> None:
    check(client.get("/topics/t/partitions/0/messages?offset=999"), 416, "offset_out_of_range")


def test_more_messages_than_one_publish_may_carry_are_refused(client: httpx.Client) -> None:
    body = json.dumps({"messages": [{"value": ""}] * 10_001})
    check(client.post("/topics/t/messages", content=body, headers=JSON), 400, "invalid_request")
    assert client.get("/topics/t/partitions/0/messages").json()["messages"] == []


def test_frames_want_their_content_type(client: httpx.Client) -> None:
    for headers in (JSON, {}):
        answer = client.post("/topics/t/partitions/0/messages", content=b"x", headers=headers)
        check(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_not_http_is_answered_400_in_json_and_closed(host: Host, data: bytes) -> None:
    with RawConnection(host.port) as connection:
        connection.send(data)
        connection.finish_sending()
        answer = connection.answer()
        assert answer.status in {400, 404, 405}
        assert answer.json["code"] in {"invalid_request", "not_found", "method_not_allowed"}
    assert ask(host.port, request("GET", "/health")).status == 200


def test_pipelined_requests_are_answered_in_order(host: Host) -> None:
    bodies = [json.dumps({"messages": [{"value": f"{number}"}]}).encode() for number in range(20)]
    with RawConnection(host.port) as connection:
        connection.send(request("POST", "/topics", b'{"name": "pipelined", "num_partitions": 1}'))
        assert connection.answer().status == 201
        connection.send(b"".join(request("POST", "/topics/pipelined/messages", body) for body in bodies))
        offsets = [connection.answer().json["results"][0]["offset"] for _ in bodies]
        assert offsets == list(range(20))
        connection.send(request("GET", "/topics/pipelined/partitions/0/messages") + request("GET", "/version"))
        assert [each["value"] for each in connection.answer().json["messages"]] == [str(at) for at in range(20)]
        assert "version" in connection.answer().json


def test_a_client_that_offers_http_2_is_answered_in_http_1(host: Host) -> None:
    """Java's client does, on every first request; the connection must go on to work."""
    upgrade = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    )
    with RawConnection(host.port) as connection:
        body = b'{"messages": [{"value": "v", "partition": 0}]}'
        for _ in range(2):
            connection.send(request("POST", "/topics/t/messages", body, *upgrade))
            assert connection.answer().status == 200
            connection.send(request("GET", "/health", b"", *upgrade))
            assert connection.answer().status == 200


def test_expect_100_continue_is_answered(host: Host) -> None:
    body = b'{"messages": [{"value": "v", "partition": 0}]}'
    with RawConnection(host.port) as connection:
        connection.send(request("POST", "/topics/t/messages", body, "Expect: 100-continue")[: -len(body)])
        assert connection.answer().status == 100
        connection.send(body)
        assert connection.answer().status == 200


@pytest.mark.parametrize("path", ["/topics", "/topics/t/messages"])
def test_json_that_is_not_utf_8_is_refused(client: httpx.Client, path: str) -> None:
    body = b'{"name": "\x8b", "messages": [{"value": "\x8b"}]}'
    check(client.post(path, content=body, headers=JSON), 400, "invalid_request")


def test_garbage_behind_a_request_that_is_still_being_answered_is_no_defect(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    wait = request("GET", "/topics/t/partitions/0/messages?offset=999&wait=50ms")
    with RawConnection(host.port) as connection:
        connection.send(request("POST", "/topics", b'{"name": "behind"}') + wait + b"\x00garbage\r\n\r\n")
        connection.drain()
    until(lambda: not host.server.server_state.tasks)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(("method", "path"), [("POST", "/topics"), ("PATCH", "/topics/t")])
def test_far_too_many_settings_are_refused_in_one_sentence(client: httpx.Client, method: str, path: str) -> None:
    body: dict[str, Any] = {"settings": {f"color{number}": 1 for number in range(50_000)}}
    if method == "POST":
        body["name"] = "many"
    answer = check(client.request(method, path, json=body), 400, "invalid_settings")
    assert answer["error"] == "there are 50000 settings; at most 100 are looked at"


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/topics"), ("PUT", "/groups/g"), ("POST", "/groups/g/join"), ("POST", "/topics/t/redrive")],
)
def test_a_body_that_carries_no_messages_is_small(client: httpx.Client, method: str, path: str) -> None:
    body = b'{"settings": {"kind": "%b"}}' % (b"x" * (1 << 20))
    for sent in (body, iter([body])):
        check(client.request(method, path, content=sent, headers=JSON), 413, "body_too_large")
    assert client.get("/livez").status_code == 200


def test_a_body_with_as_many_receipts_as_are_allowed_fits(client: httpx.Client) -> None:
    answer = client.post("/messages/ack", json={"receipt_handles": ["x" * 1_024] * 10_000})
    assert answer.json()["acknowledged"] is False
    body = {"receipt_handles": ["x" * 2_048] * 10_000}
    check(client.post("/messages/ack", json=body), 413, "body_too_large")
