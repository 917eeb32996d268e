"""The story of one message over HTTP: everything that happened to it and to its copies, and where its groups are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from behaviour.http_member import Member, answered, refused
from behaviour.traced import SECOND_MS, Traced, kinds, states, traced
from behaviour.waiting import until
from goqueue.wire.trace_context import derived_trace_id

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


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


def place(topic: str, offset: int, partition: int = 0) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "offset": offset}


def test_one_message_from_publishing_to_its_second_life(broker: Traced, name: str) -> None:
    dead = f"{name}.dlq"
    died = broker.host.broker.groups.settling.tally.dead_letters
    broker.topic(name, visibility_timeout_ms=10_000, max_retries=1)
    broker.publish(name, "v", key="k")
    broker.let_pass(1 * SECOND_MS)
    member = Member(broker.client, "g", name)
    member.poll()
    broker.let_pass(10 * SECOND_MS)  # 11: nobody has settled it in time
    broker.let_pass(1 * SECOND_MS)
    (receipt,) = member.receipts()
    broker.let_pass(1 * SECOND_MS)
    broker.settle("nack", receipt, reason="no such customer")  # 13: once too often
    broker.until_dead(died + 1)
    broker.let_pass(1 * SECOND_MS)
    answered(broker.client.post(f"/topics/{name}/redrive", json={}))
    until(lambda: broker.host.broker.topic(name).partition(0).high_watermark == 2)
    broker.let_pass(1 * SECOND_MS)
    (receipt,) = member.receipts()
    broker.let_pass(1 * SECOND_MS)
    broker.settle("ack", receipt)

    g = {"group": "g", "member": member.id}
    story = broker.at(name, 0)
    assert broker.timeline(story) == [
        (0, "publish", {}),
        (1, "consume", {**g, "attempt": 1, "until": 11}),
        (11, "expired", {**g, "attempt": 1, "reason": "its visibility timed out"}),
        (12, "redelivered", {**g, "attempt": 2, "until": 22}),
        (13, "nack", {**g, "attempt": 2, "reason": "no such customer"}),
        (13, "dlq", {**g, "attempt": 2, "reason": "no such customer", "to": place(dead, 0)}),
        (14, "redriven", {**place(dead, 0), "to": place(name, 1)}),
        (15, "consume", {**g, **place(name, 1), "attempt": 3, "until": 25}),
        (16, "ack", {**g, **place(name, 1), "attempt": 3}),
    ]
    assert {field: story[field] for field in ("topic", "partition", "offset", "status", "duration", "key")} == {
        **place(name, 0), "status": "completed", "duration": "16.000s", "key": "k"
    }  # fmt: skip
    assert states(story) == [("g", "dead-lettered"), ("g", "settled")]

    # Whatever leads to it, it is the same story, also after a restart.
    assert broker.at(dead, 0) == broker.at(name, 1) == story
    assert broker.search(**place(dead, 0))["traces"] == [story]
    assert broker.search(topic=name)["traces"] == [story]
    broker.restart()
    assert broker.at(name, 0) == story
    assert broker.search(topic=name)["traces"] == [story]


def test_what_became_of_a_message_is_known_by_its_status(broker: Traced, name: str) -> None:
    broker.topic(name)
    member = Member(broker.client, f"{name}-g", name)
    broker.publish(name, "v")
    seen = [(broker.at(name, 0)["status"], states(broker.at(name, 0)))]
    (receipt,) = member.receipts()
    seen.append((broker.at(name, 0)["status"], states(broker.at(name, 0))))
    broker.settle("nack", receipt, delay="1s")
    seen.append((broker.at(name, 0)["status"], states(broker.at(name, 0))))
    broker.let_pass(SECOND_MS)
    (receipt,) = member.receipts()
    broker.settle("ack", receipt)
    seen.append((broker.at(name, 0)["status"], states(broker.at(name, 0))))
    assert seen == [
        ("pending", [(f"{name}-g", "waiting")]),
        ("pending", [(f"{name}-g", "in flight")]),
        ("pending", [(f"{name}-g", "retry")]),
        ("completed", [(f"{name}-g", "settled")]),
    ]


def test_two_groups_have_their_own_attempts(broker: Traced, name: str) -> None:
    one, other = f"{name}-1", f"{name}-2"
    broker.topic(name)
    broker.publish(name, "v")
    a, b = Member(broker.client, one, name), Member(broker.client, other, name)
    broker.settle("ack", a.receipts())
    assert broker.at(name, 0)["status"] == "pending"
    broker.settle("nack", b.receipts(), delay="0s")
    broker.settle("ack", b.receipts())
    story = broker.at(name, 0)
    told = [
        (each["event_type"], each["attributes"].get("group"), each["attributes"].get("attempt"))
        for each in story["events"]
    ]
    assert told == [
        ("publish", None, None),
        ("consume", one, 1),
        ("ack", one, 1),
        ("consume", other, 1),
        ("nack", other, 1),
        ("redelivered", other, 2),
        ("ack", other, 2),
    ]
    assert (story["status"], states(story)) == ("completed", [(one, "settled"), (other, "settled")])


def test_a_stream_is_told_by_its_commits(broker: Traced, name: str) -> None:
    broker.topic(name)
    broker.publish(name, *"abc")
    member = Member(broker.client, f"{name}-g", name, settings={"mode": "stream"})
    assert len(member.poll()) == 3
    broker.let_pass(SECOND_MS)
    answered(member.ask_commit(name, {"0": 2}))
    told = [
        (kinds(story), story["status"], states(story)) for story in (broker.at(name, offset) for offset in range(3))
    ]
    done = (["publish", "consume", "committed"], "completed", [(f"{name}-g", "settled")])
    assert told == [done, done, (["publish", "consume"], "pending", [(f"{name}-g", "waiting")])]
    assert broker.at(name, 1)["events"][2]["attributes"]["member"] == member.id


def test_a_delayed_message_goes_on_as_its_copy(broker: Traced, name: str) -> None:
    broker.topic(name)
    broker.publish(name, "v", delay="60s")
    broker.publish(name, "in between")
    broker.let_pass(10 * SECOND_MS)
    answered(broker.client.patch(f"/topics/{name}/delayed/0/0", json={"delay": "20s"}))
    assert (broker.at(name, 0)["status"], states(broker.at(name, 0))) == ("pending", [])
    broker.let_pass(20 * SECOND_MS)
    member = Member(broker.client, f"{name}-g", name)
    mine = {each["value"]: each["receipt_handle"] for each in member.poll()}
    broker.settle("ack", mine["v"])
    story = broker.at(name, 0)
    g = {"group": f"{name}-g", "member": member.id, "attempt": 1, **place(name, 3)}
    assert broker.timeline(story) == [
        (0, "publish", {}),
        (0, "delay", {"until": 60}),
        (10, "rescheduled", {"until": 30}),
        (30, "fired", {"to": place(name, 3)}),
        (30, "consume", {**g, "until": 60}),
        (30, "ack", g),
    ]
    assert (story["status"], broker.at(name, 3)) == ("completed", story)


def test_a_cancelled_message_is_complete(broker: Traced, name: str) -> None:
    broker.topic(name)
    broker.publish(name, "v", delay="60s")
    answered(broker.client.delete(f"/topics/{name}/delayed/0/0"))
    story = broker.at(name, 0)
    assert (kinds(story), story["status"]) == (["publish", "delay", "cancelled"], "completed")


def test_messages_that_are_due_one_by_one_find_their_copies(broker: Traced, name: str) -> None:
    broker.topic(name)
    for seconds in (3, 1, 2):
        broker.publish(name, str(seconds), delay=f"{seconds}s")
    broker.let_pass(5 * SECOND_MS)
    told = [broker.at(name, offset)["events"][-1]["attributes"]["to"]["offset"] for offset in range(3)]
    values = {
        each["offset"]: each["value"] for each in answered(broker.client.get(f"/topics/{name}/messages"))["messages"]
    }
    assert [values[offset] for offset in told] == ["3", "1", "2"]


def test_what_was_not_delivered_in_time_is_an_error(broker: Traced, name: str) -> None:
    broker.topic(name)
    broker.publish(name, "v", ttl="1s")
    broker.let_pass(2 * SECOND_MS)
    assert Member(broker.client, f"{name}-g", name).poll() == []
    story = broker.at(name, 0)
    expired = (2, "expired", {"group": f"{name}-g", "reason": "its time to live was over"})
    assert broker.timeline(story) == [(0, "publish", {}), expired]
    assert (story["status"], states(story)) == ("error", [(f"{name}-g", "expired")])


def test_given_back_and_put_off(broker: Traced, name: str) -> None:
    broker.topic(name)
    broker.publish(name, "v")
    first = Member(broker.client, f"{name}-g", name)
    (receipt,) = first.receipts()
    broker.settle("visibility", receipt, timeout="90s")
    first.leave()
    second = Member(broker.client, f"{name}-g", name)
    second.poll()
    group = {"group": f"{name}-g"}
    assert broker.timeline(broker.at(name, 0))[2:] == [
        (0, "extended", {**group, "member": first.id, "attempt": 1, "until": 90}),
        (0, "released", {**group, "member": first.id, "attempt": 1, "reason": "its consumer left"}),
        (0, "redelivered", {**group, "member": second.id, "attempt": 2, "until": 30}),
    ]


def test_a_rejected_message_is_an_error_until_it_is_redriven(broker: Traced, name: str) -> None:
    broker.topic(name)
    broker.publish(name, "v")
    member = Member(broker.client, f"{name}-g", name)
    broker.settle("reject", member.receipts(), reason="broken")
    until(lambda: kinds(broker.at(name, 0))[-1] == "dlq")
    story = broker.at(name, 0)
    assert (kinds(story)[-2:], story["status"]) == (["reject", "dlq"], "error")
    answered(broker.client.post(f"/topics/{name}/redrive", json={}))
    until(lambda: kinds(broker.at(name, 0))[-1] == "redriven")
    assert broker.at(name, 0)["status"] == "pending"


def test_messages_of_a_producers_trace_are_told_together(broker: Traced, name: str) -> None:
    broker.topic(name)
    mine = PARENT.replace("4bf9", f"{int(name.split('-')[1]):04x}")
    broker.publish(name, "other")
    broker.publish(name, "a", headers={"traceparent": mine})
    broker.let_pass(SECOND_MS)
    broker.publish(name, "b", headers={"traceparent": mine})
    broker.let_pass(SECOND_MS)
    member = Member(broker.client, f"{name}-g", name)
    mixed = {each["value"]: each["receipt_handle"] for each in member.poll()}
    broker.settle("reject", mixed["b"])
    until(lambda: kinds(broker.search(topic=name, partition=0, offset=2)["traces"][0])[-1] == "dlq")
    story = broker.trace(mine[3:35].upper())
    assert (story["trace_id"], story["offset"], story["also"]) == (mine[3:35], 1, [place(name, 2)])
    told = [(event, details.get("offset", 1)) for _, event, details in broker.timeline(story)]
    assert told == [("publish", 1), ("publish", 2), ("consume", 1), ("consume", 2), ("reject", 2), ("dlq", 2)]
    assert story["status"] == "error"
    # Who knows only where a message lies finds it as well.
    assert broker.at(name, 1)["trace_id"] == mine[3:35]


@pytest.mark.parametrize("trace_id", ["x", "0" * 32, "a" * 31, "a" * 33, "g" * 32, "%20", "ü" * 32])
def test_what_is_no_trace_id_is_told_so(broker: Traced, trace_id: str) -> None:
    assert "32 hexadecimal digits" in refused(broker.client.get(f"/traces/{trace_id}"), 400, "invalid_request")


def test_an_unknown_trace_is_not_found(broker: Traced, name: str) -> None:
    broker.topic(name)
    for trace_id in ("f" * 32, derived_trace_id(name, 0, 0), derived_trace_id(name, 0, 1 << 63)):
        refused(broker.client.get(f"/traces/{trace_id}"), 404, "trace_not_found")
    for offset in (5, 1 << 40, (1 << 63) - 1):
        query = {"topic": name, "partition": 0, "offset": offset}
        refused(broker.client.get("/traces/search", params=query), 404, "trace_not_found")


def test_a_topic_made_again_has_none_of_the_old_stories(broker: Traced, name: str) -> None:
    def dies() -> None:
        broker.publish(name, "later", delay="1s")
        broker.let_pass(SECOND_MS)
        member = Member(broker.client, f"{name}-g", name)
        broker.settle("reject", member.receipts())
        until(lambda: kinds(broker.at(name, 0))[-1] == "dlq")
        answered(broker.client.post(f"/topics/{name}/redrive", json={}))
        until(lambda: kinds(broker.at(name, 0))[-1] == "redriven")
        member.leave()

    broker.topic(name)
    dies()
    for each in (name, f"{name}.dlq"):
        answered(broker.client.delete(f"/topics/{each}"))
    broker.let_pass(SECOND_MS)
    broker.topic(name)
    refused(broker.client.get(f"/traces/{derived_trace_id(name, 0, 0)}"), 404, "trace_not_found")
    broker.begun_ns = broker.clock.now_ns()
    dies()
    told = [(seconds, event) for seconds, event, _ in broker.timeline(broker.at(name, 0))]
    assert told == [
        (0, "publish"),
        (0, "delay"),
        *((1, each) for each in ("fired", "consume", "reject", "dlq", "redriven")),
    ]
    assert [kinds(each) for each in broker.search(topic=name)["traces"]] == [[event for _, event in told]]


def test_what_retention_removed_is_still_told(broker: Traced, name: str) -> None:
    broker.topic(name, retention_ms=60_000, segment_bytes=65_536)
    broker.publish(name, "v")
    broker.settle("ack", Member(broker.client, f"{name}-g", name).receipts())
    broker.let_pass(120 * SECOND_MS)
    log = broker.host.broker.topic(name).partition(0).log
    while log.start_offset == 0:
        broker.publish(name, "x" * 40_000)
        broker.let_pass(61 * SECOND_MS)
        broker.host.thread.run(broker.host.broker._upkeep.expire())
    story = broker.at(name, 0)
    assert (kinds(story), story["in_log"], story["status"]) == (["publish", "consume", "ack"], False, "completed")
