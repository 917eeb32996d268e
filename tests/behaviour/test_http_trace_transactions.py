"""The stories of messages that were published or acked in a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from behaviour.http_member import Member
from behaviour.traced import SECOND_MS, Traced, kinds, states, traced
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.model.units import format_instant_ns
from goqueue.observe import trace_event
from goqueue.observe.trace_event import runs_of
from goqueue.wire.trace_context import derived_trace_id

ABORTED = {"reason": "its transaction was aborted"}
ASKED_FOR = {"reason": "its transaction was aborted: its producer asked for it"}
STARTED_AGAIN = {"reason": "its transaction was aborted: the broker was started again while it was open"}


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with traced(tmp_path_factory.mktemp("stories")) as it:
        yield it


@pytest.fixture
def broker(shared_broker: Traced) -> Traced:
    """Time begins anew, at a tick."""
    shared_broker.clock.advance_to_tick()
    shared_broker.begun_ns = shared_broker.clock.now_ns()
    return shared_broker


def begin(broker: Traced, transactional_id: str | None = None) -> OpenTransaction:
    transactions = broker.host.broker.transactions

    async def run() -> OpenTransaction:
        producer = await transactions.init(transactional_id)
        return transactions.begin(producer.producer_id, producer.epoch)

    return broker.host.thread.run(run())


def write(broker: Traced, transaction: OpenTransaction, topic: str, *values: bytes, **options: Any) -> None:
    messages = [NewMessage(value, partition=0, **options) for value in values]
    outcomes = broker.host.thread.run(broker.host.broker.publish(topic, messages, transaction))
    assert all(isinstance(each, Published) for each in outcomes), outcomes


def end(broker: Traced, transaction: OpenTransaction, verb: str) -> None:
    transactions = broker.host.broker.transactions
    ends = {"commit": transactions.commit, "abort": transactions.abort}
    broker.host.thread.run(ends[verb](transaction.transaction_id))


def within(transaction: OpenTransaction) -> dict[str, str]:
    return {"reason": f"in a transaction of producer {transaction.producer_id}"}


def test_a_message_of_a_transaction_waits_for_its_commit_and_is_delivered_after_it(broker: Traced, name: str) -> None:
    group = f"{name}-g"
    broker.topic(name)
    member = Member(broker.client, group, name)
    transaction = begin(broker)
    write(broker, transaction, name, b"a", b"b", key=b"k")
    # It need not be durable yet.
    assert broker.at(name, 0)["in_log"]
    assert broker.found(topic=name, key="k") == [(name, 1), (name, 0)]
    broker.publish(name, "of no transaction")
    broker.let_pass(1 * SECOND_MS)
    story = broker.at(name, 0)
    assert broker.timeline(story) == [(0, "publish", within(transaction))]
    # No group sees it, nor does one wait for it; what lies behind it waits for its turn.
    assert (story["status"], story["groups"], story["key"], story["in_log"]) == ("pending", [], "k", True)
    assert states(broker.at(name, 2)) == [(group, "waiting")]
    assert [(each["offset"], each["groups"]) for each in broker.search(topic=name, key="k")["traces"]] == [
        (1, []), (0, [])
    ]  # fmt: skip

    end(broker, transaction, "commit")
    broker.let_pass(1 * SECOND_MS)
    broker.settle("ack", member.receipts(max_messages=3))
    story = broker.at(name, 1)
    g = {"group": group, "member": member.id, "attempt": 1}
    assert broker.timeline(story) == [
        (0, "publish", within(transaction)),
        (1, "committed", {}),
        (2, "consume", {**g, "until": 32}),
        (2, "ack", g),
    ]
    assert (story["status"], states(story)) == ("completed", [(group, "settled")])
    assert kinds(broker.at(name, 2)) == ["publish", "consume", "ack"]


def test_an_aborted_message_is_an_error_that_nobody_saw(broker: Traced, name: str) -> None:
    group = f"{name}-g"
    broker.topic(name)
    member = Member(broker.client, group, name, settings={"mode": "stream"})
    transaction = begin(broker)
    broker.publish(name, "before")
    write(broker, transaction, name, b"a", b"b", key=b"k")
    broker.publish(name, "behind")
    broker.let_pass(1 * SECOND_MS)
    end(broker, transaction, "abort")
    broker.let_pass(1 * SECOND_MS)
    member.poll()
    # What the group commits covers a range, and so also what it never saw.
    acked = broker.host.broker.notes.counts
    commit = {"member_id": member.id, "offsets": {name: {"0": 4}}}
    assert broker.client.post(f"/groups/{group}/offsets", json=commit).status_code == 200
    assert (acked[group, name].delivered, acked[group, name].acked) == (2, 2)
    for offset in (1, 2):
        story = broker.at(name, offset)
        assert broker.timeline(story) == [(0, "publish", within(transaction)), (1, "aborted", ASKED_FOR)]
        assert (story["status"], story["groups"]) == ("error", [])
    assert (broker.at(name, 0)["status"], broker.at(name, 3)["status"]) == ("completed", "completed")
    assert broker.found(topic=name, status="error") == [(name, 2), (name, 1)]
    assert broker.found(topic=name, key="k") == [(name, 2), (name, 1)]
    assert sorted(broker.found(topic=name, status="completed")) == [(name, 0), (name, 3)]


def test_what_waits_for_a_transaction_says_for_which(broker: Traced, name: str) -> None:
    group = f"{name}-g"
    broker.topic(name)
    member = Member(broker.client, group, name)
    broker.publish(name, "before")
    transaction, later = begin(broker, f"{name}-app"), begin(broker)
    write(broker, transaction, name, b"inside")
    broker.publish(name, "behind")
    write(broker, later, name, b"inside another")
    broker.publish(name, "later", delay="1h")
    broker.let_pass(1)

    def waits_for(offset: int) -> dict[str, Any] | None:
        (found,) = broker.search(topic=name, partition=0, offset=offset)["traces"]
        (listed,) = [each for each in broker.search(topic=name)["traces"] if each["offset"] == offset]
        assert found.get("waits_for") == listed.get("waits_for") == broker.at(name, offset).get("waits_for")
        return found.get("waits_for")

    first = {
        "producer_id": transaction.producer_id,
        "transaction_id": transaction.transaction_id,
        "transactional_id": f"{name}-app",
        "deadline": format_instant_ns(transaction.deadline_ns),
    }
    assert waits_for(0) is None
    assert waits_for(1) == {"own": True, **first}
    assert waits_for(2) == {"own": False, **first}
    found = waits_for(3)
    assert found is not None and (found["own"], found["transaction_id"]) == (True, later.transaction_id)
    assert "transactional_id" not in found
    assert waits_for(4) is None, "it waits until it is due"

    # The group's lag tells nothing of it.
    described = broker.client.get(f"/groups/{group}").json()
    assert (described["total_lag"], described["total_held_back"]) == (1, 3)
    assert [each["held_back"] for each in described["lag"]] == [3]
    end(broker, later, "abort")
    assert broker.client.get(f"/groups/{group}").json()["total_held_back"] == 2
    end(broker, transaction, "commit")
    broker.let_pass(1)
    described = broker.client.get(f"/groups/{group}").json()
    assert (described["total_lag"], described["total_held_back"]) == (3, 0)
    assert waits_for(2) is None
    broker.settle("ack", member.receipts(max_messages=3))


def test_the_end_of_a_transaction_is_no_message(broker: Traced, name: str) -> None:
    group = f"{name}-g"
    broker.topic(name)
    member = Member(broker.client, group, name, settings={"mode": "stream"})
    ended = []
    for verb in ("commit", "abort"):
        ended.append(begin(broker))
        write(broker, ended[-1], name, b"v")
        end(broker, ended[-1], verb)
    broker.let_pass(1)
    member.poll()
    # What the group commits covers the markers, at 1 and 3.
    commit = {"member_id": member.id, "offsets": {name: {"0": 4}}}
    assert broker.client.post(f"/groups/{group}/offsets", json=commit).status_code == 200
    for offset, transaction, word in ((1, ended[0], "committed"), (3, ended[1], "aborted")):
        story = broker.at(name, offset)
        reason = f"a transaction of producer {transaction.producer_id} was {word}"
        assert broker.timeline(story) == [(0, "transaction_end", {"reason": reason, "source": "log"})]
        assert (story["status"], story["groups"], story["in_log"]) == ("completed", [], True)
    for asked in ({}, {"consumer_group": group}, {"status": "completed"}):
        assert not {(name, 1), (name, 3)} & set(broker.found(topic=name, **asked))
    assert sorted(broker.found(topic=name)) == [(name, 0), (name, 2)]


def test_one_event_tells_how_a_transaction_ended_in_a_partition(broker: Traced, name: str) -> None:
    broker.topic(name, partitions=2)
    for verb in ("commit", "abort"):
        one, other = begin(broker), begin(broker)
        for transaction in (one, other, one):
            write(broker, transaction, name, b"a", b"b")
        write(broker, one, name, b"later", delay_ms=60_000)
        end(broker, one, verb)
        end(broker, other, verb)
    noted = [
        each
        for each in broker.host.broker.tracing.tracer.recent
        if each.place == f"{name}/0" and not each.group and each.event in (trace_event.COMMITTED, trace_event.ABORTED)
    ]
    assert [(each.event, runs_of(each.offsets)) for each in noted] == [
        ("committed", [0, 2, 4, 7]),
        ("committed", [2, 4]),
        ("aborted", [9, 11, 13, 16]),
        ("aborted", [11, 13]),
    ]


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_delayed_message_is_scheduled_when_its_transaction_is_committed(broker: Traced, name: str, verb: str) -> None:
    broker.topic(name)
    transaction = begin(broker)
    write(broker, transaction, name, b"later", delay_ms=3_000)
    broker.let_pass(1 * SECOND_MS)
    assert kinds(broker.at(name, 0)) == ["publish"]
    end(broker, transaction, verb)
    story = broker.at(name, 0)
    assert (story["status"], story["groups"]) == ("pending" if verb == "commit" else "error", [])
    broker.let_pass(2 * SECOND_MS)
    told = [each for each in broker.timeline(broker.at(name, 0)) if each[1] != "fired"]
    if verb == "commit":
        # 0 is the message, 1 the commit's marker.
        assert kinds(broker.at(name, 2))[-1] == "fired"
        assert sorted(told, key=lambda each: (each[0], each[1])) == [
            (0, "publish", within(transaction)), (1, "committed", {}), (1, "delay", {"until": 3})
        ]  # fmt: skip
    else:
        assert told == [(0, "publish", within(transaction)), (1, "aborted", ASKED_FOR)]


@pytest.mark.parametrize(("verb", "after"), [("commit", "settled"), ("abort", "retry")])
def test_a_message_that_was_acked_in_a_transaction_says_so(broker: Traced, name: str, verb: str, after: str) -> None:
    group = f"{name}-g"
    broker.topic(name)
    member = Member(broker.client, group, name)
    broker.publish(name, "v")
    receipts = member.receipts()
    transaction = begin(broker)
    broker.host.thread.run(broker.host.broker.transactions.add_acks(transaction, receipts))
    story = broker.at(name, 0)
    (now,) = story["groups"]
    assert (story["status"], now["state"]) == ("pending", "acked in a transaction")
    assert now["reason"] == f"transaction {transaction.transaction_id} has not ended"
    assert "member" not in now and "until" not in now
    end(broker, transaction, verb)
    story = broker.at(name, 0)
    assert states(story) == [(group, after)]
    assert broker.timeline(story)[-1][1] == ("ack" if verb == "commit" else "released")


def test_a_restart_aborts_what_was_open_and_tells_so(tmp_path: Path) -> None:
    with traced(tmp_path) as broker:
        broker.topic("t")
        committed, left = begin(broker), begin(broker)
        write(broker, committed, "t", b"a")
        write(broker, left, "t", b"b")
        end(broker, committed, "commit")
        broker.let_pass(1 * SECOND_MS)
        broker.restart()
        assert broker.timeline(broker.at("t", 0)) == [(0, "publish", within(committed)), (0, "committed", {})]
        assert broker.timeline(broker.at("t", 1)) == [(0, "publish", within(left)), (1, "aborted", STARTED_AGAIN)]
        assert broker.stats()["traces_error"] == 0, "of what is in memory, no message is known from its publishing"
        # With what the files tell, too.
        assert broker.found(topic="t", status="error") == [("t", 1)]


def test_without_any_event_the_log_tells_how_a_transaction_ended(tmp_path: Path) -> None:
    with traced(tmp_path) as broker:
        broker.topic("t")
        for verb in ("commit", "abort", ""):
            transaction = begin(broker)
            write(broker, transaction, "t", b"v")
            if verb:
                end(broker, transaction, verb)
        forget(broker, keeps_publish=True)
        source = {"source": "log"}
        stories = [broker.timeline(broker.at("t", offset)) for offset in (0, 2, 4)]
        assert [story[1:] for story in stories] == [
            [(0, "committed", source)], [(0, "aborted", {**ABORTED, **source})], []
        ]  # fmt: skip
        assert [broker.at("t", offset)["status"] for offset in (0, 2, 4)] == ["pending", "error", "pending"]
        assert [(each["offset"], each["status"]) for each in broker.search(topic="t")["traces"]] == [
            (4, "pending"), (2, "error"), (0, "pending")
        ]  # fmt: skip
        forget(broker, keeps_publish=False)
        stories = [broker.timeline(broker.at("t", offset)) for offset in (0, 2, 4)]
        within_one = {"reason": "in a transaction", **source}
        assert stories == [
            [(0, "publish", source)],
            [(0, "publish", within_one), (0, "aborted", {**ABORTED, **source})],
            [(0, "publish", within_one)],
        ]
        assert derived_trace_id("t", 0, 2) == broker.at("t", 2)["trace_id"]


def forget(broker: Traced, *, keeps_publish: bool) -> None:
    """Everything that was noted, as with the last moment before a kill, but for publishing if that is kept."""
    broker.until_written()
    tracing = broker.host.broker.tracing
    assert tracing.files is not None
    kept = [each for each in tracing.tracer.recent if keeps_publish and each.event == trace_event.PUBLISH]
    tracing.tracer.recent.clear()
    tracing.tracer.recent.extend(kept)
    for file in sorted((Path(broker.host.config.storage.path) / "traces").glob("*.jsonl")):
        file.write_bytes(b"")
