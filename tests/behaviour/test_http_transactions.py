"""Producers and transactions over HTTP, as someone with an HTTP client would use them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from behaviour.clock import ManualClock
from behaviour.host import Host, config_for
from behaviour.http_member import Member, answered, publish, refused, settle
from behaviour.load import FRAMES, envelope
from behaviour.waiting import until
from goqueue.model.units import format_instant_ns
from goqueue.wire.batch import parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import encode_frame, encode_headers
from goqueue.wire.internal_headers import DEDUP_ID

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("transactions")), http=True, clock=clock)
    yield host
    host.stop()


@pytest.fixture
def client(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield client
        # So that nothing of this test is open in another.
        for each in answered(client.get("/transactions"))["transactions"]:
            answered(client.post(f"/transactions/{each['transaction_id']}/abort"))


@pytest.fixture
def topic(client: httpx.Client, name: str) -> str:
    return make_topic(client, name)


def make_topic(client: httpx.Client, name: str, **settings: Any) -> str:
    # What is not committed is shown when it is written, not when it is durable.
    body = {"name": name, "num_partitions": 2, "settings": {"fsync": "interval", **settings}}
    assert client.post("/topics", json=body).status_code == 201
    return name


@dataclass
class Producer:
    """Sends its id and epoch with everything."""

    client: httpx.Client
    producer_id: int
    epoch: int

    @classmethod
    def init(cls, client: httpx.Client, **fields: Any) -> Producer:
        body = answered(client.post("/producers/init", json=fields))
        return cls(client, body["producer_id"], body["epoch"])

    def ask(self, what: str, **fields: Any) -> httpx.Response:
        body = {"producer_id": self.producer_id, "epoch": self.epoch, **fields}
        return self.client.post(f"/transactions/{what}", json=body)

    def do(self, what: str, **fields: Any) -> dict[str, Any]:
        return dict(answered(self.ask(what, **fields)))

    def begin(self, **fields: Any) -> str:
        return str(self.do("begin", **fields)["transaction_id"])

    def publish(self, topic: str, value: str, partition: int = 0, **fields: Any) -> dict[str, Any]:
        return self.do("publish", topic=topic, value=value, partition=partition, **fields)


def values(client: httpx.Client, topic: str, **query: Any) -> list[str]:
    return [each["value"] for each in answered(client.get(f"/topics/{topic}/messages", params=query))["messages"]]


def state_of(client: httpx.Client, transaction_id: str) -> str:
    return str(answered(client.get(f"/transactions/{transaction_id}"))["state"])


# Publishing and ending


def test_what_a_transaction_wrote_is_seen_everywhere_when_it_is_committed(client: httpx.Client, topic: str) -> None:
    producer = Producer.init(client)
    transaction = producer.begin()
    assert producer.publish(topic, "a", 0) == {"partition": 0, "offset": 0, "priority": "normal", "delayed": False}
    producer.publish(topic, "b", 1, transaction_id=transaction)
    assert values(client, topic) == []
    assert producer.do("commit") == {"status": "committed", "transaction_id": transaction}
    assert values(client, topic) == ["a", "b"]


def test_nothing_of_an_aborted_transaction_is_ever_seen(client: httpx.Client, topic: str) -> None:
    producer = Producer.init(client)
    transaction = producer.begin()
    producer.publish(topic, "never")
    assert producer.do("abort") == {"status": "aborted", "transaction_id": transaction}
    publish(client, topic, "plain", partition=0)
    assert values(client, topic) == ["plain"]
    assert values(client, topic, isolation="read_uncommitted") == ["never", "plain"]


def test_a_message_has_all_the_fields_that_it_has_elsewhere(
    client: httpx.Client, clock: ManualClock, topic: str
) -> None:
    producer = Producer.init(client)
    producer.begin()
    value = b64encode(b"\xff").decode()
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    body = {"producer_id": producer.producer_id, "epoch": 0, "topic": topic, "partition": 1, "value": value}
    body |= {"key": "aw==", "headers": {"h": ["MQ==", "Mg=="]}, "encoding": "base64", "priority": "high", "ttl": "1h"}
    stored = answered(client.post("/transactions/publish", json=body, headers=trace))
    assert stored == {"partition": 1, "offset": 0, "priority": "high", "delayed": False}
    later = format_instant_ns(clock.now_ns() + 20 * MINUTE_MS * 1_000_000)
    delayed = producer.publish(topic, "later", 1, delay="20m")
    assert (delayed["delayed"], delayed["deliverAt"]) == (True, later)
    producer.do("commit")
    (message,) = answered(client.get(f"/topics/{topic}/messages", params={"encoding": "base64"}))["messages"]
    assert (message["key"], message["value"], message["priority"]) == ("aw==", value, "high")
    assert message["headers"]["h"] == ["MQ==", "Mg=="]
    assert "traceparent" in message["headers"]
    (waiting,) = answered(client.get(f"/topics/{topic}/delayed"))["messages"]
    assert waiting["deliver_at"] == later
    assert answered(client.delete(f"/topics/{topic}/delayed/1/1")) == {"cancelled": True}


def test_the_same_sequence_is_stored_once_and_a_gap_is_refused(client: httpx.Client, topic: str) -> None:
    producer = Producer.init(client)
    producer.begin()
    first = producer.publish(topic, "a", sequence=0)
    assert producer.publish(topic, "a", sequence=0) == first
    refused(producer.ask("publish", topic=topic, value="c", partition=0, sequence=2), 409, "out_of_order_sequence")
    producer.publish(topic, "b", sequence=1)
    producer.do("commit")
    assert values(client, topic) == ["a", "b"]


def test_ending_a_transaction_again_is_answered_the_same_if_it_is_named(client: httpx.Client, topic: str) -> None:
    producer = Producer.init(client)
    for what, other in (("commit", "abort"), ("abort", "commit")):
        transaction = producer.begin()
        producer.publish(topic, what)
        first = producer.do(what, transaction_id=transaction)
        assert producer.do(what, transaction_id=transaction) == first
        assert "no transaction open" in refused(producer.ask(what), 404, "transaction_not_found")
        code = "transaction_conflict" if what == "commit" else "transaction_aborted"
        refused(producer.ask(other, transaction_id=transaction), 409, code)
        refused(producer.ask("publish", topic=topic, value="late", transaction_id=transaction), 409, code)
    assert values(client, topic) == ["commit"]


def test_a_late_publish_does_not_slip_into_the_next_transaction(client: httpx.Client, topic: str) -> None:
    producer = Producer.init(client)
    first = producer.begin()
    producer.publish(topic, "a")
    producer.do("abort")
    producer.begin()
    refused(producer.ask("publish", topic=topic, value="late", transaction_id=first), 409, "transaction_aborted")
    producer.publish(topic, "b")
    producer.do("commit")
    assert values(client, topic) == ["b"]


def test_partitions_may_be_named_before_they_are_written_to(client: httpx.Client, topic: str) -> None:
    producer = Producer.init(client)
    refused(producer.ask("add-partition", topic=topic, partition=0), 404, "transaction_not_found")
    transaction = producer.begin()
    added = {"added": True, "transaction_id": transaction}
    assert producer.do("add-partition", topic=topic, partition=0) == added
    assert producer.do("add-partition", topic=topic, partitions=[0, 1], transaction_id=transaction) == added
    refused(producer.ask("add-partition", topic=topic, partitions=[1, 2]), 404, "partition_not_found")
    refused(producer.ask("add-partition", topic="nowhere", partition=0), 404, "topic_not_found")
    for both in ({}, {"partition": 0, "partitions": [1]}):
        refused(producer.ask("add-partition", topic=topic, **both), 400, "invalid_request")


# Whose it is


def test_who_comes_with_the_same_transactional_id_fences_the_one_before(client: httpx.Client, topic: str) -> None:
    old = Producer.init(client, transactional_id=topic)
    transaction = old.begin(transactional_id=topic)
    old.publish(topic, "zombie")
    new = Producer.init(client, transactional_id=topic)
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
    for what in ("begin", "commit", "abort", "prepare"):
        refused(old.ask(what), 409, "producer_fenced")
    refused(old.ask("publish", topic=topic, value="zombie"), 409, "producer_fenced")
    refused(old.ask("acks", receipts=["r"]), 409, "producer_fenced")
    heartbeat = f"/producers/{old.producer_id}/heartbeat"
    refused(client.post(heartbeat, json={"epoch": old.epoch}), 409, "producer_fenced")
    assert answered(client.post(heartbeat, json={"epoch": new.epoch})) == {"success": True}
    assert state_of(client, transaction) == "completed_abort"
    new.begin(transactional_id=topic)
    new.publish(topic, "new")
    new.do("commit", transactional_id=topic)
    assert values(client, topic) == ["new"]


def test_the_transactional_id_must_be_the_producers_own_if_it_is_given(client: httpx.Client, topic: str) -> None:
    named, plain = Producer.init(client, transactional_id=topic), Producer.init(client, transactional_id="")
    for producer, own in ((named, f"'{topic}'"), (plain, "none")):
        told = refused(producer.ask("begin", transactional_id="other"), 409, "transaction_conflict")
        assert own in told
        producer.begin(transactional_id="")
        for what in ("commit", "abort", "prepare"):
            refused(producer.ask(what, transactional_id="other"), 409, "transaction_conflict")
        refused(producer.ask("publish", topic=topic, value="v", transactional_id="other"), 409, "transaction_conflict")
        producer.do("abort")


def test_a_transaction_is_only_its_producers(client: httpx.Client, topic: str) -> None:
    mine, other = Producer.init(client), Producer.init(client)
    transaction = mine.begin()
    mine.publish(topic, "mine")
    other.begin()
    for what in ("commit", "abort", "prepare"):
        refused(other.ask(what, transaction_id=transaction), 409, "transaction_conflict")
    refused(other.ask("publish", topic=topic, value="other", transaction_id=transaction), 409, "transaction_conflict")
    mine.do("commit")
    assert values(client, topic) == ["mine"]


# Reading and processing in one


def test_reading_processing_and_writing_happens_once(client: httpx.Client, topic: str, name: str) -> None:
    results = make_topic(client, f"{name}-results")
    # An abort is like a nack: what was acked comes again after the topic's pause.
    client.patch(f"/topics/{topic}", json={"settings": {"retry_backoff_ms": 0}}).raise_for_status()
    publish(client, topic, "1", "2", "3", partition=0)
    member, producer = Member(client, f"{name}-group", topic), Producer.init(client)
    for end in ("abort", "commit"):
        producer.begin()
        messages = member.poll()
        assert [each["value"] for each in messages] == ["1", "2", "3"]
        for message in messages:
            producer.publish(results, f"{message['value']}!")
        receipts = [each["receipt_handle"] for each in messages]
        # Sent again, as after an answer that was lost.
        for some in (receipts[:2], receipts, receipts[:1] * 2):
            assert producer.do("acks", receipts=some)["added"] is True
        assert (member.poll(), values(client, results)) == ([], [])
        refused(settle(client, "nack", receipts[0]), 410, "stale_receipt")
        producer.do(end)
    assert member.poll() == []
    assert values(client, results) == ["1!", "2!", "3!"]
    assert answered(client.get(f"/groups/{name}-group"))["total_lag"] == 0


def test_acks_are_taken_all_or_none(client: httpx.Client, topic: str, name: str) -> None:
    publish(client, topic, "1", "2", partition=0)
    member, producer = Member(client, f"{name}-group", topic), Producer.init(client)
    first, second = member.receipts()
    answered(settle(client, "ack", second))
    transaction = producer.begin()
    refused(producer.ask("acks", receipts=[first, second]), 410, "stale_receipt")
    refused(producer.ask("acks", receipts=[first, "nonsense"]), 400, "invalid_receipt")
    assert answered(client.get(f"/transactions/{transaction}"))["acks"] == 0
    answered(settle(client, "ack", first))
    producer.do("abort")


def test_a_streams_offsets_are_committed_with_a_transaction(client: httpx.Client, topic: str, name: str) -> None:
    publish(client, topic, "1", "2", partition=0)
    group = f"{name}-group"
    member, producer = Member(client, group, topic, mode="stream"), Producer.init(client)
    fields = {"group": group, "member_id": member.id, "offsets": {topic: {"0": 2}}}
    for end, committed in (("abort", 0), ("commit", 2)):
        transaction = producer.begin()
        assert [each["value"] for each in member.poll()] == ["1", "2"]
        assert producer.do("offsets", generation=member.generation, **fields)["transaction_id"] == transaction
        assert answered(client.get(f"/transactions/{transaction}"))["groups"] == [group]
        producer.do(end)
        assert answered(client.get(f"/groups/{group}/offsets"))["offsets"][topic]["0"] == committed
    assert member.poll() == []
    producer.begin()
    refused(producer.ask("offsets", **{**fields, "offsets": {topic: {"0": 3}}}), 416, "offset_out_of_range")
    refused(producer.ask("offsets", **{**fields, "group": "nobody"}), 404, "group_not_found")
    refused(producer.ask("offsets", **{**fields, "member_id": "nobody"}), 404, "unknown_member")
    refused(producer.ask("offsets", **{**fields, "offsets": {topic: {}}}), 400, "invalid_request")
    producer.do("abort")


# Prepared, and committed by someone else


def test_prepared_transactions_are_committed_under_a_key_all_or_none(client: httpx.Client, topic: str) -> None:
    writers = [Producer.init(client) for _ in range(3)]
    transactions = [writer.begin() for writer in writers]
    for writer in writers:
        writer.publish(topic, "v")
    key = f"job/{topic} 100%"
    path = f"/transactions/keys/job%2F{topic}%20100%25"
    assert "nothing was committed" in refused(client.get(path), 404, "transaction_not_found")
    for writer, transaction in zip(writers[:2], transactions, strict=False):
        for _ in range(2):
            prepared = writer.do("prepare", transaction_id=transaction)
            assert (prepared["status"], prepared["transaction_id"]) == ("prepared", transaction)
        refused(writer.ask("publish", topic=topic, value="more"), 409, "transaction_conflict")
    commit = {"key": key, "transactions": transactions}
    assert transactions[2] in refused(
        client.post("/transactions/commit-many", json=commit), 409, "transaction_conflict"
    )
    assert values(client, topic) == []
    commit["transactions"] = transactions[:2]
    first = answered(client.post("/transactions/commit-many", json=commit))
    assert (first["key"], first["transactions"], first["is_new"]) == (key, transactions[:2], True)
    assert values(client, topic) == ["v", "v"]
    again = {**first, "is_new": False}
    for prefix in ("", "/v1"):
        assert answered(client.get(f"{prefix}{path}")) == again
    commit["transactions"] = transactions[2:]
    assert answered(client.post("/transactions/commit-many", json=commit)) == again
    writers[2].do("abort")


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_prepared_transaction_is_ended_by_its_producer_without_naming_it(
    client: httpx.Client, topic: str, end: str
) -> None:
    producer = Producer.init(client)
    transaction = producer.begin()
    producer.publish(topic, "v")
    assert producer.do("prepare")["transaction_id"] == transaction
    assert state_of(client, transaction) == "prepared"
    assert producer.do(end)["transaction_id"] == transaction
    assert values(client, topic) == (["v"] if end == "commit" else [])
    assert state_of(client, transaction) == f"completed_{end}"


# Looking, and ending for others


def test_an_operator_sees_a_transaction_and_aborts_it(client: httpx.Client, clock: ManualClock, topic: str) -> None:
    publish(client, topic, "plain", partition=1)
    producer = Producer.init(client, transactional_id=topic, timeout_ms=5_000)
    transaction = producer.begin()
    producer.publish(topic, "a", 1)
    producer.publish(topic, "b", 1)
    publish(client, topic, "behind", partition=1)
    started, deadline = (format_instant_ns(clock.now_ns() + ms * 1_000_000) for ms in (0, 5_000))
    info = {
        "transaction_id": transaction,
        "producer_id": producer.producer_id,
        "epoch": 0,
        "transactional_id": topic,
        "state": "ongoing",
        "started_at": started,
        "deadline": deadline,
        "messages": 2,
    }
    listed = answered(client.get("/transactions"))
    assert listed["transactions"][-1] == {**info, "topics": [topic]}
    assert listed["total"] == len(listed["transactions"])
    partitions = [{"topic": topic, "partition": 1, "first_offset": 1, "end_offset": 3}]
    details = {**info, "acks": 0, "partitions": partitions, "groups": []}
    assert answered(client.get(f"/v1/transactions/{transaction}")) == details
    assert values(client, topic) == ["plain"]
    answer = client.post(f"/transactions/{transaction}/abort", json={"reason": "it is in the way"})
    assert answered(answer) == {"status": "aborted", "transaction_id": transaction}
    assert answered(client.post(f"/transactions/{transaction}/abort"))["status"] == "aborted"
    assert values(client, topic) == ["plain", "behind"]
    ended = answered(client.get(f"/transactions/{transaction}"))
    assert (ended["state"], ended["reason"]) == ("completed_abort", "an operator asked for it: it is in the way")
    told = refused(producer.ask("commit", transaction_id=transaction), 409, "transaction_aborted")
    assert "it is in the way" in told
    for name in ("9-9-nobody", "begin", "stats"):
        refused(client.post(f"/transactions/{name}/abort"), 404, "transaction_not_found")
    refused(client.get("/transactions/9-9-nobody"), 404, "transaction_not_found")


def test_a_list_of_transactions_is_bounded_and_tells_how_many_there_are(client: httpx.Client) -> None:
    producers = [Producer.init(client) for _ in range(3)]
    transactions = [producer.begin() for producer in producers]
    listed = answered(client.get("/transactions", params={"limit": 2}))
    assert [each["transaction_id"] for each in listed["transactions"]] == transactions[:2]
    assert listed["total"] == 3
    for producer in producers:
        producer.do("abort")
    assert answered(client.get("/transactions")) == {"transactions": [], "total": 0}


def test_a_transaction_that_is_not_ended_in_time_is_aborted(
    host: Host, client: httpx.Client, clock: ManualClock, topic: str
) -> None:
    slow, slower = Producer.init(client, timeout_ms=MINUTE_MS), Producer.init(client)
    transaction = slow.begin(timeout_ms=1_000)
    longer = slower.begin(timeout_ms=10 * MINUTE_MS)
    slow.publish(topic, "late")
    publish(client, topic, "behind", partition=0)
    before = answered(client.get("/transactions/stats"))
    clock.advance_ms(2_000)
    host.thread.run(_ring(host))
    until(lambda: state_of(client, transaction) == "completed_abort")
    assert values(client, topic) == ["behind"]
    refused(slow.ask("commit", transaction_id=transaction), 409, "transaction_aborted")
    assert "within its timeout" in refused(slow.ask("commit"), 404, "transaction_not_found")
    slower.publish(topic, "in time", 1)
    slower.do("commit", transaction_id=longer)
    after = answered(client.get("/transactions/stats"))
    assert after["timed_out_total"] == before["timed_out_total"] + 1
    assert after["committed_total"] == before["committed_total"] + 1
    assert (before["active_transactions"], after["active_transactions"]) == (2, 0)


async def _ring(host: Host) -> None:
    host.broker.clockwork.ring()


def test_stats_tell_how_long_transactions_took(tmp_path: Path) -> None:
    clock = ManualClock()
    host = Host(config_for(tmp_path), http=True, clock=clock)
    try:
        with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
            assert answered(client.get("/transactions/stats"))["avg_duration"] == "0s"
            make_topic(client, "t")
            for milliseconds in (1_000, 2_000):
                producer = Producer.init(client)
                producer.begin()
                producer.publish("t", "v")
                clock.advance_ms(milliseconds)
                producer.do("commit")
            Producer.init(client).begin()
            assert answered(client.get("/transactions/stats")) == {
                "active_transactions": 1,
                "prepared_transactions": 0,
                "begun_total": 3,
                "committed_total": 2,
                "aborted_total": 0,
                "timed_out_total": 0,
                "fenced_total": 0,
                "avg_duration": "1s500ms",
            }
    finally:
        host.stop()


def test_after_a_restart_what_was_committed_or_prepared_is_there_and_the_rest_is_not(tmp_path: Path) -> None:
    host = Host(config_for(tmp_path), http=True)
    try:
        with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
            make_topic(client, "t")
            done, safe, lost = [Producer.init(client, transactional_id=each) for each in ("done", "safe", "lost")]
            committed, prepared, open_one = [each.begin() for each in (done, safe, lost)]
            for producer in (done, safe, lost):
                producer.publish("t", f"{producer.producer_id}")
            done.do("commit")
            safe.do("prepare")
            answered(client.post("/transactions/commit-many", json={"key": "k", "transactions": []}))
        host.stop()
        host.start()
        with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
            for producer in (done, safe, lost):
                producer.client = client
            assert values(client, "t") == [f"{done.producer_id}"]
            assert done.do("commit", transaction_id=committed)["status"] == "committed"
            refused(lost.ask("commit", transaction_id=open_one), 404, "transaction_not_found")
            refused(lost.ask("publish", topic="t", value="v"), 404, "transaction_not_found")
            listed = answered(client.get("/transactions"))["transactions"]
            assert [(each["transaction_id"], each["state"]) for each in listed] == [(prepared, "prepared")]
            safe.do("commit")
            assert values(client, "t") == [f"{done.producer_id}", f"{safe.producer_id}"]
            assert answered(client.get("/transactions/keys/k"))["is_new"] is False
            again = Producer.init(client, transactional_id="lost")
            assert (again.producer_id, again.epoch) == (lost.producer_id, 1)
    finally:
        host.stop()


# Reading


def test_what_is_not_committed_is_read_only_on_request(client: httpx.Client, topic: str) -> None:
    publish(client, topic, "plain", partition=0)
    producer = Producer.init(client)
    producer.begin()
    producer.publish(topic, "open")
    path = f"/topics/{topic}/partitions/0/messages"
    committed = answered(client.get(path))
    assert [each["value"] for each in committed["messages"]] == ["plain"]
    assert (committed["next_offset"], committed["high_watermark"], committed["last_stable_offset"]) == (1, 2, 1)
    uncommitted = answered(client.get(path, params={"isolation": "read_uncommitted"}))
    assert [each["value"] for each in uncommitted["messages"]] == ["plain", "open"]
    assert (uncommitted["next_offset"], uncommitted["last_stable_offset"]) == (2, 1)
    whole = answered(client.get(f"/topics/{topic}/messages", params={"isolation": "read_uncommitted"}))
    assert (len(whole["messages"]), whole["last_stable_offsets"]) == (2, {"0": 1, "1": 0})
    one = answered(client.get(f"/topics/{topic}/messages", params={"partition": 0}))
    assert (len(one["messages"]), one["last_stable_offset"], one["last_stable_offsets"]) == (1, 1, {"0": 1})
    offsets = answered(client.get(f"/topics/{topic}"))["partition_offsets"]
    assert offsets["0"] == {"earliest": 0, "latest": 2, "last_stable_offset": 1}
    for isolation, count in (("read_committed", 1), ("read_uncommitted", 2)):
        frames = client.get(path, params={"isolation": isolation}, headers={"accept": FRAMES})
        assert frames.headers["goqueue-last-stable-offset"] == "1"
        messages, _ = decode_run(parse_batch(frames.content))
        assert [each.value for each in messages] == [b"plain", b"open"][:count]
    producer.do("abort")


@pytest.mark.parametrize("path", ["messages", "messages?partition=0", "partitions/0/messages"])
def test_an_isolation_that_is_not_there_is_refused(client: httpx.Client, topic: str, path: str) -> None:
    for accept in ("application/json", FRAMES):
        answer = client.get(f"/topics/{topic}/{path}", params={"isolation": "dirty"}, headers={"accept": accept})
        if "partition=0" in path:
            answer = client.get(f"/topics/{topic}/{path}&isolation=dirty")
        told = refused(answer, 400, "invalid_request")
        assert told == "isolation is 'dirty'; read_committed and read_uncommitted are allowed"


# Dedup ids


def test_a_message_with_a_dedup_id_is_stored_once(client: httpx.Client, clock: ManualClock, name: str) -> None:
    topic = make_topic(client, name, dedup_window_ms=MINUTE_MS)
    messages = [{"value": each, "partition": 0, "dedup_id": each} for each in "aab"]
    results = answered(client.post(f"/topics/{topic}/messages", json={"messages": messages}))["results"]
    assert [(each["offset"], each.get("duplicate", False)) for each in results] == [(0, False), (0, True), (1, False)]
    messages = [{"value": "c", "partition": 1}, {"value": "b", "partition": 1, "dedup_id": "b"}]
    results = answered(client.post(f"/v1/topics/{topic}/messages", json={"messages": messages}))["results"]
    assert results[1] == {"partition": 0, "offset": 1, "priority": "normal", "delayed": False, "duplicate": True}
    assert values(client, topic) == ["a", "b", "c"]
    (first, *_) = answered(client.get(f"/topics/{topic}/messages"))["messages"]
    assert first["headers"] == {DEDUP_ID: "a"}
    clock.advance_ms(MINUTE_MS + 1)
    publish(client, topic, "b", partition=0, dedup_id="b")
    assert values(client, topic) == ["a", "b", "b", "c"]


def test_frames_with_dedup_ids_are_stored_once(client: httpx.Client, clock: ManualClock, topic: str) -> None:
    def send(*ids: str) -> dict[str, Any]:
        frames = [encode_frame(b"", b"v", encode_headers(((DEDUP_ID, each.encode()),)), clock.now_ns()) for each in ids]
        path = f"/topics/{topic}/partitions/0/messages"
        return dict(answered(client.post(path, content=envelope(frames), headers={"content-type": FRAMES})))

    assert send("a", "b") == {"partition": 0, "first_offset": 0, "count": 2}
    known = [{"place": 0, "partition": 0, "offset": 1}]
    assert send("b", "c") == {"partition": 0, "first_offset": 2, "count": 2, "duplicates": known}
    assert send("b") == {"partition": 0, "first_offset": -1, "count": 1, "duplicates": known}
    assert len(values(client, topic)) == 3
