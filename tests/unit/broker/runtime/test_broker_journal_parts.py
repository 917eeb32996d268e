"""Snapshots by parts: whatever happens while one is taken, a load gives the state that was live."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doubles.inline import InlineExecutor
from doubles.messages import Ticking
from doubles.power_loss import PowerLossDisk
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.broker.runtime import journal as journal_module
from goqueue.broker.runtime.journal import Journal
from goqueue.coordination.catalog import Catalog, CatalogEvent, TopicRecord
from goqueue.coordination.group import (
    GroupChanged,
    GroupDeleted,
    GroupMade,
    Member,
    MemberJoined,
    MemberLeft,
    Rebalanced,
)
from goqueue.coordination.group_view import GroupForgotten, decide_view
from goqueue.coordination.partition_starts import StartForgotten, StartMoved
from goqueue.coordination.shard_state import JournaledEvent, ShardState
from goqueue.delivery.events import (
    Acked,
    Delivered,
    Moved,
    Moving,
    QueueClosed,
    QueueOpened,
    ResetTo,
    Returned,
    Target,
)
from goqueue.delivery.leases import lease_in
from goqueue.model.errors import CorruptData, GoQueueError
from goqueue.model.ids import partition_key, queue_key
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recoverable import Recoverable
from goqueue.storage.log.recovery import open_log

ROOT = Path("/data")
FOLDER = ROOT / "logs" / "__state" / "0"
SNAPSHOT = ROOT / "snapshots" / "__state"
NAMES = ("a", "b", "c")
TOPICS = ("t1", "t2")
TARGET = Target("t.dlq", "", 0, 0)


def opened(
    disk: PowerLossDisk, make: Any, events: Any, segment_bytes: int = 64 << 20, point: RecoveryPoint | None = None
) -> Journal[Any]:
    for folder in (FOLDER, SNAPSHOT.parent):
        disk.make_dirs(folder)
    log = open_log(OpenFiles(disk, 100), FOLDER, LogOptions(segment_bytes, 300), Ticking(), point)
    commits = GroupCommit(disk, ROOT)
    commits._thread = InlineExecutor()  # type: ignore[assignment]
    vouched_end = 0 if point is None else point.base + point.count
    journal: Journal[Any] = Journal(log, commits, SNAPSHOT, make, events, 50, vouched_end)
    journal.load()
    return journal


def shape(machine: Any) -> dict[str, Any]:
    """The state, apart from the order in which things are kept."""
    found = {part: msgspec.json.decode(machine.dump(part)) for part in machine.parts()}
    for state in found.values():
        if isinstance(state, dict) and "parcels" in state:
            state["parcels"].sort(key=msgspec.json.encode)
    return found


class Life:
    """Groups that come and go, and what happens to their messages; decided on the state, as a broker does."""

    def __init__(self) -> None:
        self.serial = 0

    def decide(self, groups: ShardState, command: str, name: str, number: int) -> list[Any]:
        group = groups.by_name.get(name)
        self.serial += 1
        if group is None:
            return [GroupMade(name, f"id{self.serial}", {}, self.serial)]
        topic = TOPICS[number % len(TOPICS)]
        key = queue_key(group.state.identity, topic, 0)
        queue = groups.by_key.get(key)
        if command == "delete":
            return [GroupDeleted(name)]
        if command == "change":
            return [GroupChanged(name, {"max_in_flight": number + 1})]
        if command == "join":
            member = Member(f"m{self.serial}", "m", [topic], 1_000)
            owners = {f"{topic}/0": member.member_id}
            joined = MemberJoined(name, member)
            return [joined, Rebalanced(name, group.state.generation + 1, owners, {})]
        if command == "show":
            state = group.state
            owners = {place: owner for place, owner in state.owners.items() if owner in state.members}
            seen = decide_view(group, state.overrides, groups.views.get(name), owners, is_shared=number == 0)
            return [] if seen is None else [seen]
        if command == "begin later":
            return [StartMoved(partition_key(topic, 0), self.serial)]
        if command == "begin nowhere":
            return [StartForgotten(partition_key(topic, 0))]
        if command == "forget":
            return [GroupForgotten(name, view.identity) for view in groups.views.values() if view.group == name]
        if command == "leave":
            return [MemberLeft(name, each, self.serial) for each in list(group.state.members)[:1]]
        if queue is None:
            return [QueueOpened(key, name, topic, 0, number)]
        return self._on_queue(queue, command, number)

    def _on_queue(self, queue: Any, command: str, number: int) -> list[Any]:
        key, lane = queue.key, number % 2 + 1
        cursor = queue.cursor(lane)
        parts = [(batch.lease, batch.runs) for batch in queue.batches()][: number + 1]
        match command:
            case "close":
                return [QueueClosed(key)]
            case "reset":
                return [ResetTo(key, number)]
            case "ack":
                return [Acked(key, parts)]
            case "nack":
                return [Returned(key, parts, 10**18 + number, "no")]
            case "move":
                return [Moving(key, parts, [], "dead", TARGET)]
            case "moved":
                return [Moved(key, [edge for offset in sorted(queue.moving)[:2] for edge in (offset, offset + 1)])]
            case _:
                runs = [cursor, cursor + 1 + number]
                left = [(3 - lane, queue.front)] if runs[1] > queue.front and command == "leave behind" else []
                return [Delivered(key, runs, [], runs[1], "m", 10**18 + self.serial, lane, left)]


COMMANDS = (
    "delete",
    "change",
    "join",
    "leave",
    "show",
    "forget",
    "begin later",
    "begin nowhere",
    "close",
    "reset",
    "ack",
    "nack",
    "move",
    "moved",
    "deliver",
    "leave behind",
)
Commands = st.lists(st.tuples(st.sampled_from(COMMANDS), st.sampled_from(NAMES), st.integers(0, 3)), max_size=60)


@settings(max_examples=150, deadline=None)
@given(before=Commands, during=st.lists(Commands, max_size=4), after=Commands)
def test_a_load_after_any_interleaving_of_events_and_a_snapshot_gives_the_live_state(
    before: list[Any], during: list[list[Any]], after: list[Any]
) -> None:
    async def run() -> None:
        disk = PowerLossDisk()
        journal = opened(disk, ShardState, JournaledEvent)
        life = Life()

        async def carry_out(commands: list[Any]) -> None:
            for command in commands:
                await journal.submit(lambda groups, command=command: life.decide(groups, *command))

        await carry_out(before)
        turns = iter(during)
        dump = journal.machine.dump

        def interrupted(part: str) -> bytes | None:
            # Between any two parts, as if the loop had had a turn.
            for command in next(turns, ()):
                journal.propose(life.decide(journal.machine, *command))
            return dump(part)

        journal.machine.dump = interrupted  # type: ignore[method-assign]
        await journal.snapshot()
        del journal.machine.dump
        await carry_out(after)
        loaded = opened(disk, ShardState, JournaledEvent)
        assert shape(loaded.machine) == shape(journal.machine)
        for name in journal.machine.names():
            identity = journal.machine.by_name[name].state.identity
            live, again = journal.machine.by_group.get(identity, {}), loaded.machine.by_group.get(identity, {})
            assert again.keys() == live.keys()
            if live:
                assert loaded.machine.in_flight[identity] == journal.machine.in_flight[identity]

    asyncio.run(run())


def test_a_group_that_was_deleted_and_made_again_during_a_snapshot_is_kept() -> None:
    async def run() -> None:
        disk = PowerLossDisk()
        journal = opened(disk, ShardState, JournaledEvent)
        await journal.submit(lambda _: [GroupMade("g", "one", {}, 1)])
        dump = journal.machine.dump

        def gone(part: str) -> bytes | None:
            journal.machine.dump = dump  # type: ignore[method-assign]
            journal.propose([GroupDeleted("g")])
            found = dump(part)
            journal.propose([GroupMade("g", "two", {}, 2)])
            return found

        journal.machine.dump = gone  # type: ignore[method-assign]
        await journal.snapshot()
        assert opened(disk, ShardState, JournaledEvent).machine.by_name["g"].state.identity == "two"

    asyncio.run(run())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["create", "change", "delete", "snapshot"]), st.sampled_from(NAMES))))
def test_a_load_of_the_catalog_gives_the_live_state(commands: list[tuple[str, str]]) -> None:
    async def run() -> None:
        disk = PowerLossDisk()
        journal = opened(disk, Catalog, CatalogEvent)
        for place, (command, name) in enumerate(commands):
            if command == "snapshot":
                await journal.snapshot()
                continue

            def decide(
                catalog: Catalog, command: str = command, name: str = name, place: int = place
            ) -> list[CatalogEvent]:
                if command == "create":
                    return catalog.decide_create(TopicRecord(f"id{place}", name, 1, place), 10, 10)
                if command == "change":
                    return catalog.decide_change(name, {"retention_ms": place})
                return catalog.decide_delete(name)

            try:
                await journal.submit(decide)
            except GoQueueError:
                continue
        assert shape(opened(disk, Catalog, CatalogEvent).machine) == shape(journal.machine)

    asyncio.run(run())


def test_others_have_their_turn_while_a_large_state_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_DUMPED_AT_A_STRETCH", 1_000)

    async def run() -> None:
        disk = PowerLossDisk()
        journal = opened(disk, ShardState, JournaledEvent)
        for number in range(200):
            journal.propose([GroupMade(f"g{number}", f"id{number}", {}, 1)])
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1
                journal.propose([GroupChanged("g199", {"max_in_flight": turns})])

        busy = asyncio.create_task(others())
        await journal.snapshot()
        busy.cancel()
        assert turns > 5
        await journal.settled()
        assert shape(opened(disk, ShardState, JournaledEvent).machine) == shape(journal.machine)

    asyncio.run(run())


def test_a_journal_begins_where_its_snapshot_began_not_where_that_ended() -> None:
    """What came in between is in none of the parts that were dumped before it came."""

    async def run() -> None:
        disk = PowerLossDisk()
        journal = opened(disk, ShardState, JournaledEvent, segment_bytes=300)
        await journal.submit(lambda _: [GroupMade("a", "one", {}, 1)])
        await journal.submit(lambda _: [GroupMade("b", "two", {}, 1)])
        begin, dump = journal.log.end_offset, journal.machine.dump

        def interrupted(part: str) -> bytes | None:
            found = dump(part)
            for number in range(10):
                journal.propose([GroupChanged("a", {"max_in_flight": number + 1})])
            return found

        journal.machine.dump = interrupted  # type: ignore[method-assign]
        await journal.snapshot()
        del journal.machine.dump
        assert journal.log.start_offset == begin < journal.log.end_offset
        # As a checkpoint does it: the new start is vouched for, and the files below it go.
        await journal.settled()
        point = journal.log.recovery_point()
        Recoverable(journal.log).point_saved(point)
        assert shape(opened(disk, ShardState, JournaledEvent, point=point).machine) == shape(journal.machine)

    asyncio.run(run())


async def with_a_snapshot_of_events_that_came_meanwhile(disk: PowerLossDisk) -> Journal[Any]:
    """Two that came between its beginning and its end. Neither knows of itself, or of the other, as durable."""
    journal = opened(disk, ShardState, JournaledEvent)
    await journal.submit(lambda _: [GroupMade("a", "one", {}, 1)])
    dump = journal.machine.dump

    def interrupted(part: str) -> bytes | None:
        if journal.log.end_offset == 1:
            journal.propose([GroupChanged("a", {"max_in_flight": 11})])
            journal.propose([GroupChanged("a", {"max_in_flight": 22})])
        return dump(part)

    journal.machine.dump = interrupted  # type: ignore[method-assign]
    await journal.snapshot()
    assert (journal.log.start_offset, journal.log.end_offset) == (1, 3)
    return journal


@pytest.mark.parametrize("damaged", [b"11", b"22"])
def test_an_event_that_a_snapshot_knows_as_durable_is_never_cut_off(damaged: bytes) -> None:
    """What follows it does not know that it was durable; and if it is the last, the log ends before the snapshot."""

    async def run() -> None:
        disk = PowerLossDisk()
        journal = await with_a_snapshot_of_events_that_came_meanwhile(disk)
        disk.damage(journal.log.active.log_path, lambda content: content.replace(b":" + damaged, b":99"))
        with pytest.raises(CorruptData):
            opened(disk, ShardState, JournaledEvent)
        # What is left is for a person to look at.
        left = b"".join(disk.content(FOLDER / name) for name in disk.list_dir(FOLDER))
        assert b":99" in left
        assert damaged == b"22" or b":22" in disk.content(journal.log.active.log_path)

    asyncio.run(run())


def test_a_last_event_that_a_recovery_point_vouches_for_is_never_passed_over() -> None:
    """The log takes the point's word, and does not look at it again."""

    async def run() -> None:
        disk = PowerLossDisk()
        journal = opened(disk, ShardState, JournaledEvent)
        for number in (11, 22):
            await journal.submit(lambda _, number=number: [GroupMade(f"g{number}", f"id{number}", {}, 1)])
        point = journal.log.recovery_point()
        disk.damage(journal.log.active.log_path, lambda content: content.replace(b"id22", b"id99"))
        with pytest.raises(CorruptData):
            opened(disk, ShardState, JournaledEvent, point=point)

    asyncio.run(run())


def test_a_journal_stays_small_under_steady_traffic() -> None:
    """Snapshots move its start, and segments below that go."""

    async def run() -> None:
        disk = PowerLossDisk()
        journal = opened(disk, ShardState, JournaledEvent, segment_bytes=4_000)
        key = queue_key("id", "t", 0)
        await journal.submit(lambda _: [GroupMade("g", "id", {}, 1), QueueOpened(key, "g", "t", 0, 0)])
        sizes = []
        for number in range(600):
            lease = lease_in(number + 1, 2)
            journal.propose([Delivered(key, [number, number + 1], [], number + 1, "m", 10**18)])
            journal.propose([Acked(key, [(lease, [number, number + 1])])])
            if journal.snapshot_due or number % 40 == 39:
                await journal.settled()
            if journal.snapshot_due:
                await journal.snapshot()
                Recoverable(journal.log).point_saved(journal.log.recovery_point())
            sizes.append(disk.used_bytes())
        assert max(sizes[300:]) < 1.5 * max(sizes[:200])
        assert len(journal.log.segments) < 6

    asyncio.run(run())
