"""Groups over HTTP: the paths and field names that clients know, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from behaviour.host import Host, config_for
from behaviour.http_member import Member, answered, publish, refused, settle

NOBODY = {"member_id": "nobody-00"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("groups"), limits={"max_group_members": 3}), http=True)
    yield host
    host.stop()


@pytest.fixture(scope="module")
def client(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture(params=["", "/v1"])
def either(request: pytest.FixtureRequest, host: Host) -> Iterator[httpx.Client]:
    """At the root, and under /v1."""
    with httpx.Client(base_url=host.url + request.param, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def topic(client: httpx.Client, name: str) -> str:
    assert client.post("/topics", json={"name": name, "num_partitions": 2}).status_code == 201
    return name


def described(client: httpx.Client, group: str) -> Any:
    return answered(client.get(f"/groups/{group}"))


def test_joining_answers_with_the_names_of_the_contract(either: httpx.Client, topic: str) -> None:
    body = {"client_id": "worker", "topics": [topic], "session_timeout": "45s"}
    joined = answered(either.post(f"/groups/{topic}/join", json=body))
    assert joined == {
        "member_id": joined["member_id"],
        "generation": 1,
        "leader_id": joined["member_id"],
        "assigned_partitions": [f"{topic}-0", f"{topic}-1"],
        "partitions": [0, 1],
        "members": [joined["member_id"]],
        "rebalance_required": False,
        "revoking_partitions": [],
        "heartbeat_interval": "3s",
        "session_timeout": "45s",
    }
    assert joined["member_id"].startswith("worker-")


def test_a_short_session_wants_more_heartbeats(client: httpx.Client, topic: str) -> None:
    member = Member(client, topic, topic, session_timeout="1500ms")
    assert (member.joined["heartbeat_interval"], member.joined["session_timeout"]) == ("500ms", "1s500ms")


def test_a_heartbeat_answers_with_what_is_assigned(either: httpx.Client, topic: str) -> None:
    member = Member(either, topic, topic)
    assert member.heartbeat() == {
        "rebalance_required": False,
        "state": "stable",
        "generation": 1,
        "assigned_partitions": [f"{topic}-0", f"{topic}-1"],
        "revoking_partitions": [],
    }


def test_a_heartbeat_of_an_earlier_generation_is_told_of_the_present_one(client: httpx.Client, topic: str) -> None:
    first = Member(client, topic, topic)
    second = Member(client, topic, topic)
    assert (second.joined["leader_id"], second.generation) == (first.id, 2)
    told = first.heartbeat()
    assert (told["rebalance_required"], told["generation"]) == (True, 2)
    first.generation = told["generation"]
    assert first.heartbeat()["rebalance_required"] is False
    both = told["assigned_partitions"] + second.joined["assigned_partitions"]
    assert sorted(both) == [f"{topic}-0", f"{topic}-1"]


def test_a_generation_that_has_not_been_is_refused(client: httpx.Client, topic: str) -> None:
    member = Member(client, topic, topic)
    answer = client.post(f"{member.path}/heartbeat", json={"member_id": member.id, "generation": 7})
    assert "has not been yet" in refused(answer, 400, "invalid_request")


def test_what_a_member_that_leaves_had_goes_to_the_others(either: httpx.Client, topic: str) -> None:
    first, second = Member(either, topic, topic), Member(either, topic, topic)
    assert second.leave() == {"left": True}
    assert first.heartbeat()["assigned_partitions"] == [f"{topic}-0", f"{topic}-1"]
    refused(either.post(f"{second.path}/leave", json={"member_id": second.id}), 404, "unknown_member")


def test_groups_are_listed(either: httpx.Client, topic: str) -> None:
    Member(either, topic, topic)
    groups = answered(either.get("/groups"))["groups"]
    assert topic in groups
    assert groups == sorted(groups)


def test_a_group_is_described_with_its_members_and_its_lag(either: httpx.Client, topic: str) -> None:
    publish(either, topic, "a", "b", "c", partition=1)
    member = Member(either, topic, topic, settings={"max_in_flight": 2}, instance_id="i-1")
    settle(either, "ack", member.receipts()[0])
    group = described(either, topic)
    expected = {"group_id": topic, "state": "stable", "generation": 1, "protocol": "range", "total_lag": 2}
    assert expected.items() <= group.items()
    assert group["members"] == [
        {
            "member_id": member.id,
            "client_id": "worker",
            "assigned_partitions": [f"{topic}-0", f"{topic}-1"],
            "revoking_partitions": [],
            "in_flight": 1,
            "topics": [topic],
            "session_timeout": "30s",
            "instance_id": "i-1",
        }
    ]
    assert group["lag"][1] == {
        "topic": topic, "partition": 1, "committed": 1, "latest": 3, "lag": 2, "in_flight": 1, "waiting": 0,
        "held_back": 0, "owner": member.id,
    }  # fmt: skip
    assert group["overrides"] == ["max_in_flight"]
    assert (group["settings"]["max_in_flight"], group["settings"]["mode"]) == (2, "queue")


def test_in_a_shared_group_everyone_has_every_partition(client: httpx.Client, topic: str) -> None:
    members = [Member(client, topic, topic, kind="shared") for _ in range(3)]
    every = [f"{topic}-0", f"{topic}-1"]
    assert [member.joined["assigned_partitions"] for member in members] == [every] * 3
    assert [each["assigned_partitions"] for each in described(client, topic)["members"]] == [every] * 3


def test_a_partition_that_is_to_leave_its_owner_is_shown_until_it_does(client: httpx.Client, topic: str) -> None:
    publish(client, topic, "a", partition=0)
    publish(client, topic, "b", partition=1)
    first = Member(client, topic, topic, kind="sticky")
    receipts = first.receipts()
    second = Member(client, topic, topic)
    (leaving,) = first.heartbeat()["revoking_partitions"]
    assert second.joined["assigned_partitions"] == []
    group = described(client, topic)
    assert group["state"] == "rebalancing"
    assert [each["revoking_partitions"] for each in group["members"]] == [[leaving], []]
    answered(settle(client, "ack", receipts))
    assert described(client, topic)["state"] == "stable"
    assert second.heartbeat()["assigned_partitions"] == [leaving]


def test_a_group_can_be_made_before_anyone_joins_and_changed_while_it_works(client: httpx.Client, topic: str) -> None:
    path = f"/groups/{topic}"
    made = answered(client.put(path, json={"settings": {"kind": "shared", "visibility_timeout_ms": "5s"}}))
    assert (made["members"], made["generation"], made["protocol"]) == ([], 0, "shared")
    Member(client, topic, topic, kind="shared")
    changed = answered(client.put(path, json={"settings": {"max_retries": 9}}))
    assert changed["overrides"] == ["kind", "max_retries", "visibility_timeout_ms"]
    assert (changed["settings"]["visibility_timeout_ms"], changed["settings"]["max_retries"]) == (5_000, 9)


def test_a_fixed_setting_cannot_be_changed(client: httpx.Client, topic: str) -> None:
    member = Member(client, topic, topic, mode="stream")
    conflict = {"settings": {"mode": "queue", "max_in_flight": 5}}
    refused(client.put(member.path, json=conflict), 409, "group_conflict")
    body = {"client_id": "w", "topics": [topic], "kind": "sticky"}
    refused(client.post(f"{member.path}/join", json=body), 409, "group_conflict")
    group = described(client, topic)
    assert (group["overrides"], len(group["members"])) == (["mode"], 1)


def test_a_group_with_members_cannot_be_deleted_and_one_without_can(either: httpx.Client, topic: str) -> None:
    member = Member(either, topic, topic)
    refused(either.delete(f"/groups/{topic}"), 409, "group_conflict")
    member.leave()
    assert answered(either.delete(f"/groups/{topic}")) == {"deleted": True}
    refused(either.delete(f"/groups/{topic}"), 404, "group_not_found")
    refused(either.get(f"/groups/{topic}"), 404, "group_not_found")


def test_an_instance_that_comes_back_takes_its_place_and_fences_the_old_one(client: httpx.Client, topic: str) -> None:
    old = Member(client, topic, topic, instance_id="i-1")
    new = Member(client, topic, topic, instance_id="i-1")
    assert new.joined["assigned_partitions"] == old.joined["assigned_partitions"]
    refused(old.ask_poll(), 409, "member_fenced")
    assert len(described(client, topic)["members"]) == 1


def test_a_group_takes_no_more_members_than_the_limit(client: httpx.Client, topic: str) -> None:
    for _ in range(3):
        Member(client, topic, topic)
    body = {"client_id": "w", "topics": [topic]}
    assert "limits.max_group_members" in refused(
        client.post(f"/groups/{topic}/join", json=body), 400, "invalid_request"
    )


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"session_timeout": "5"}, "invalid_request", "session_timeout"),
        ({"session_timeout": "999ms"}, "invalid_request", "session_timeout"),
        ({"session_timeout": "31m"}, "invalid_request", "session_timeout"),
        ({"session_timeout": "1s" * 100_000}, "invalid_request", "session_timeout"),
        ({"session_timeout": 5}, "invalid_request", "session_timeout"),
        ({"client_id": ""}, "invalid_request", "client_id"),
        ({"client_id": "x" * 201}, "invalid_request", "client_id"),
        ({"client_id": "a\nb"}, "invalid_request", "client_id"),
        ({"instance_id": "x" * 201}, "invalid_request", "instance_id"),
        ({"topics": []}, "invalid_request", "topics"),
        ({"topics": ["t"] * 1_001}, "invalid_request", "topics"),
        ({"topics": "t"}, "invalid_request", "topics"),
        ({"kind": "round-robin"}, "invalid_request", "kind"),
        ({"mode": "batch"}, "invalid_request", "mode"),
        ({"kind": "range", "settings": {"kind": "range"}}, "invalid_settings", "kind"),
        ({"kind": "shared", "mode": "stream"}, "invalid_settings", "mode"),
        ({"settings": {"max_in_flight": 0}}, "invalid_settings", "max_in_flight"),
        ({"settings": {"max_in_fligth": 1}}, "invalid_settings", "max_in_flight"),
        ({"colour": "red"}, "invalid_request", "colour"),
    ],
)
def test_a_join_that_is_wrong_makes_no_group(
    client: httpx.Client, topic: str, fields: dict[str, Any], code: str, named: str
) -> None:
    body = {"client_id": "worker", "topics": [topic], **fields}
    assert named in refused(client.post(f"/groups/{topic}/join", json=body), 400, code)
    assert topic not in answered(client.get("/groups"))["groups"]


def test_joining_for_a_topic_that_is_not_there_makes_no_group(client: httpx.Client, topic: str) -> None:
    body = {"client_id": "worker", "topics": [topic, f"{topic}-not"]}
    refused(client.post(f"/groups/{topic}/join", json=body), 404, "topic_not_found")
    refused(client.get(f"/groups/{topic}"), 404, "group_not_found")


@pytest.mark.parametrize("name", ["__redrive", "__groups", "a b", "x" * 201, "ü", "a:b"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PUT", "", {"settings": {}}),
        ("DELETE", "", None),
        ("POST", "/join", {"client_id": "w", "topics": ["t"]}),
        ("POST", "/heartbeat", {**NOBODY, "generation": 1}),
        ("POST", "/leave", NOBODY),
        ("GET", "/poll?member_id=nobody", None),
        ("GET", "/offsets", None),
        ("POST", "/offsets", {**NOBODY, "offsets": {}}),
        ("POST", "/reset", {"topic": "t", "to": "earliest"}),
    ],
)
def test_a_name_that_no_group_can_have_is_refused(
    client: httpx.Client, name: str, method: str, path: str, body: Any
) -> None:
    refused(client.request(method, f"/groups/{name}{path}", json=body), 400, "invalid_group_name")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/heartbeat", {**NOBODY, "generation": 1}),
        ("POST", "/leave", NOBODY),
        ("GET", "/poll?member_id=nobody-00&timeout=10s", None),
        ("POST", "/offsets", {**NOBODY, "offsets": {}}),
    ],
)
def test_a_stranger_to_the_group_is_told_to_join(
    client: httpx.Client, topic: str, method: str, path: str, body: Any
) -> None:
    refused(client.request(method, f"/groups/{topic}{path}", json=body), 404, "group_not_found")
    Member(client, topic, topic)
    assert "has to join" in refused(client.request(method, f"/groups/{topic}{path}", json=body), 404, "unknown_member")


def test_a_group_that_nobody_made_leaves_nothing_behind(client: httpx.Client, host: Host, name: str) -> None:
    refused(client.get(f"/groups/{name}/poll?member_id=m"), 404, "group_not_found")
    assert name not in host.broker.groups.shards._active
