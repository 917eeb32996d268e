"""What producers may not send over HTTP, and how keys with a slash are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from behaviour.host import Host, config_for
from behaviour.http_member import answered, refused

from goqueue.api.http.bodies.transaction_schemas import (
    MAX_FROZEN_RECEIPTS,
    MAX_NAMED_PARTITIONS,
    MAX_TRANSACTION_ID_LENGTH,
)
from goqueue.api.http.routing.paths import decoded_parts, has_encoded_slash
from goqueue.broker.transactions.commit_keys import MAX_AT_ONCE, MAX_KEY_LENGTH
from goqueue.broker.transactions.producer_fencing import MAX_NAME_LENGTH

BIGGEST = (1 << 63) - 1
PUBLISH = {"topic": "t", "value": "v"}
OFFSETS = {"group": "g", "member_id": "m", "offsets": {"t": {"0": 0}}}
LONG_ID = "x" * (MAX_TRANSACTION_ID_LENGTH + 1)
LONG_NAME = "x" * (MAX_NAME_LENGTH + 1)
TOO_MANY = {str(number): 0 for number in range(MAX_NAMED_PARTITIONS + 1)}

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("begin", {"producer_id": -1}, "producer_id"),
    ("begin", {"producer_id": BIGGEST + 1}, "producer_id"),
    ("begin", {"producer_id": "one"}, "producer_id"),
    ("begin", {"producer_id": 1.5}, "producer_id"),
    ("begin", {"producer_id": None}, "producer_id"),
    ("begin", {"epoch": -1}, "epoch"),
    ("begin", {"epoch": 1 << 15}, "epoch"),
    ("begin", {"timeout_ms": 0}, "timeout_ms"),
    ("begin", {"transactional_id": LONG_NAME}, "transactional_id"),
    ("begin", {"transaction_id": "1-0-x"}, "transaction_id"),
    ("publish", {**PUBLISH, "sequence": -1}, "sequence"),
    ("publish", {**PUBLISH, "sequence": 1 << 31}, "sequence"),
    ("publish", {**PUBLISH, "transaction_id": ""}, "transaction_id"),
    ("publish", {**PUBLISH, "transaction_id": LONG_ID}, "transaction_id"),
    ("publish", {**PUBLISH, "topic": "t" * 1_001}, "topic"),
    ("publish", {**PUBLISH, "encoding": "hex"}, "encoding"),
    ("publish", {**PUBLISH, "colour": "blue"}, "colour"),
    ("publish", {"topic": "t"}, "value"),
    ("publish", {"value": "v"}, "topic"),
    ("add-partition", {"topic": "t", "partition": -1}, "partition"),
    ("add-partition", {"topic": "t", "partitions": []}, "partitions"),
    ("add-partition", {"topic": "t", "partitions": [0] * (MAX_NAMED_PARTITIONS + 1)}, "partitions"),
    ("acks", {}, "receipts"),
    ("acks", {"receipts": []}, "receipts"),
    ("acks", {"receipts": ["r"] * (MAX_FROZEN_RECEIPTS + 1)}, "receipts"),
    ("acks", {"receipts": ["r" * 1_025]}, "receipts"),
    ("offsets", {**OFFSETS, "offsets": {}}, "offsets"),
    ("offsets", {**OFFSETS, "offsets": {"t": TOO_MANY}}, "offsets"),
    ("offsets", {**OFFSETS, "offsets": {"t": {"zero": 0}}}, "offsets"),
    ("offsets", {**OFFSETS, "generation": -1}, "generation"),
    ("offsets", {**OFFSETS, "group": "g" * 1_001}, "group"),
    ("prepare", {"transaction_id": LONG_ID}, "transaction_id"),
    ("commit", {"transactional_id": LONG_NAME}, "transactional_id"),
    ("abort", {"reason": "mine"}, "reason"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    host = Host(config_for(tmp_path_factory.mktemp("transactions")), http=True)
    try:
        with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
            topic = {"name": "t", "num_partitions": 1, "settings": {"max_message_bytes": 1_024}}
            assert client.post("/topics", json=topic).status_code == 201
            yield client
    finally:
        host.stop()


@pytest.fixture(scope="module")
def producer(client: httpx.Client) -> dict[str, Any]:
    """With a transaction open."""
    found = answered(client.post("/producers/init", json={}))
    own = {name: found[name] for name in ("producer_id", "epoch")}
    answered(client.post("/transactions/begin", json=own))
    return own


@pytest.mark.parametrize(("what", "fields", "named"), WRONG)
def test_what_is_out_of_bounds_is_named_and_refused(
    client: httpx.Client, producer: dict[str, Any], what: str, fields: dict[str, Any], named: str
) -> None:
    answer = client.post(f"/transactions/{what}", json={**producer, **fields})
    assert named in refused(answer, 400, "invalid_request")
    (still,) = answered(client.get("/transactions"))["transactions"]
    assert (still["state"], still["messages"]) == ("ongoing", 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"partition": 1}, "partition_not_found"),
        ({"topic": "nowhere"}, "topic_not_found"),
        ({"priority": "urgent"}, "invalid_message"),
        ({"delay": "soon"}, "invalid_request"),
        ({"ttl": "0s"}, "invalid_request"),
        ({"value": "%", "encoding": "base64"}, "invalid_message"),
        ({"value": None}, "invalid_message"),
        ({"dedup_id": "d"}, "invalid_message"),
        ({"headers": {"goqueue-producer": "x"}}, "invalid_message"),
        ({"value": "v" * 1_025}, "message_too_large"),
        ({"transaction_id": "1-0-unknown"}, "transaction_not_found"),
    ],
)
def test_a_message_that_cannot_be_stored_is_refused_as_elsewhere(
    client: httpx.Client, producer: dict[str, Any], fields: dict[str, Any], code: str
) -> None:
    answer = client.post("/transactions/publish", json={**producer, **PUBLISH, **fields})
    assert answer.status_code >= 400
    assert answer.json()["code"] == code
    (still,) = answered(client.get("/transactions"))["transactions"]
    assert still["messages"] == 0


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"transactional_id": LONG_NAME}, "transactional_id"),
        ({"transactional_id": "two\nlines"}, "transactional_id"),
        ({"transactional_id": 7}, "transactional_id"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"timeout_ms": 1 << 50}, "transactions.max_timeout_ms"),
        ({"name": "p"}, "name"),
    ],
)
def test_a_producer_that_cannot_be_is_refused(client: httpx.Client, body: dict[str, Any], named: str) -> None:
    assert named in refused(client.post("/producers/init", json=body), 400, "invalid_request")


def test_a_timeout_that_is_too_long_is_refused_and_nothing_is_begun(client: httpx.Client) -> None:
    found = answered(client.post("/producers/init", json={}))
    body = {"producer_id": found["producer_id"], "epoch": 0, "timeout_ms": 1 << 40}
    before = answered(client.get("/transactions"))["total"]
    told = refused(client.post("/transactions/begin", json=body), 400, "invalid_request")
    assert "transactions.max_timeout_ms" in told
    assert answered(client.get("/transactions"))["total"] == before


def test_a_producer_that_nobody_knows_is_refused_everywhere(client: httpx.Client) -> None:
    nobody = {"producer_id": BIGGEST, "epoch": 0}
    for what, fields in (("begin", {}), ("publish", PUBLISH), ("acks", {"receipts": ["r"]}), ("offsets", OFFSETS)):
        answer = client.post(f"/transactions/{what}", json={**nobody, **fields})
        refused(answer, 404, "unknown_producer")
    for what in ("prepare", "commit", "abort"):
        refused(client.post(f"/transactions/{what}", json=nobody), 404, "unknown_producer")
    for producer_id in (0, -1, BIGGEST, 1 << 70):
        answer = client.post(f"/producers/{producer_id}/heartbeat", json={"epoch": 0})
        refused(answer, 404, "unknown_producer")
    refused(client.post("/producers/two/heartbeat", json={"epoch": 0}), 404, "not_found")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"key": "", "transactions": []}, "key"),
        ({"key": "k" * (MAX_KEY_LENGTH + 1), "transactions": []}, "key"),
        ({"key": "k"}, "transactions"),
        ({"key": "k", "transactions": [""]}, "transactions"),
        ({"key": "k", "transactions": [LONG_ID]}, "transactions"),
        ({"key": "k", "transactions": ["1-0-a", "1-0-a"]}, "each once"),
        ({"key": "k", "transactions": [f"1-0-{number}" for number in range(MAX_AT_ONCE + 1)]}, "transactions"),
    ],
)
def test_a_commit_of_many_that_is_out_of_bounds_is_refused(
    client: httpx.Client, body: dict[str, Any], named: str
) -> None:
    assert named in refused(client.post("/transactions/commit-many", json=body), 400, "invalid_request")
    refused(client.get("/transactions/keys/k"), 404, "transaction_not_found")


def test_what_is_asked_of_a_list_or_a_key_is_bounded(client: httpx.Client) -> None:
    for limit in ("0", f"{MAX_AT_ONCE + 1}", "many"):
        assert "limit" in refused(client.get("/transactions", params={"limit": limit}), 400, "invalid_request")
    refused(client.get("/transactions", params={"state": "ongoing"}), 400, "invalid_request")
    refused(client.get(f"/transactions/keys/{'k' * (MAX_KEY_LENGTH + 1)}"), 400, "invalid_request")
    refused(client.get("/transactions/keys/k", params={"x": "1"}), 400, "invalid_request")
    refused(client.get("/transactions/keys/%FF%2F"), 404, "transaction_not_found")
    answer = client.post("/transactions/1-0-a/abort", json={"reason": "r" * 1_001})
    assert "reason" in refused(answer, 400, "invalid_request")


def test_parts_of_a_path_keep_what_was_encoded() -> None:
    raw_path = b"/v1/transactions/keys/a%2Fb%25%20c?x=%2F"
    assert has_encoded_slash(raw_path)
    assert decoded_parts(raw_path) == ["", "v1", "transactions", "keys", "a/b% c"]
    assert not has_encoded_slash(b"/transactions/keys/a%20b")
