"""Messages that nobody was done with: passed over, given up, removed or deleted. Each is told of, and counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from doubles.group_movers import mover_of

from behaviour.http_member import Member, answered, refused
from behaviour.traced import SECOND_MS, Traced, kinds, states, traced
from behaviour.waiting import until
from goqueue.model.errors import StorageFailed
from goqueue.wire.trace_context import derived_trace_id

STREAM = {"settings": {"mode": "stream"}}
RETENTION = "retention removed it before the group was done with it"
AGED = "its time to live was over"
RESET = "the group's offsets were reset"


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with traced(tmp_path_factory.mktemp("losses")) as it:
        yield it


@pytest.fixture
def broker(shared_broker: Traced) -> Traced:
    """Time begins anew, at a tick."""
    shared_broker.clock.advance_to_tick()
    shared_broker.begun_ns = shared_broker.clock.now_ns()
    return shared_broker


def counted(broker: Traced, name: str, **labels: str) -> int:
    wanted = f"goqueue_{name}{{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "} "
    lines = [line for line in broker.client.get("/metrics").text.splitlines() if line.startswith(wanted)]
    return int(lines[0].removeprefix(wanted)) if lines else 0


def reasons(story: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (each["event_type"], each["attributes"]["reason"]) for each in story["events"] if "reason" in each["attributes"]
    ]


def remove_oldest(broker: Traced, topic: str) -> int:
    """Retention takes the first messages; returns where the log begins then."""
    broker.host.thread.run(broker.host.broker._upkeep.expire())
    start = broker.host.broker.topic(topic).partition(0).log.start_offset
    assert start > 2
    return start


def test_a_stream_that_goes_past_a_delayed_message_is_not_done_with_it(broker: Traced, name: str) -> None:
    broker.topic(name)
    broker.publish(name, "later", delay="1h")
    broker.publish(name, "now")
    member = Member(broker.client, f"{name}-g", name, **STREAM)
    assert [each["offset"] for each in member.poll()] == [1]
    answered(member.ask_commit(name, {"0": 2}))
    story = broker.at(name, 0)
    assert (kinds(story), story["status"]) == (["publish", "delay"], "pending")
    assert broker.found(topic=name, status="completed") == [(name, 1)]
    assert counted(broker, "messages_acked_total", group=f"{name}-g", topic=name) == 1


def test_a_stream_tells_what_had_expired(broker: Traced, name: str) -> None:
    broker.topic(name, message_ttl_ms=1_000)
    broker.publish(name, "old")
    broker.publish(name, "later", delay="1h")
    broker.let_pass(5 * SECOND_MS)
    broker.publish(name, "new")
    before = broker.host.broker.groups.settling.tally.expired
    member = Member(broker.client, f"{name}-g", name, **STREAM)
    assert [each["value"] for each in member.poll()] == ["new"]
    answered(member.ask_commit(name, {"0": 3}))
    story = broker.at(name, 0)
    assert (story["status"], states(story)) == ("error", [(f"{name}-g", "expired")])
    assert (kinds(story), reasons(story)) == (["publish", "expired", "committed"], [("expired", AGED)])
    assert broker.found(topic=name, status="error") == [(name, 0)]
    assert counted(broker, "messages_expired_total", group=f"{name}-g", topic=name) == 1
    assert broker.host.broker.groups.settling.tally.expired == before + 1


def test_a_dead_letter_that_is_given_up_tells_why(broker: Traced, name: str) -> None:
    dead, group = f"{name}.dlq", f"{name}-g"
    broker.topic(dead, max_retries=0, visibility_timeout_ms=1_000)
    broker.publish(dead, "nacked", "not settled")
    member = Member(broker.client, group, dead)
    broker.settle("nack", member.receipts()[0], reason="no such customer")
    broker.let_pass(2 * SECOND_MS)
    assert member.poll() == []
    told = [broker.at(dead, offset) for offset in (0, 1)]
    assert [kinds(each)[2:] for each in told] == [["nack", "discarded"], ["expired", "discarded"]]
    assert [reasons(each)[-1][1] for each in told] == ["no such customer", "its visibility timed out"]
    assert [(each["status"], states(each)) for each in told] == [("error", [(group, "dead-lettered")])] * 2
    pair = {"group": group, "topic": dead}
    assert counted(broker, "messages_discarded_total", **pair) == 2
    assert counted(broker, "messages_acked_total", **pair) == 0
    assert counted(broker, "messages_nacked_total", **pair) == counted(broker, "visibility_timeouts_total", **pair) == 1


def test_a_redriven_message_that_expires_is_an_error(broker: Traced, name: str) -> None:
    group = f"{name}-g"
    broker.topic(name, message_ttl_ms=60_000)
    broker.publish(name, "v")
    broker.settle("reject", Member(broker.client, group, name).receipts())
    until(lambda: kinds(broker.at(name, 0))[-1] == "dlq")
    answered(broker.client.post(f"/topics/{name}/redrive", json={}))
    until(lambda: kinds(broker.at(name, 0))[-1] == "redriven")
    broker.let_pass(61 * SECOND_MS)
    assert Member(broker.client, group, name).poll() == []
    story = broker.at(name, 0)
    assert (kinds(story)[-2:], story["status"]) == (["redriven", "expired"], "error")
    assert states(story) == [(group, "dead-lettered"), (group, "expired")]
    assert broker.found(topic=name, status="error") == [(name, 0)]


def test_what_retention_removes_too_early_is_lost(broker: Traced, name: str) -> None:
    queue, stream = f"{name}-q", f"{name}-s"
    broker.topic(name, retention_bytes=1 << 20, segment_bytes=64 << 10)
    member, reader = Member(broker.client, queue, name), Member(broker.client, stream, name, **STREAM)
    for _ in range(20):
        broker.publish(name, "x" * 60_000)
    broker.settle("ack", member.receipts(max_messages=1))
    member.poll(max_messages=1)
    assert reader.poll(max_messages=1)
    answered(reader.ask_commit(name, {"0": 1}))
    start = remove_oldest(broker, name)
    assert broker.at(name, 1)["status"] == "error"
    assert member.poll() and reader.poll()
    done, in_flight, waiting = (broker.at(name, offset) for offset in (0, 1, 2))
    assert (kinds(done), done["status"]) == (["publish", "consume", "ack", "consume", "committed"], "completed")
    assert kinds(in_flight).count("lost") == kinds(waiting).count("lost") == 2
    assert {in_flight["status"], waiting["status"]} == {"error"}
    assert {reason for _, reason in reasons(waiting)} == {RETENTION}
    assert "lost" not in kinds(broker.at(name, start))
    for group in (queue, stream):
        assert counted(broker, "messages_lost_total", group=group, topic=name) == start - 1
    found = {offset for _, offset in broker.found(topic=name, status="error")}
    assert found == set(range(1, start))


def test_what_retention_removes_on_its_way_to_the_dead_letters_is_lost(
    broker: Traced, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room() -> None:
        raise StorageFailed("no room for it")

    group = f"{name}-g"
    broker.topic(name, retention_bytes=1 << 20, segment_bytes=64 << 10)
    broker.publish(name, "x" * 60_000)
    member = Member(broker.client, group, name)
    with monkeypatch.context() as patched:
        patched.setattr(mover_of(broker.host.broker.groups, name), "_check_room", no_room)
        broker.settle("reject", member.receipts(), reason="bad")
        for _ in range(20):
            broker.publish(name, "x" * 60_000)
        remove_oldest(broker, name)
    until(lambda: kinds(broker.at(name, 0))[-1] == "lost")
    assert reasons(broker.at(name, 0))[-1][1] == "it had left the log before it could be moved"
    assert broker.at(name, 0)["status"] == "error"
    assert counted(broker, "messages_lost_total", group=group, topic=name) == 1


def test_a_reset_is_told_to_those_that_come_again_and_to_those_that_are_skipped(broker: Traced, name: str) -> None:
    group = f"{name}-g"
    broker.topic(name)
    broker.publish(name, *"abcd")
    member = Member(broker.client, group, name)
    broker.settle("ack", member.receipts(max_messages=2))
    answered(broker.client.post(f"/groups/{group}/reset", json={"topic": name, "to": "earliest"}))
    story = broker.at(name, 0)
    assert (kinds(story)[-1], reasons(story), story["status"]) == ("reset", [("reset", RESET)], "pending")
    assert kinds(broker.at(name, 3)) == ["publish"]
    broker.settle("ack", member.receipts(max_messages=1))
    story = broker.at(name, 0)
    assert (kinds(story)[-3:], story["status"]) == (["reset", "consume", "ack"], "completed")
    answered(broker.client.post(f"/groups/{group}/reset", json={"topic": name, "to": "latest"}))
    assert [kinds(broker.at(name, offset))[-1] for offset in range(4)] == ["ack", "skipped", "skipped", "skipped"]
    assert broker.at(name, 3)["status"] == "completed"


def test_a_message_that_did_not_fit_stays_in_its_producers_trace(broker: Traced, name: str) -> None:
    trace_id = f"{int(name.split('-')[1]):032x}"
    headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01", "other": "x"}
    schema = {"schemaType": "JSON", "schema": json.dumps({"type": "object"})}
    assert broker.client.post(f"/subjects/{name}-value/versions", json=schema).status_code == 200
    broker.topic(name, schema_validation="dead_letter")
    broker.publish(name, "1", headers=headers)
    until(lambda: kinds(broker.at(name, 0))[-1] == "dlq")
    story = broker.at(name, 0)
    assert (story["trace_id"], kinds(story), story["status"]) == (trace_id, ["publish", "dlq"], "error")
    assert broker.trace(trace_id) == broker.at(f"{name}.dlq", 0) == story
    assert counted(broker, "messages_refused_total", topic=name) == 1
    answered(broker.client.patch(f"/topics/{name}", json={"settings": {"schema_validation": "on"}}))
    broker.client.post(f"/topics/{name}/messages", json={"messages": [{"value": "2"}, {"value": "{}"}]})
    assert counted(broker, "messages_refused_total", topic=name) == 2


def test_a_clock_that_is_set_back_hides_nothing(broker: Traced, name: str) -> None:
    group = f"{name}-g"
    broker.topic(name)
    broker.publish(name, "v")
    member = Member(broker.client, group, name)
    broker.clock._now_ns -= 5_000 * 1_000_000
    broker.settle("reject", member.receipts())
    until(lambda: kinds(broker.at(name, 0))[-1] == "dlq")
    broker.clock._now_ns -= 5_000 * 1_000_000
    broker.settle("ack", Member(broker.client, f"{name}-h", f"{name}.dlq").receipts())
    broker.publish(name, "w")
    told = ["publish", "consume", "reject", "dlq", "consume", "ack"]
    assert kinds(broker.at(name, 0)) == told
    assert [kinds(each) for each in broker.search(topic=name, status="error")["traces"]] == [told]
    assert broker.at(name, 1)["events"][0]["attributes"] == {}
    broker.restart()
    assert kinds(broker.at(name, 0)) == told


def test_what_was_deleted_with_its_topic_is_told_however_one_asks(broker: Traced, name: str) -> None:
    broker.topic(name)
    broker.publish(name, *"abc")
    member = Member(broker.client, f"{name}-g", name)
    broker.settle("ack", member.receipts(max_messages=2)[0])
    answered(broker.client.delete(f"/topics/{name}"))
    told = {each["offset"]: each for each in broker.search(consumer_group=f"{name}-g")["traces"]}
    assert told == {offset: broker.at(name, offset) for offset in (0, 1)}
    assert [(kinds(each)[-1], each["status"], each["in_log"]) for each in (told[0], told[1], broker.at(name, 2))] == [
        ("deleted", "completed", False), ("deleted", "error", False), ("deleted", "error", False)
    ]  # fmt: skip
    assert broker.search(topic=name, partition=0, offset=1)["traces"] == [told[1]]
    assert [each["offset"] for each in broker.search(topic=name, status="error")["traces"]] == [2, 1]
    refused(broker.client.get("/traces/search", params={"topic": f"{name}-x"}), 404, "topic_not_found")
    place = {"topic": f"{name}-x", "partition": 0, "offset": 0}
    refused(broker.client.get("/traces/search", params=place), 404, "topic_not_found")
    # A topic of that name that comes later has nothing to do with it, whatever the clock says.
    broker.clock._now_ns -= 5_000 * 1_000_000
    broker.topic(name)
    refused(broker.client.get(f"/traces/{derived_trace_id(name, 0, 1)}"), 404, "trace_not_found")
    broker.publish(name, "new")
    assert kinds(broker.at(name, 0)) == ["publish"]
    assert broker.found(topic=name) == [(name, 0)]
