"""Traces over HTTP: a request hands its own to the messages that it publishes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from behaviour.host import Host, config_for
from behaviour.http_member import Member

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = PARENT.replace("4bf9", "4bf8")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("traces")), http=True)
    yield host
    host.stop()


@pytest.fixture
def client(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def topic(client: httpx.Client, name: str) -> str:
    assert client.post("/topics", json={"name": name, "num_partitions": 1}).status_code == 201
    return name


def publish(client: httpx.Client, topic: str, headers: Any, *messages: dict[str, Any]) -> None:
    answer = client.post(f"/topics/{topic}/messages", json={"messages": messages}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert not [each for each in answer.json()["results"] if "error" in each]


def read(client: httpx.Client, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/topics/{topic}/partitions/0/messages").json()["messages"]
    assert client.get(f"/topics/{topic}/messages").json()["messages"] == found
    return found


def test_a_request_hands_its_trace_to_messages_that_have_none(client: httpx.Client, topic: str) -> None:
    publish(
        client,
        topic,
        {"Traceparent": PARENT, "tracestate": "shop=7"},
        {"value": "plain"},
        {"value": "more", "headers": {"lang": "en"}},
        {"value": "own", "headers": {"traceparent": OTHER}},
        {"value": "AAEC/w==", "encoding": "base64"},
    )
    handed = {"traceparent": PARENT, "tracestate": "shop=7"}
    found = read(client, topic)
    assert [each["headers"] for each in found[:3]] == [handed, {"lang": "en", **handed}, {"traceparent": OTHER}]
    encoded = {name: b64encode(value.encode()).decode() for name, value in handed.items()}
    assert (found[3]["encoding"], found[3]["headers"]) == ("base64", encoded)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("tracestate", "shop=7")],
        [("traceparent", "nonsense")],
        [("traceparent", PARENT.upper())],
        [("traceparent", PARENT), ("traceparent", OTHER)],
    ],
)
def test_a_request_without_a_trace_that_counts_adds_nothing(
    client: httpx.Client, topic: str, headers: list[tuple[str, str]]
) -> None:
    publish(client, topic, headers, {"value": "a"}, {"value": "b"})
    assert ["headers" in each for each in read(client, topic)] == [False, False]


def test_several_states_are_one_and_a_long_one_is_left_out(client: httpx.Client, topic: str) -> None:
    several = [("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]
    publish(client, topic, several, {"value": "a"})
    publish(client, topic, {"traceparent": PARENT, "tracestate": "a=" + "x" * 600}, {"value": "b"})
    first, second = read(client, topic)
    assert first["headers"] == {"traceparent": PARENT, "tracestate": "a=1,b=2"}
    assert second["headers"] == {"traceparent": PARENT}


def test_no_message_is_refused_because_of_its_trace(client: httpx.Client, topic: str) -> None:
    full = {"big": "x" * (0xFFFF - len("big") - 6)}
    publish(client, topic, {"traceparent": PARENT, "tracestate": "a=1"}, {"value": "a", "headers": full})
    [found] = read(client, topic)
    assert found["headers"] == full


def test_a_polled_message_brings_the_trace_of_its_request(client: httpx.Client, topic: str) -> None:
    publish(client, topic, {"traceparent": PARENT}, {"value": "traced"})
    [message] = Member(client, f"group-of-{topic}", topic).poll()
    assert message["headers"] == {"traceparent": PARENT}
