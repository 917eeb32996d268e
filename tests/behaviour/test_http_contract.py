"""The paths and field names that clients know, at the root and under /v1."""

from __future__ import annotations

import re
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import goqueue
from behaviour.host import Host, config_for

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("http")), http=True)
    yield host
    host.stop()


@pytest.fixture(params=["", "/v1"])
def client(request: pytest.FixtureRequest, host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url + request.param, timeout=30, trust_env=False) as client:
        yield client


def get(client: httpx.Client, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


@pytest.fixture
def topic(client: httpx.Client, name: str) -> str:
    answer = client.post("/topics", json={"name": name, "num_partitions": 2, "retention_hours": 3})
    assert (answer.status_code, answer.json()) == (201, {"name": name, "partitions": 2, "created": True})
    return name


def test_health(client: httpx.Client) -> None:
    body = get(client, "/health")
    assert body.keys() == {"status", "timestamp", "problems"}
    assert body["status"] == "ok"
    assert RFC_3339.fullmatch(body["timestamp"])


@pytest.mark.parametrize("path", ["/healthz", "/livez"])
def test_liveness(client: httpx.Client, path: str) -> None:
    body = get(client, path)
    assert body.keys() == {"status", "timestamp", "uptime", "message"}
    assert body["status"] == "pass"
    assert RFC_3339.fullmatch(body["timestamp"])


def test_readiness(client: httpx.Client) -> None:
    body = get(client, "/readyz")
    assert body.keys() == {"status", "timestamp", "uptime", "message"}
    assert body["status"] == "pass"


def test_readiness_in_full(client: httpx.Client) -> None:
    body = get(client, "/readyz", verbose="true")
    assert body["broker"].keys() == {"node_id", "topic_count", "total_size"}
    for name, check in body["checks"].items():
        assert check.keys() == {"status", "message", "latency"}
        # Whether the loop was late lately depends on what else the machine does.
        assert check["status"] == "pass" or name == "event_loop"


def test_version(client: httpx.Client) -> None:
    body = get(client, "/version")
    assert {"version", "git_commit", "build_time", "go_version"} <= body.keys()
    assert body["version"] == goqueue.__version__


def test_stats(client: httpx.Client, topic: str) -> None:
    client.post(f"/topics/{topic}/messages", json={"messages": [{"value": "v"}]})
    body = get(client, "/stats")
    assert {"node_id", "uptime", "topics", "total_size_bytes", "topic_stats"} <= body.keys()
    assert body["topics"] == len(body["topic_stats"])
    assert body["topic_stats"][topic]["messages"] == 1
    assert body["total_size_bytes"] == sum(each["size_bytes"] for each in body["topic_stats"].values())


def test_topics_are_listed(client: httpx.Client, topic: str) -> None:
    body = get(client, "/topics")
    assert body.keys() == {"topics"}
    assert topic in body["topics"]


def test_a_topic_is_described(client: httpx.Client, topic: str) -> None:
    client.post(f"/topics/{topic}/messages", json={"messages": [{"value": "v", "partition": 1}]})
    body = get(client, f"/topics/{topic}")
    assert {"name", "partitions", "total_messages", "total_size_bytes", "partition_offsets"} <= body.keys()
    assert (body["name"], body["partitions"], body["total_messages"]) == (topic, 2, 1)
    assert body["partition_offsets"] == {
        "0": {"earliest": 0, "latest": 0, "last_stable_offset": 0},
        "1": {"earliest": 0, "latest": 1, "last_stable_offset": 1},
    }
    assert body["total_size_bytes"] > 0
    assert body["settings"]["retention_ms"] == 3 * 3_600_000


def test_a_topic_is_deleted(client: httpx.Client, topic: str) -> None:
    answer = client.delete(f"/topics/{topic}")
    assert (answer.status_code, answer.json()) == (200, {"deleted": True, "name": topic})
    assert client.delete(f"/topics/{topic}").status_code == 404


def test_a_topic_that_exists_is_a_conflict(client: httpx.Client, topic: str) -> None:
    answer = client.post("/topics", json={"name": topic})
    assert answer.status_code == 409
    assert answer.json().keys() == {"error", "code", "retriable"}


def test_a_setting_under_both_of_its_names_is_refused(client: httpx.Client, name: str) -> None:
    body = {"name": name, "num_partitions": 2, "settings": {"partitions": 2}}
    assert client.post("/topics", json=body).json()["code"] == "invalid_settings"


def test_publishing_answers_with_the_names_of_the_contract(client: httpx.Client, topic: str) -> None:
    messages = [{"key": "k", "value": "v", "priority": "high"}, {"value": "w", "partition": 1}]
    answer = client.post(f"/topics/{topic}/messages", json={"messages": messages})
    assert answer.status_code == 200
    first, second = answer.json()["results"]
    assert first.keys() == {"partition", "offset", "priority", "delayed"}
    assert (first["priority"], first["delayed"]) == ("high", False)
    assert second["partition"] == 1


def test_reading_answers_with_the_names_of_the_contract(client: httpx.Client, topic: str) -> None:
    before = time.time_ns()
    client.post(f"/topics/{topic}/messages", json={"messages": [{"key": "k", "value": "v", "partition": 0}]})
    body = get(client, f"/topics/{topic}/partitions/0/messages", offset=0, limit=10)
    assert {"messages", "next_offset"} <= body.keys()
    (message,) = body["messages"]
    assert {"offset", "timestamp", "key", "value", "priority"} <= message.keys()
    assert (message["offset"], message["key"], message["value"], message["priority"]) == (0, "k", "v", "normal")
    assert RFC_3339.fullmatch(message["timestamp"])
    assert int(time.strftime("%Y", time.gmtime(before // 10**9))) == int(message["timestamp"][:4])
    assert body["next_offset"] == 1


def test_the_notes_own_form_of_reading_one_partition(client: httpx.Client, topic: str) -> None:
    client.post(f"/topics/{topic}/messages", json={"messages": [{"value": c, "partition": 1} for c in "abc"]})
    body = get(client, f"/topics/{topic}/messages", partition=1, offset=1, limit=1)
    assert [each["value"] for each in body["messages"]] == ["b"]
    assert body["next_offset"] == 2
    assert body["next_offsets"] == {"1": 2}


def test_the_notes_own_form_of_reading_all_partitions(client: httpx.Client, topic: str) -> None:
    messages = [{"value": f"{partition}", "partition": partition} for partition in (0, 1, 1)]
    client.post(f"/topics/{topic}/messages", json={"messages": messages})
    body = get(client, f"/topics/{topic}/messages")
    assert [(each["partition"], each["offset"]) for each in body["messages"]] == [(0, 0), (1, 0), (1, 1)]
    assert body["next_offsets"] == {"0": 1, "1": 2}


def test_reading_all_partitions_finds_the_only_message_even_with_a_limit_of_one(
    client: httpx.Client, topic: str
) -> None:
    client.post(f"/topics/{topic}/messages", json={"messages": [{"value": "only", "partition": 0}]})
    body = get(client, f"/topics/{topic}/messages", limit=1)
    assert [each["value"] for each in body["messages"]] == ["only"]
    assert body["next_offsets"] == {"0": 1, "1": 0}


def test_reading_all_partitions_answers_with_no_more_than_the_limit(client: httpx.Client, topic: str) -> None:
    messages = [{"value": "v", "partition": at % 2} for at in range(20)]
    client.post(f"/topics/{topic}/messages", json={"messages": messages})
    body = get(client, f"/topics/{topic}/messages", limit=5)
    assert len(body["messages"]) == 5
    assert sum(body["next_offsets"].values()) == 5


def test_text_is_the_default_encoding_both_ways(client: httpx.Client, topic: str) -> None:
    message = {"key": "ключ", "value": "Grüße 🎉 \u0000", "headers": {"h": "ü"}, "partition": 0}
    client.post(f"/topics/{topic}/messages", json={"messages": [message]})
    (got,) = get(client, f"/topics/{topic}/partitions/0/messages")["messages"]
    assert got["encoding"] == "text"
    assert (got["key"], got["value"], got["headers"]) == ("ключ", "Grüße 🎉 \u0000", {"h": "ü"})


def test_bytes_that_are_not_text_come_back_as_base64(client: httpx.Client, topic: str) -> None:
    raw = b64encode(b"\xff\xfe").decode()
    message = {"key": b64encode(b"k").decode(), "value": raw, "encoding": "base64", "partition": 0}
    client.post(f"/topics/{topic}/messages", json={"messages": [message]})
    (got,) = get(client, f"/topics/{topic}/partitions/0/messages")["messages"]
    assert (got["encoding"], got["value"], b64decode(got["key"])) == ("base64", raw, b"k")


def test_base64_that_happens_to_be_text_comes_back_as_text_unless_asked_for(client: httpx.Client, topic: str) -> None:
    message = {"value": b64encode(b"plain").decode(), "encoding": "base64", "partition": 0}
    client.post(f"/topics/{topic}/messages", json={"messages": [message]})
    path = f"/topics/{topic}/partitions/0/messages"
    assert get(client, path)["messages"][0]["value"] == "plain"
    (got,) = get(client, path, encoding="base64")["messages"]
    assert (got["encoding"], b64decode(got["value"])) == ("base64", b"plain")


def test_a_header_name_may_repeat(client: httpx.Client, topic: str) -> None:
    message = {"value": "v", "headers": {"one": "1", "many": ["a", "b", "a"], "none": []}, "partition": 0}
    client.post(f"/topics/{topic}/messages", json={"messages": [message]})
    (got,) = get(client, f"/topics/{topic}/partitions/0/messages")["messages"]
    assert got["headers"] == {"one": "1", "many": ["a", "b", "a"]}


def test_a_tombstone_is_a_null_value(client: httpx.Client, topic: str) -> None:
    answer = client.post(f"/topics/{topic}/messages", json={"messages": [{"key": "k", "value": None, "partition": 0}]})
    assert answer.status_code == 200
    assert get(client, f"/topics/{topic}/partitions/0/messages")["messages"][0]["value"] is None


def test_delays_answer_with_the_names_of_the_contract(client: httpx.Client, topic: str) -> None:
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3_600))
    messages = [
        {"value": "v", "partition": 0, "delay": "1h30m"},
        {"value": "v", "partition": 0, "deliverAt": later},
        {"value": "v", "partition": 0, "delay": "0s"},
        {"value": "v", "partition": 0, "deliverAt": "2020-01-01T00:00:00Z"},
    ]
    results = client.post(f"/topics/{topic}/messages", json={"messages": messages}).json()["results"]
    assert [each["delayed"] for each in results] == [True, True, False, False]
    assert results[0].keys() == {"partition", "offset", "priority", "delayed", "deliverAt"}
    assert RFC_3339.fullmatch(results[0]["deliverAt"])
    assert results[1]["deliverAt"] == later
    listed = get(client, f"/topics/{topic}/delayed", limit=1)
    assert {"messages", "count"} <= listed.keys()
    for message in (*listed["messages"], get(client, f"/topics/{topic}/delayed/1")):
        assert {"topic", "partition", "offset", "deliver_at", "priority"} <= message.keys()
        assert (message["topic"], message["offset"], message["deliver_at"]) == (topic, 1, later)
    answer = client.delete(f"/topics/{topic}/delayed/0/1")
    assert (answer.status_code, answer.json()) == (200, {"cancelled": True})
    assert client.delete(f"/topics/{topic}/delayed/0/1").status_code == 404
    assert client.get(f"/topics/{topic}/delayed/1").status_code == 404


def test_delay_stats(client: httpx.Client) -> None:
    body = get(client, "/delay/stats")
    assert {"pending_count", "delivered_count", "cancelled_count", "avg_delay"} <= body.keys()


def test_priority_stats(client: httpx.Client, topic: str) -> None:
    client.post(f"/topics/{topic}/messages", json={"messages": [{"value": "v", "priority": "high"}]})
    body = get(client, "/priority/stats")
    assert {"messages_by_priority", "avg_wait_time_by_priority"} <= body.keys()
    assert body["messages_by_priority"]["high"] >= 1


@pytest.mark.parametrize("priority", ["critical", "high", "normal", "low", "background", 0, 4])
def test_priorities_are_names_or_numbers(client: httpx.Client, topic: str, priority: str | int) -> None:
    body = {"messages": [{"value": "v", "priority": priority}]}
    answer = client.post(f"/topics/{topic}/messages", json=body)
    names = ("critical", "high", "normal", "low", "background")
    expected = names[priority] if isinstance(priority, int) else priority
    assert answer.json()["results"][0]["priority"] == expected


def test_reading_waits_no_longer_than_it_is_asked_to(client: httpx.Client, topic: str) -> None:
    body = get(client, f"/topics/{topic}/partitions/0/messages", wait="50ms")
    assert body["messages"] == []


def test_reading_from_an_instant(client: httpx.Client, topic: str) -> None:
    messages = [{"value": c, "partition": 0, "timestamp": f"2024-01-01T00:00:0{c}Z"} for c in "123"]
    client.post(f"/topics/{topic}/messages", json={"messages": messages})
    for at in ("2024-01-01T00:00:02Z", "2024-01-01T01:00:01.5+01:00"):
        body = get(client, f"/topics/{topic}/partitions/0/messages", from_time=at)
        assert [each["value"] for each in body["messages"]] == ["2", "3"]


@pytest.fixture
def begun(client: httpx.Client, name: str) -> dict[str, Any]:
    """What a producer sends whose transaction is open."""
    answer = client.post("/producers/init", json={"transactional_id": name})
    assert answer.status_code == 200
    assert {"producer_id", "epoch"} <= answer.json().keys()
    producer = {each: answer.json()[each] for each in ("producer_id", "epoch")}
    heartbeat = client.post(f"/producers/{producer['producer_id']}/heartbeat", json={"epoch": producer["epoch"]})
    assert (heartbeat.status_code, heartbeat.json()) == (200, {"success": True})
    request = {**producer, "transactional_id": name}
    answer = client.post("/transactions/begin", json=request)
    assert answer.status_code == 200
    assert isinstance(answer.json()["transaction_id"], str)
    return request


@pytest.mark.parametrize(("end", "status"), [("commit", "committed"), ("abort", "aborted")])
def test_a_transaction_with_the_names_of_the_contract(
    client: httpx.Client, topic: str, begun: dict[str, Any], end: str, status: str
) -> None:
    producer = {each: begun[each] for each in ("producer_id", "epoch")}
    message = {**producer, "topic": topic, "key": "k", "value": "v", "sequence": 0}
    answer = client.post("/transactions/publish", json=message)
    assert answer.status_code == 200
    assert {"partition", "offset"} <= answer.json().keys()
    answer = client.post(f"/transactions/{end}", json=begun)
    assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert len(get(client, f"/topics/{topic}/messages")["messages"]) == (status == "committed")


def test_transactions_are_listed(client: httpx.Client, begun: dict[str, Any]) -> None:
    listed = get(client, "/transactions")["transactions"]
    (found,) = [each for each in listed if each["producer_id"] == begun["producer_id"]]
    assert {"transaction_id", "producer_id", "state", "started_at"} <= found.keys()
    assert found["state"] == "ongoing"
    assert RFC_3339.fullmatch(found["started_at"])


def test_transaction_stats(client: httpx.Client) -> None:
    body = get(client, "/transactions/stats")
    assert {"active_transactions", "committed_total", "aborted_total", "avg_duration"} <= body.keys()
    assert isinstance(body["avg_duration"], str)


def test_openapi_and_the_page_to_try_it_are_served(host: Host) -> None:
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        document = client.get("/openapi.json")
        assert document.headers["content-type"].startswith("application/json")
        assert document.json()["openapi"].startswith("3.1")
        page = client.get("/docs")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
