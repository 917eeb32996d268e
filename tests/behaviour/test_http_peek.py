"""``GET /groups/{group}/messages``: what a group still has to do, without taking anything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from goqueue.model.errors import GroupNotFound, InvalidRequest
from goqueue.testing import BrokerProcess, running_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker() as running:
        yield running


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30) as made:
        yield made


class Work:
    """A topic, and a group with a member that works on it."""

    def __init__(self, http: httpx.Client, partitions: int = 1, **joining: Any) -> None:
        self.http = http
        self.topic, self.group = f"t-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
        self.send("POST", "/topics", {"name": self.topic, "num_partitions": partitions})
        body = {"client_id": "desk", "topics": [self.topic], "session_timeout": "30m", **joining}
        self.member = self.send("POST", f"/groups/{self.group}/join", body)["member_id"]

    def send(self, method: str, path: str, body: object = None, **parameters: Any) -> Any:
        return self.http.request(method, path, json=body, params=parameters).raise_for_status().json()

    def publish(self, *messages: dict[str, Any]) -> None:
        given = [{"partition": 0, **each} for each in messages]
        self.send("POST", f"/topics/{self.topic}/messages", {"messages": given})

    def poll(self, most: int = 1) -> list[Any]:
        parameters = {"member_id": self.member, "max_messages": most, "timeout": "5s"}
        found: list[Any] = self.send("GET", f"/groups/{self.group}/poll", **parameters)["messages"]
        return found

    def settle(self, verb: str, message: Any, **more: Any) -> None:
        self.send("POST", f"/messages/{verb}", {"receipt_handle": message["receipt_handle"], **more})

    def peek(self, **parameters: Any) -> Any:
        return self.send("GET", f"/groups/{self.group}/messages", **parameters)

    def states(self, **parameters: Any) -> list[tuple[int, str]]:
        return [(each["offset"], each["state"]) for each in self.peek(**parameters)["messages"]]


def test_each_message_that_is_not_done_is_shown_with_where_the_group_is_with_it(http: httpx.Client) -> None:
    work = Work(http, kind="shared")
    work.publish(*({"value": f"v{at}", "key": f"k{at}", "headers": {"shop": "north"}} for at in range(6)))
    done, again, held = work.poll(1) + work.poll(1) + work.poll(1)
    work.settle("ack", done)
    work.settle("nack", again, delay="1h", reason="no printer")
    found = work.peek()
    assert (found["complete"], "next" in found) == (True, False)
    assert work.states() == [(1, "retry"), (2, "in-flight"), *((at, "waiting") for at in (3, 4, 5))]
    retried, flying, waiting = found["messages"][:3]
    assert (retried["error"], retried["deliveries"], "member" in retried) == ("no printer", 1, False)
    assert retried["until"] > flying["until"] > held["timestamp"]
    assert (flying["member"], flying["deliveries"]) == (work.member, 1)
    assert (waiting["value"], waiting["key"], waiting["headers"]) == ("v3", "k3", {"shop": "north"})
    assert not {"member", "until", "error", "deliveries"} & waiting.keys()
    assert work.states(state="in-flight") == [(2, "in-flight")]
    assert work.states(state="retry") == [(1, "retry")]
    assert work.states(state="waiting") == [(at, "waiting") for at in (3, 4, 5)]
    assert work.states(state="moving") == []


def test_peeking_changes_neither_leases_nor_counts(http: httpx.Client) -> None:
    work = Work(http, kind="shared")
    work.publish(*({"value": "v"} for _ in range(4)))
    (held,) = work.poll(1)
    before = work.send("GET", f"/groups/{work.group}")
    first = work.peek()
    for _ in range(20):
        assert work.peek() == first
    assert work.send("GET", f"/groups/{work.group}") == before
    # What was in flight still is, and what waited comes for the first time.
    work.settle("ack", held)
    assert [(each["offset"], each["deliveries"]) for each in work.poll(10)] == [(1, 1), (2, 1), (3, 1)]


def test_pages_go_on_where_the_one_before_ended_over_partitions(http: httpx.Client) -> None:
    work = Work(http, partitions=3, kind="shared")
    work.publish(*({"value": f"{at}", "partition": at % 3} for at in range(10)))
    found, after, pages = [], {}, 0
    while True:
        page = work.peek(limit=3, **after)
        found += [(each["partition"], each["offset"]) for each in page["messages"]]
        pages += 1
        if "next" not in page:
            break
        assert len(page["messages"]) == 3
        after = {"after": page["next"]}
    assert found == [(0, at) for at in range(4)] + [(1, at) for at in range(3)] + [(2, at) for at in range(3)]
    assert pages == 4
    one = work.peek(topic=work.topic, partition=1)["messages"]
    assert [(each["partition"], each["offset"]) for each in one] == [(1, 0), (1, 1), (1, 2)]


def test_in_a_stream_everything_behind_the_committed_offset_waits(http: httpx.Client) -> None:
    work = Work(http, mode="stream")
    work.publish(*({"value": "v"} for _ in range(5)))
    assert len(work.poll(10)) == 5
    body = {"member_id": work.member, "offsets": {work.topic: {"0": 2}}, "generation": 1}
    work.send("POST", f"/groups/{work.group}/offsets", body)
    assert work.states() == [(at, "waiting") for at in (2, 3, 4)]
    assert work.states(state="in-flight") == []


def test_of_several_lanes_none_is_forgotten(http: httpx.Client) -> None:
    work = Work(http, kind="shared")
    work.publish(*({"value": "v", "priority": "low"} for _ in range(3)), {"value": "now", "priority": "critical"})
    (first,) = work.poll(1)
    assert first["offset"] == 3, "the lane of the last message goes first"
    assert work.states() == [(0, "waiting"), (1, "waiting"), (2, "waiting"), (3, "in-flight")]
    work.settle("ack", first)
    assert work.states() == [(0, "waiting"), (1, "waiting"), (2, "waiting")]


def test_what_waits_for_its_time_or_for_another_group_is_not_shown(http: httpx.Client) -> None:
    work = Work(http, kind="shared")
    other = f"g-{uuid4().hex[:8]}"
    joining = {"client_id": "other", "topics": [work.topic], "kind": "shared"}
    work.send("POST", f"/groups/{other}/join", joining)
    work.publish({"value": "later", "delay": "1h"}, {"value": "bad"})
    (bad,) = work.poll(1)
    work.settle("reject", bad, reason="bad")
    assert work.states() in ([(1, "moving")], [])
    while work.states():
        pass
    work.send("POST", f"/topics/{work.topic}/redrive", {})
    shown = [(each["offset"], each["value"]) for each in work.peek()["messages"]]
    assert shown == [(2, "bad")], "it came back for the group that gave it up"
    theirs = work.send("GET", f"/groups/{other}/messages")["messages"]
    assert [each["offset"] for each in theirs] == [1]


def test_a_message_of_a_later_page_that_is_done_by_then_is_left_out(http: httpx.Client) -> None:
    work = Work(http, kind="shared")
    work.publish(*({"value": "v"} for _ in range(4)))
    page = work.peek(limit=2)
    for message in work.poll(4)[:3]:
        work.settle("ack", message)
    assert work.states(after=page["next"]) == [(3, "in-flight")]


@pytest.mark.parametrize(
    ("parameters", "status", "text"),
    [
        ({"limit": 1001}, 400, "1000"),
        ({"limit": 0}, 400, "limit"),
        ({"state": "asleep"}, 400, "state"),
        ({"partition": 0}, 400, "no topic"),
        ({"after": "nonsense"}, 400, "next"),
        ({"topic": "nowhere"}, 404, "nowhere"),
        ({"nonsense": 1}, 400, "nonsense"),
    ],
)
def test_what_cannot_be_asked_is_said(http: httpx.Client, parameters: dict[str, Any], status: int, text: str) -> None:
    work = Work(http)
    answer = http.get(f"/groups/{work.group}/messages", params=parameters)
    assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text


def test_a_topic_that_the_group_does_not_read_is_said(http: httpx.Client) -> None:
    work, other = Work(http), Work(http)
    answer = http.get(f"/groups/{work.group}/messages", params={"topic": other.topic})
    assert answer.status_code == 400 and "does not read" in answer.json()["error"]
    answer = http.get(f"/groups/{work.group}/messages", params={"topic": work.topic, "partition": 7})
    assert answer.status_code == 404
    assert http.get("/groups/nobody/messages").status_code == 404


def test_clients_peek_as_well(http: httpx.Client, broker: BrokerProcess) -> None:
    work = Work(http, partitions=2, kind="shared")
    work.publish(*({"value": f"v{at}", "key": "k", "partition": at % 2} for at in range(250)))
    (held,) = work.poll(1)
    with broker.client() as client:
        found = list(client.peek(work.group))
        assert len(found) == 250
        assert [(each.partition, each.offset) for each in found] == [(at // 125, at % 125) for at in range(250)]
        (flying,) = client.peek(work.group, state="in-flight")
        assert (flying.topic, flying.partition, flying.offset) == (work.topic, held["partition"], held["offset"])
        assert (flying.member, flying.deliveries, flying.key) == (work.member, 1, b"k")
        assert flying.value == held["value"].encode() and flying.until is not None
        assert len(flying.trace_id) == 32
        assert {each.partition for each in client.peek(work.group, topic=work.topic, partition=1)} == {1}
        with pytest.raises(InvalidRequest, match="state"):
            list(client.peek(work.group, state="asleep"))
        with pytest.raises(GroupNotFound):
            list(client.peek("nobody"))


def test_clients_peek_with_an_event_loop(http: httpx.Client, broker: BrokerProcess) -> None:
    work = Work(http, kind="shared")
    work.publish({"value": "v"})

    async def states() -> list[str]:
        async with broker.async_client() as client:
            return [each.state async for each in client.peek(work.group)]

    assert asyncio.run(states()) == ["waiting"]
