"""Every answer of the contract decodes into the structures that typed clients have for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from behaviour import contract_models as known
from behaviour.contract_models import decoded
from behaviour.host import Host, config_for

TREE = '{"type": "object", "properties": {"name": {"type": "string"}}}'


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("types")), http=True)
    yield host
    host.stop()


@pytest.fixture(params=["", "/v1"])
def client(request: pytest.FixtureRequest, host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url + request.param, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def topic(client: httpx.Client, name: str) -> str:
    answer = client.post("/topics", json={"name": name, "num_partitions": 2})
    assert decoded(answer, known.CreateTopicResponse, 201).created
    return name


def publish(client: httpx.Client, topic: str, **fields: Any) -> known.PublishResult:
    body = {"messages": [{"key": "k", "value": "v", "partition": 0, **fields}]}
    (result,) = decoded(client.post(f"/topics/{topic}/messages", json=body), known.PublishResponse).results
    return result


def join(client: httpx.Client, group: str, topic: str) -> known.JoinGroupResponse:
    body = {"client_id": "worker", "topics": [topic], "session_timeout": "30s"}
    return decoded(client.post(f"/groups/{group}/join", json=body), known.JoinGroupResponse)


def poll(client: httpx.Client, group: str, member: str) -> list[known.PollMessage]:
    query = {"member_id": member, "max_messages": 10, "timeout": "10s"}
    return decoded(client.get(f"/groups/{group}/poll", params=query), known.PollResponse).messages


def test_how_the_broker_is(client: httpx.Client, topic: str) -> None:
    assert decoded(client.get("/health"), known.HealthResponse).status == "ok"
    for path in ("/healthz", "/livez"):
        assert decoded(client.get(path), known.LivenessResponse).status == "pass"
    assert decoded(client.get("/readyz", params={"verbose": "true"}), known.ReadinessResponse).broker.topic_count >= 1
    decoded(client.get("/version"), known.VersionResponse)
    assert topic in decoded(client.get("/stats"), known.StatsResponse).topic_stats


def test_topics(client: httpx.Client, topic: str) -> None:
    assert topic in decoded(client.get("/topics"), known.TopicListResponse).topics
    publish(client, topic)
    found = decoded(client.get(f"/topics/{topic}"), known.TopicDetails)
    assert (found.partitions, found.total_messages, found.partition_offsets["0"].latest) == (2, 1, 1)
    assert decoded(client.delete(f"/topics/{topic}"), known.DeleteTopicResponse).deleted
    assert topic in decoded(client.get(f"/topics/{topic}"), known.ErrorResponse, 404).error


def test_messages_and_delays(client: httpx.Client, topic: str) -> None:
    publish(client, topic, priority="high")
    found = decoded(client.get(f"/topics/{topic}/partitions/0/messages"), known.ConsumeResponse)
    assert [(each.key, each.value, each.priority) for each in found.messages] == [("k", "v", "high")]
    late = publish(client, topic, delay="1h")
    assert late.delayed
    assert late.deliverAt
    (waiting,) = decoded(client.get(f"/topics/{topic}/delayed"), known.DelayedMessagesResponse).messages
    assert waiting.offset == late.offset
    decoded(client.get(f"/topics/{topic}/delayed/{late.offset}"), known.DelayedMessage)
    assert decoded(client.delete(f"/topics/{topic}/delayed/0/{late.offset}"), known.CancelledResponse).cancelled
    decoded(client.get("/delay/stats"), known.DelayStats)
    decoded(client.get("/priority/stats"), known.PriorityStats)


def test_a_join_tells_what_the_earlier_server_does(client: httpx.Client, topic: str) -> None:
    first = join(client, topic, topic)
    assert (first.leader_id, first.members, first.partitions) == (first.member_id, [first.member_id], [0, 1])
    second = join(client, topic, topic)
    assert second.leader_id == first.member_id
    assert second.members == [first.member_id, second.member_id]
    assert second.assigned_partitions == [f"{topic}-{number}" for number in second.partitions]


@pytest.mark.parametrize("declared", [known.JoinAsInGo, known.JoinAsInPython])
def test_a_join_suits_clients_that_declare_a_leader_whatever_they_take_it_for(
    client: httpx.Client, topic: str, declared: type[known.JoinGroupResponse]
) -> None:
    body = {"client_id": "worker", "topics": [topic]}
    decoded(client.post(f"/groups/{topic}/join", json=body), declared)


def test_groups(client: httpx.Client, topic: str) -> None:
    joined = join(client, topic, topic)
    assert topic in decoded(client.get("/groups"), known.GroupListResponse).groups
    assert decoded(client.get(f"/groups/{topic}"), known.GroupDetails).members[0].member_id == joined.member_id
    member = {"member_id": joined.member_id}
    beat = client.post(f"/groups/{topic}/heartbeat", json={**member, "generation": joined.generation})
    assert not decoded(beat, known.HeartbeatResponse).rebalance_required
    publish(client, topic)
    poll(client, topic, joined.member_id)
    commit = client.post(f"/groups/{topic}/offsets", json={**member, "offsets": {topic: {"0": 1}}})
    assert decoded(commit, known.CommittedResponse).committed
    offsets = decoded(client.get(f"/groups/{topic}/offsets", params={"topic": topic}), known.OffsetsResponse)
    assert offsets.offsets[topic]["0"] == 1
    assert decoded(client.post(f"/groups/{topic}/leave", json=member), known.LeaveGroupResponse).left


def test_receipts(client: httpx.Client, topic: str) -> None:
    joined = join(client, topic, topic)
    for _ in range(3):
        publish(client, topic)
    one, two, three = (each.receipt_handle for each in poll(client, topic, joined.member_id))
    acked = client.post("/messages/ack", json={"receipt_handle": one, "consumer_id": joined.member_id})
    assert decoded(acked, known.AckResponse).acknowledged
    extended = client.post("/messages/visibility", json={"receipt_handle": two, "timeout": "1m"})
    assert decoded(extended, known.ExtendResponse).extended
    nacked = client.post("/messages/nack", json={"receipt_handle": two, "delay": "1h"})
    assert decoded(nacked, known.NackResponse).requeued
    rejected = client.post("/messages/reject", json={"receipt_handle": three, "reason": "no address"})
    assert decoded(rejected, known.RejectResponse).dlq_topic == f"{topic}.dlq"
    assert decoded(client.get("/reliability/stats"), known.ReliabilityStats).acks_total >= 1


def test_schemas(client: httpx.Client, name: str) -> None:
    subject = f"/schemas/subjects/{name}/versions"
    made = decoded(client.post(subject, json={"schema": TREE, "schemaType": "JSON"}), known.RegisterSchemaResponse)
    assert name in decoded(client.get("/schemas/subjects"), list[str])
    assert decoded(client.get(subject), list[int]) == [1]
    found = decoded(client.get(f"{subject}/1"), known.SchemaVersion)
    assert (found.subject, found.version, found.id, found.schema) == (name, 1, made.id, TREE)
    assert decoded(client.get(f"/schemas/ids/{made.id}"), known.Schema).schema == TREE
    assert decoded(client.get("/schemas/config"), known.CompatibilityConfig).compatibilityLevel == "BACKWARD"
    level = {"compatibilityLevel": "BACKWARD"}
    assert decoded(client.put("/schemas/config", json=level), known.CompatibilityConfig).compatibilityLevel
    assert decoded(client.get("/schemas/stats"), known.SchemaStats).schemas >= 1
    assert decoded(client.delete(f"{subject}/1"), int) == 1


def test_a_schema_without_a_type_is_json_where_the_earlier_server_has_its_registry(
    client: httpx.Client, name: str
) -> None:
    subject = f"/schemas/subjects/{name}"
    decoded(client.post(f"{subject}/versions", json={"schema": TREE}), known.RegisterSchemaResponse)
    assert client.get(f"{subject}/versions/1").json()["schemaType"] == "JSON"
    assert decoded(client.post(subject, json={"schema": TREE}), known.SchemaVersion).version == 1
    for place in ("/versions", "/versions/latest"):
        fits = client.post(f"/schemas/compatibility/subjects/{name}{place}", json={"schema": TREE})
        assert fits.json() == {"is_compatible": True}
    assert client.post(f"{subject}/versions", json={"schema": '"string"', "schemaType": "AVRO"}).status_code == 409


def test_a_schema_without_a_type_is_avro_where_registries_have_theirs(client: httpx.Client, name: str) -> None:
    decoded(client.post(f"/subjects/{name}/versions", json={"schema": '"string"'}), known.RegisterSchemaResponse)
    assert "schemaType" not in client.get(f"/subjects/{name}/versions/1").json()
    refused = client.post(f"/subjects/{name}-other/versions", json={"schema": TREE})
    assert decoded(refused, known.ErrorResponse, 422).error


def test_transactions(client: httpx.Client, topic: str) -> None:
    made = decoded(client.post("/producers/init", json={"transactional_id": topic}), known.InitProducerResponse)
    producer = {"producer_id": made.producer_id, "epoch": made.epoch}
    beat = client.post(f"/producers/{made.producer_id}/heartbeat", json={"epoch": made.epoch})
    assert decoded(beat, known.SuccessResponse).success
    for end in ("commit", "abort"):
        named = {**producer, "transactional_id": topic}
        begun = decoded(client.post("/transactions/begin", json=named), known.BeginTransactionResponse)
        message = client.post("/transactions/publish", json={**producer, "topic": topic, "key": "k", "value": "v"})
        decoded(message, known.TransactionalPublishResponse)
        listed = decoded(client.get("/transactions"), known.TransactionListResponse).transactions
        assert begun.transaction_id in [each.transaction_id for each in listed]
        ended = decoded(client.post(f"/transactions/{end}", json=named), known.EndTransactionResponse)
        assert ended.status.startswith(end)
    assert decoded(client.get("/transactions/stats"), known.TransactionStats).committed_total >= 1


def test_traces_tell_the_details_of_an_event_in_words(client: httpx.Client, topic: str) -> None:
    joined = join(client, topic, topic)
    publish(client, topic)
    (message,) = poll(client, topic, joined.member_id)
    client.post("/messages/reject", json={"receipt_handle": message.receipt_handle, "reason": "no address"})
    (found,) = decoded(
        client.get("/traces/search", params={"topic": topic, "consumer_group": topic}), known.TraceListResponse
    ).traces
    story = decoded(client.get(f"/traces/{found.trace_id}"), known.Trace)
    told = {each.event_type: each.details for each in story.events}
    assert told["publish"] == ""
    assert told["consume"].startswith(f"group {topic}, member {joined.member_id}, attempt 1, until 2")
    assert told["reject"] == f"group {topic}, member {joined.member_id}, attempt 1, reason: no address"
    decoded(client.get("/traces"), known.TraceListResponse)
    decoded(client.get("/traces/stats"), known.TracerStats)


def test_giving_a_topic_more_partitions_is_answered_with_what_to_do_instead(client: httpx.Client, topic: str) -> None:
    path = f"/admin/topics/{topic}/partitions"
    answer = client.post(path, json={"count": 6, "replica_assignments": {"5": ["node-1"]}})
    assert "make another topic" in decoded(answer, known.ErrorResponse, 501).error
    assert (answer.json()["code"], answer.json()["retriable"]) == ("unsupported_feature", False)
    assert decoded(client.get(f"/topics/{topic}"), known.TopicDetails).partitions == 2
    for count in (0, "many", None):
        assert client.post(path, json={"count": count}).status_code == 400
    assert client.post("/admin/topics/no-such-topic/partitions", json={"count": 6}).status_code == 404
