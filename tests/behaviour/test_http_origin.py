"""Pages in a browser: the broker's own may use it; other sites' may not, under whatever name they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from behaviour.host import Host, config_for
from behaviour.raw import Answer, ask

ONE = json.dumps({"messages": [{"value": "v"}]}).encode()
Begin = Callable[..., Host]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    started: list[Host] = []

    def start(**http: Any) -> Host:
        host = Host(config_for(tmp_path, http=http), http=True)
        started.append(host)
        assert send(host, "POST", "/topics", "localhost", body=b'{"name": "t", "num_partitions": 1}').status == 201
        return host

    yield start
    for host in started:
        host.stop()


def send(host: Host, method: str, path: str, name: str, *headers: str, body: bytes = b"") -> Answer:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {name}", *headers, f"Content-Length: {len(body)}"]
    return ask(host.port, "\r\n".join([*lines, "", ""]).encode() + body)


def code(answer: Answer) -> str:
    return str(answer.json["code"]) if answer.status == 403 else ""


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/topics/t/messages", ONE),
        ("GET", "/topics/t/partitions/0/messages", b""),
        ("GET", "/admin/backup", b""),
        ("GET", "/livez", b""),
        ("DELETE", "/topics/t", b""),
        ("GET", "/subjects", b""),
        ("GET", "/schemas/ids/1", b""),
        ("GET", "/nope", b""),
    ],
)
def test_a_page_that_points_its_name_here_gets_nothing(begin: Begin, method: str, path: str, body: bytes) -> None:
    host = begin()
    own = ("Origin: http://evil.example:8080", "Sec-Fetch-Site: same-origin")
    answer = send(host, method, path, "evil.example:8080", *own, body=body)
    assert code(answer) == "host_not_allowed"
    # Someone who reaches the broker by that name knows what to do.
    assert "'evil.example:8080'" in answer.json["error"]
    assert "http.allowed_hosts" in answer.json["error"]
    assert host.broker.topic("t").partition(0).high_watermark == 0


@pytest.mark.parametrize(
    "name",
    [
        "localhost", "LOCALHOST:9", "localhost.", "app.localhost:1", "127.0.0.1:8080", "127.9.9.9", "[::1]",
        "[::1]:8080", "10.1.2.3:8080", "0.0.0.0", "[fe80::1]:80", "mq.internal:8080", "MQ.Internal", "a.example.org",
        "b.a.example.org:1",
    ],
)  # fmt: skip
def test_loopback_addresses_and_names_that_are_set_are_the_brokers_own(begin: Begin, name: str) -> None:
    host = begin(allowed_hosts="mq.internal, .example.org")
    assert send(host, "GET", "/topics", name).status == 200


@pytest.mark.parametrize(
    "name",
    [
        "", "evil.example", "localhost.evil.example", "notlocalhost", "127.0.0.1.evil.example", "example.org", ":80",
        "127.0.0.1@evil.example", "notexample.org", "mq.internal.evil.example", "1.2.3", "0x7f.1", "[::1",
        "localhost:80:80",
    ],
)  # fmt: skip
def test_any_other_name_is_not_however_much_it_looks_like_one(begin: Begin, name: str) -> None:
    host = begin(allowed_hosts="mq.internal, .example.org")
    assert code(send(host, "GET", "/topics", name)) == "host_not_allowed"


def test_every_name_can_be_allowed(begin: Begin) -> None:
    assert send(begin(allowed_hosts="*"), "GET", "/topics", "evil.example").status == 200


def test_only_names_of_a_usual_length_are_remembered(begin: Begin) -> None:
    host = begin()
    for length in (255, 256, 60_000):
        name = ".localhost".rjust(length, "a")
        assert send(host, "GET", "/topics", name).status == 200
    admission: Any = host.server.config.app
    assert {len(each) for each in admission._origins._known} == {len("localhost"), 255}


def test_the_name_that_is_listened_on_is_the_brokers_own(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no other name that every machine has.
    host = begin(host="localhost")
    assert send(host, "GET", "/topics", f"localhost:{host.port}").status == 200


WORK = [
    "/admin/backup",
    "/groups/g/poll?member_id=m",
    "/topics/t/partitions/0/messages?wait=30s",
    "/metrics",
    "/topics",
]


@pytest.mark.parametrize("path", WORK)
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "navigate"])
def test_another_sites_page_cannot_make_the_broker_work_by_reading(
    begin: Begin, path: str, site: str, mode: str
) -> None:
    fetch = (f"Sec-Fetch-Site: {site}", f"Sec-Fetch-Mode: {mode}", "Sec-Fetch-Dest: document")
    assert code(send(begin(), "GET", path, "localhost", *fetch)) == "cross_origin"


@pytest.mark.parametrize("path", WORK)
def test_a_read_whose_origin_is_another_site_is_refused(begin: Begin, path: str) -> None:
    host = begin()
    for origin in ("http://evil.example", "null", "http://localhost:81"):
        assert code(send(host, "GET", path, "localhost:80", f"Origin: {origin}")) == "cross_origin"


def test_the_brokers_own_page_and_a_person_may_read_and_write(begin: Begin) -> None:
    host = begin()
    for site in ("same-origin", "none"):
        fetch = ("Origin: http://localhost:80", f"Sec-Fetch-Site: {site}")
        assert send(host, "GET", "/topics", "localhost:80", *fetch).status == 200
        assert send(host, "POST", "/topics/t/messages", "localhost:80", *fetch, body=ONE).status == 200


def test_another_site_may_link_to_the_page_and_not_put_it_into_a_frame(begin: Begin) -> None:
    host = begin()
    link = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    frame = (*link[:2], "Sec-Fetch-Dest: iframe")
    for path in ("/docs", "/v1/docs"):
        answer = send(host, "GET", path, "localhost", *link)
        assert answer.status == 200
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert code(send(host, "GET", path, "localhost", *frame)) == "cross_origin"
