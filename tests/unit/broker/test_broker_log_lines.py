"""What is notable is in the log: one line each, with what is needed to find the messages it is about."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from doubles.async_tests import until
from doubles.group_broker import DEAD, GROUP, TOPIC, desk
from doubles.group_ledger import settled
from doubles.loop import on_a_loop

from goqueue.broker.dead_letters.redrive import Filter
from goqueue.broker.delays import firing as firing_module
from goqueue.broker.groups.membership import Join
from goqueue.model.errors import DiskFull
from goqueue.wire.trace_context import derived_trace_id

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = ("traceparent", f"00-{TRACE_ID}-b7ad6b7169203331-01".encode())


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="goqueue")
    return caplog


def told(log: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [each.fields for each in log.records if getattr(each.msg, "event", "") == event]  # type: ignore[attr-defined]


@on_a_loop
async def test_dead_letters_are_told_of_with_their_reason_and_their_traces(log: pytest.LogCaptureFixture) -> None:
    async with desk() as at:
        await at.publish(b"own", headers=(PARENT,))
        await at.publish(*[b"x"] * 7)
        await at.reject_all("it is bad")
        [line] = told(log, "messages became dead letters")
        assert line == {
            "group": GROUP,
            "reason": "it is bad",
            "topic": TOPIC,
            "partition": 0,
            "target": DEAD,
            "count": 8,
            "offsets": [0, 1, 2, 3, 4],
            "trace_ids": [TRACE_ID, *(derived_trace_id(TOPIC, 0, offset) for offset in (1, 2, 3, 4))],
        }
        await at.groups.dead_letters.redrive(TOPIC, Filter(), 100, None, dry_run=False)
        await settled(at.broker)
        [back] = told(log, "dead letters were sent back")
        assert (back["topic"], back["target"], back["count"]) == (DEAD, TOPIC, 8)
        # Wherever it goes, a message stays in its trace.
        assert back["trace_ids"] == line["trace_ids"]


@on_a_loop
async def test_messages_that_were_not_settled_in_time_are_told_of(log: pytest.LogCaptureFixture) -> None:
    async with desk(visibility_timeout_ms=100) as at:
        await at.publish(b"a", b"b")
        await at.poll()
        await until(lambda: told(log, "messages were not settled in time and are given back"))
        [line] = told(log, "messages were not settled in time and are given back")
        assert line == {
            "group": GROUP,
            "members": [at.members[GROUP]],
            "topic": TOPIC,
            "partition": 0,
            "count": 2,
            "offsets": [0, 1],
        }


@on_a_loop
async def test_who_joins_and_who_is_replaced_is_told(log: pytest.LogCaptureFixture) -> None:
    async with desk() as at:
        ask = Join("c", [TOPIC], {"kind": "range"}, instance_id="one")
        first = await at.groups.membership.join("h", ask)
        second = await at.groups.membership.join("h", ask)
        rebalances = [line for line in told(log, "a group is rebalanced") if line["group"] == "h"]
        assert [(line["generation"], line["members"], line["partitions"]) for line in rebalances] == [
            (1, 1, 1),
            (2, 1, 1),
        ]
        [line] = told(log, "a member is replaced by another process of its instance_id")
        assert (line["group"], line["member"], line["by"]) == ("h", first.member_id, second.member_id)


@on_a_loop
async def test_what_is_done_to_topics_and_groups_is_told(log: pytest.LogCaptureFixture) -> None:
    async with desk() as at:
        await at.broker.change_topic(TOPIC, {"max_message_bytes": 2_048})
        assert told(log, "topic changed") == [{"topic": TOPIC, "settings": {"max_message_bytes": 2_048}}]
        await at.broker.change_topic(TOPIC, {"max_message_bytes": 2_048})
        await at.groups.offsets.reset(GROUP, {TOPIC: {0: 0}})
        assert told(log, "a group was set to other offsets") == [{"group": GROUP, "topics": [TOPIC]}]
        await at.groups.membership.leave(GROUP, at.members[GROUP])
        await at.groups.delete(GROUP)
        assert told(log, "group deleted") == [{"group": GROUP}]
        await at.broker.delete_topic(TOPIC)
        assert told(log, "topic deleted") == [{"topic": TOPIC}]


@on_a_loop
async def test_delayed_messages_that_are_lost_or_must_wait_are_named(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room() -> None:
        raise DiskFull("no room for it")

    async def nothing_there(partition: object, offsets: list[int], size: int) -> tuple[dict[int, memoryview], int]:
        return {}, len(offsets)

    async with desk(join=False) as at:
        monkeypatch.setattr(firing_module, "_TRY_AGAIN_S", 1_000.0)
        firing = at.broker.delays._firing
        check_disk = firing._check_disk
        firing._check_disk = no_room
        await at.publish(b"a", b"b", delay_ms=10)
        await until(lambda: told(log, "delayed messages wait, it will be tried again"))
        line = told(log, "delayed messages wait, it will be tried again")[0]
        assert (line["topic"], line["partition"]) == (TOPIC, 0)
        assert line["error"] == "no room for it"
        firing._check_disk = check_disk
        monkeypatch.setattr(firing_module, "read_delayed_records", nothing_there)
        firing._try_again()
        await until(lambda: at.broker.delays.pending == 0)
        [line] = told(log, "delayed messages are damaged and lost")
        assert line == {
            "topic": TOPIC,
            "partition": 0,
            "count": 2,
            "offsets": [0, 1],
        }
