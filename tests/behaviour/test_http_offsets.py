"""A group's offsets over HTTP: committed, asked for, reset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from behaviour.host import Host, config_for
from behaviour.http_member import Member, answered, publish, refused, settle


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("offsets")), http=True)
    yield host
    host.stop()


@pytest.fixture(params=["", "/v1"])
def either(request: pytest.FixtureRequest, host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url + request.param, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def client(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def topic(client: httpx.Client, name: str) -> str:
    """Two partitions; the first has four messages."""
    assert client.post("/topics", json={"name": name, "num_partitions": 2}).status_code == 201
    for at, value in enumerate("abcd"):
        publish(client, name, value, partition=0, timestamp=f"2026-01-01T00:00:0{at}Z")
    return name


def offsets_of(client: httpx.Client, group: str, **query: str) -> Any:
    return answered(client.get(f"/groups/{group}/offsets", params=query))["offsets"]


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [message["value"] for message in messages]


def test_a_stream_commits_what_its_poll_answered_and_goes_on_there(either: httpx.Client, topic: str) -> None:
    member = Member(either, topic, topic, mode="stream")
    answer = answered(member.ask_poll(max_messages=3))
    assert values(answer["messages"]) == ["a", "b", "c"]
    assert answer["next_offsets"] == {topic: {"0": 3}}
    assert all({"receipt_handle", "deliveries"}.isdisjoint(message) for message in answer["messages"])
    body = {"member_id": member.id, "offsets": answer["next_offsets"], "generation": member.generation}
    assert answered(either.post(f"/groups/{topic}/offsets", json=body)) == {"committed": True}
    assert offsets_of(either, topic) == {topic: {"0": 3, "1": 0}}
    member.leave()
    assert values(Member(either, topic, topic).poll()) == ["d"]


def test_in_a_queue_a_commit_acks_what_was_delivered_below_and_nothing_else(client: httpx.Client, topic: str) -> None:
    member = Member(client, topic, topic)
    member.poll(max_messages=3)
    answered(member.ask_commit(topic, {"0": 4}))
    assert offsets_of(client, topic) == {topic: {"0": 3, "1": 0}}
    assert values(member.poll()) == ["d"]


def test_offsets_can_be_asked_for_one_topic(client: httpx.Client, topic: str) -> None:
    other = f"{topic}-other"
    assert client.post("/topics", json={"name": other, "num_partitions": 1}).status_code == 201
    Member(client, topic, topic, other)
    assert offsets_of(client, topic) == {topic: {"0": 0, "1": 0}, other: {"0": 0}}
    assert offsets_of(client, topic, topic=other) == {other: {"0": 0}}
    refused(client.get(f"/groups/{topic}/offsets?topic={topic}-not"), 404, "topic_not_found")
    refused(client.get(f"/groups/{topic}-not/offsets"), 404, "group_not_found")


def test_a_commit_of_an_earlier_generation_is_refused(client: httpx.Client, topic: str) -> None:
    first = Member(client, topic, topic, mode="stream")
    first.poll()
    Member(client, topic, topic)
    refused(first.ask_commit(topic, {"0": 4}, generation=1), 409, "stale_generation")
    assert offsets_of(client, topic)[topic]["0"] == 0


def test_a_commit_for_anothers_partition_is_refused_and_commits_nothing(client: httpx.Client, topic: str) -> None:
    first, second = Member(client, topic, topic, mode="stream"), Member(client, topic, topic)
    taken = {"0": 1} if f"{topic}-0" in second.joined["assigned_partitions"] else {"1": 0}
    mine = {"0": 4} if taken == {"1": 0} else {"1": 0}
    refused(first.ask_commit(topic, mine | taken), 409, "not_assigned")
    assert offsets_of(client, topic) == {topic: {"0": 0, "1": 0}}


@pytest.mark.parametrize(
    ("offsets", "status", "code"),
    [
        ({"0": 5}, 416, "offset_out_of_range"),
        ({"0": -1}, 416, "offset_out_of_range"),
        ({"0": 1 << 70}, 416, "offset_out_of_range"),
        ({"2": 0}, 404, "partition_not_found"),
        ({"-1": 0}, 404, "partition_not_found"),
        ({"zero": 0}, 400, "invalid_request"),
        ({"0": "one"}, 400, "invalid_request"),
    ],
)
def test_a_commit_that_cannot_be_is_refused_and_changes_nothing(
    client: httpx.Client, topic: str, offsets: Any, status: int, code: str
) -> None:
    member = Member(client, topic, topic, mode="stream")
    member.poll()
    refused(member.ask_commit(topic, {"1": 0} | offsets), status, code)
    assert offsets_of(client, topic) == {topic: {"0": 0, "1": 0}}


@pytest.mark.parametrize(
    ("where", "begins"),
    [
        ({"to": "earliest"}, {"0": 0, "1": 0}),
        ({"to": "latest"}, {"0": 4, "1": 0}),
        ({"offset": 3, "partitions": [0]}, {"0": 3}),
        ({"instant": "2026-01-01T00:00:02Z"}, {"0": 2, "1": 0}),
        ({"instant": "2030-01-01T00:00:00Z", "partitions": [0, 0]}, {"0": 4}),
    ],
)
@pytest.mark.parametrize("mode", ["queue", "stream"])
def test_a_group_begins_again_where_it_is_told_to(
    client: httpx.Client, topic: str, where: dict[str, Any], begins: dict[str, int], mode: str
) -> None:
    member = Member(client, topic, topic, mode=mode)
    member.poll(max_messages=2)
    answer = client.post(f"/groups/{topic}/reset", json={"topic": topic, **where})
    assert answered(answer) == {"reset": True, "offsets": {topic: begins}}
    assert offsets_of(client, topic)[topic]["0"] == begins["0"]
    assert values(member.poll()) == list("abcd")[begins["0"] :]


def test_a_reset_makes_receipts_void(client: httpx.Client, topic: str) -> None:
    member = Member(client, topic, topic)
    receipt, *_ = member.receipts()
    answered(client.post(f"/groups/{topic}/reset", json={"topic": topic, "to": "earliest"}))
    refused(settle(client, "ack", receipt), 410, "stale_receipt")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({}, 400, "invalid_request"),
        ({"to": "latest", "offset": 0}, 400, "invalid_request"),
        ({"to": "latest", "instant": "2026-01-01T00:00:00Z"}, 400, "invalid_request"),
        ({"to": "middle"}, 400, "invalid_request"),
        ({"offset": -1}, 400, "invalid_request"),
        ({"offset": 5}, 416, "offset_out_of_range"),
        ({"offset": 1 << 70}, 416, "offset_out_of_range"),
        ({"instant": "yesterday"}, 400, "invalid_request"),
        ({"to": "latest", "partitions": []}, 400, "invalid_request"),
        ({"to": "latest", "partitions": [0] * 10_001}, 400, "invalid_request"),
        ({"to": "latest", "partitions": [2]}, 404, "partition_not_found"),
        ({"to": "latest", "topic": "not-there"}, 404, "topic_not_found"),
        ({"to": "latest", "too": "latest"}, 400, "invalid_request"),
    ],
)
def test_a_reset_that_cannot_be_is_refused_and_changes_nothing(
    client: httpx.Client, topic: str, fields: dict[str, Any], status: int, code: str
) -> None:
    member = Member(client, topic, topic)
    answered(settle(client, "ack", member.receipts(max_messages=2)))
    refused(client.post(f"/groups/{topic}/reset", json={"topic": topic, **fields}), status, code)
    assert offsets_of(client, topic) == {topic: {"0": 2, "1": 0}}


def test_resetting_a_group_that_is_not_there_is_refused(client: httpx.Client, topic: str) -> None:
    answer = client.post(f"/groups/{topic}/reset", json={"topic": topic, "to": "earliest"})
    refused(answer, 404, "group_not_found")
