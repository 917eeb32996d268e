"""Any sequence of events, in any lanes, against a plain table of what became of each offset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.broker.shards import backlog, lag
from goqueue.delivery.events import (
    Acked,
    AnyQueueEvent,
    CutTo,
    Delivered,
    Dropped,
    Extended,
    Moved,
    Moving,
    QueueEvent,
    QueueOpened,
    Redelivered,
    Released,
    ResetTo,
    Returned,
    Target,
)
from goqueue.delivery.lane import is_ready
from goqueue.delivery.leases import lane_of, lease_in
from goqueue.delivery.queue import Queue, QueueDump
from goqueue.model.message import HIDDEN
from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.runs import Offsets, offsets_in, to_runs

Q = "g/t/0"
TARGET = Target("t.dlq", "d", 0, 0)
MEMBERS = ("a", "b")
NORMAL = 2
MANY = 1_000
GONE = HIDDEN + 1
"""Compaction took it."""
lanes_of_messages = st.lists(st.sampled_from([0, 1, 2, 2, 2, 3, 4, HIDDEN]), min_size=1, max_size=6)
"""What is delayed is in no lane that anyone is served from."""


@dataclass
class Held:
    member: str | None
    count: int
    at_ns: int


@dataclass
class Table:
    """Offset by offset; one that is nowhere is new. It stands for the partition as well."""

    lanes: list[int] = field(default_factory=list)
    start: int = 0
    front: int = 0
    held: dict[int, Held] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    parked: set[int] = field(default_factory=set)
    moving: set[int] = field(default_factory=set)
    acked: set[tuple[int, int]] = field(default_factory=set)
    """By which lease, and which offset."""

    @property
    def end(self) -> int:
        return len(self.lanes)

    def of_lane(self, lane: int, first: int, end: int) -> list[int]:
        return [each for each in range(max(first, self.start), min(end, self.end)) if self.lanes[each] == lane]

    def visible(self) -> Iterator[tuple[int, int]]:
        return ((offset, lane) for offset, lane in enumerate(self.lanes) if lane < HIDDEN)

    def forget(self, offsets: set[int]) -> None:
        """They are in no state but what comes next."""
        self.parked -= offsets
        for offset in offsets:
            self.held.pop(offset, None)

    @property
    def committed(self) -> int:
        return min([self.front, *(offset for offset, _ in self.visible() if offset not in self.done)])

    # As a partition

    @property
    def producers(self) -> Table:
        return self

    @property
    def state(self) -> Table:
        return self

    @property
    def aborted(self) -> OffsetRuns:
        return OffsetRuns()

    @property
    def stable_end(self) -> int:
        return self.end

    @property
    def log(self) -> Any:
        return self

    @property
    def start_offset(self) -> int:
        return self.start

    @property
    def special_end(self) -> int:
        return max((offset + 1 for offset, lane in enumerate(self.lanes) if lane not in (NORMAL, GONE)), default=0)


class PlainLanes:
    """Counts and finds the messages of a lane by looking at each."""

    @staticmethod
    def count(table: Table, lane: int, offset: int, limit: int) -> int:
        return len(table.of_lane(lane, offset, limit))

    @staticmethod
    def counts(table: Table, cursors: list[int], limit: int, most: int) -> list[int]:
        return [min(most, len(table.of_lane(lane, at, limit))) for lane, at in enumerate(cursors)]

    @staticmethod
    def first(table: Table, lane: int, offset: int, limit: int) -> int | None:
        return next(iter(table.of_lane(lane, offset, limit)), None)

    @staticmethod
    def visible(table: Table, offset: int, limit: int) -> int:
        return sum(len(table.of_lane(lane, offset, limit)) for lane in range(HIDDEN))


class Script:
    """Draws events that a broker could decide on, and applies them to both."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.in_flight: dict[str, int] = {}
        self.queue = Queue(QueueOpened(Q, "g", "t", 0, 0), self.in_flight)
        self.table = Table()
        self.now = 1

    def draw_held(self) -> dict[int, list[int]]:
        """Some of what is held, by lease."""
        chosen: dict[int, list[int]] = {}
        for batch in self.queue.batches():
            for offset in offsets_in(batch.runs):
                if self.data.draw(st.booleans()):
                    chosen.setdefault(batch.lease, []).append(offset)
        return chosen

    def step(self) -> None:
        self.now += 1
        what = self.data.draw(
            st.sampled_from(["append"] + ["deliver"] * 4 + ["parked"] + ["settle"] * 5)
            | st.sampled_from(["moved", "drop", "compact", "reset", "cut", "restart", "pass over"])
        )
        match what:
            case "append":
                self.table.lanes += self.data.draw(lanes_of_messages)
            case "deliver":
                self.deliver()
            case "parked":
                self.deliver_parked()
            case "settle":
                self.settle()
            case "pass over":
                self.pass_over()
            case "restart":
                self.restart()
            case _:
                self.from_outside(what)

    def apply(self, *events: AnyQueueEvent) -> None:
        for event in events:
            # As it comes out of the journal.
            again = msgspec.json.decode(msgspec.json.encode(event), type=type(event))
            assert isinstance(again, QueueEvent)
            self.queue.apply(again)

    def written(self, offsets: list[int]) -> Offsets:
        """In one way or the other."""
        if offsets and self.data.draw(st.booleans()):
            bits = sum(1 << offset - offsets[0] for offset in offsets)
            return f"{offsets[0]}:{bits:x}"
        return to_runs(offsets)

    # New messages

    def deliver(self) -> None:
        """As a poll does: the lane's next messages, each with its fate, as far as the lane has nothing else."""
        queue, table, draw = self.queue, self.table, self.data.draw
        reads_all = backlog.is_plain(queue, table)  # type: ignore[arg-type]
        lane = NORMAL if reads_all else draw(st.integers(0, 4))
        cursor = queue.cursor(lane)
        looked = table.of_lane(lane, cursor, table.end)[: draw(st.integers(1, 6))]
        if not looked:
            if reads_all and table.end > cursor:
                self.apply(Delivered(Q, [], None, table.end, "a", 0, lane))
                table.front = table.end
            return
        fates: dict[str, list[int]] = {"deliver": [], "skip": [], "park": [], "expire": [], "moving": []}
        for offset in looked:
            if offset in table.moving:
                fates["moving"].append(offset)
            elif offset in table.done:
                fates["skip"].append(offset)
            else:
                fates[draw(st.sampled_from(["deliver"] * 5 + ["skip", "park", "expire"]))].append(offset)
        upto = looked[-1] + 1
        left = []
        if not reads_all:
            upto = backlog.next_of_lane(table, lane, upto, queue.front)  # type: ignore[arg-type]
            left = backlog.left_behind(table, lane, queue.front, upto)  # type: ignore[arg-type]
        member = draw(st.sampled_from(MEMBERS))
        kept = {*fates["deliver"], *fates["park"], *fates["expire"], *fates["moving"]}
        skipped = None
        if kept != set(fates["deliver"]) or draw(st.booleans()):
            skipped = to_runs(each for each in range(cursor, upto) if each not in kept)
        event = Delivered(Q, self.written(fates["deliver"]), skipped, upto, member, self.now + 50, lane, left)
        bad: list[AnyQueueEvent] = []
        if fates["expire"]:
            fresh = to_runs(fates["expire"])
            # A dead letter itself is done instead.
            is_dead_letter = draw(st.booleans())
            bad = [Moved(Q, fresh, lane) if is_dead_letter else Moving(Q, [], fresh, "old", TARGET, lane)]
            (table.done if is_dead_letter else table.moving).update(fates["expire"])
        self.apply(event, *bad)
        table.held |= {each: Held(member, 1, self.now + 50) for each in fates["deliver"]}
        table.done |= set(fates["skip"])
        table.parked |= set(fates["park"])
        table.front = max(table.front, upto)

    def deliver_parked(self) -> None:
        lane = self.data.draw(st.integers(0, 4))
        parked = [each for each in sorted(self.table.parked) if self.table.lanes[each] == lane]
        taken = [each for each in parked if self.data.draw(st.booleans())]
        gone = [each for each in parked if each not in taken and self.data.draw(st.booleans())]
        member = self.data.draw(st.sampled_from(MEMBERS))
        upto = self.queue.cursor(lane)
        self.apply(Delivered(Q, to_runs(taken), to_runs(gone), upto, member, self.now + 50, lane))
        self.table.forget({*taken, *gone})
        self.table.held |= {each: Held(member, 1, self.now + 50) for each in taken}
        self.table.done |= set(gone)

    def pass_over(self) -> None:
        """What lies next is delayed."""
        queue, table = self.queue, self.table
        if table.end > queue.front and not backlog.waiting(queue, table, 1):  # type: ignore[arg-type]
            self.apply(Delivered(Q, [], None, table.end, "a", 0, self.data.draw(st.integers(0, 4))))
            table.front = table.end

    # Messages that were delivered

    def settle(self) -> None:
        table, draw = self.table, self.data.draw
        what = draw(st.sampled_from(["again", "again", "ack", "ack", "return", "release", "extend", "move"]))
        parts = self.draw_held()
        if what == "release":
            # Only what is in flight: it counts at least once.
            parts = {
                lease: [each for each in offsets if table.held[each].member is not None]
                for lease, offsets in parts.items()
            }
        flat = {offset for offsets in parts.values() for offset in offsets}
        packed = [(lease, self.written(sorted(offsets))) for lease, offsets in parts.items()]
        member, at_ns = draw(st.sampled_from(MEMBERS)), draw(st.sampled_from([0, self.now + 5]))
        held = {each: table.held[each] for each in flat}
        match what:
            case "again":
                self.apply(Redelivered(Q, packed, member, self.now + 50))
                table.held |= {each: Held(member, one.count + 1, self.now + 50) for each, one in held.items()}
            case "ack":
                self.apply(Acked(Q, packed))
                table.forget(flat)
                table.done |= flat
                table.acked |= {(lease, each) for lease, offsets in parts.items() for each in offsets}
            case "return":
                self.apply(Returned(Q, packed, at_ns, "no"))
                table.held |= {each: Held(None, one.count, at_ns) for each, one in held.items()}
            case "release":
                self.apply(Released(Q, packed))
                table.held |= {each: Held(None, one.count - 1, 0) for each, one in held.items()}
            case "extend":
                self.apply(Extended(Q, packed, self.now + 99))
                table.held |= {each: Held(one.member, one.count, self.now + 99) for each, one in held.items()}
            case "move":
                self.apply(Moving(Q, packed, [], "bad", TARGET))
                table.forget(flat)
                table.moving |= flat

    def from_outside(self, what: str) -> None:
        table, draw = self.table, self.data.draw
        if what == "moved":
            some = {each for each in table.moving if draw(st.booleans())}
            self.apply(Moved(Q, to_runs(sorted(some))))
            table.moving -= some
            table.done |= some
        elif what == "drop":
            table.start = draw(st.integers(table.start, table.end))
            self.apply(Dropped(Q, table.start))
            table.forget(set(range(table.start)))
            table.done |= set(range(table.start))
            table.front = max(table.front, table.start)
            self.catch_up()
        elif what == "compact":
            known = {*table.held, *table.done, *table.moving, *table.parked}
            for offset in range(table.start, table.end):
                if offset not in known and draw(st.booleans()):
                    table.lanes[offset] = GONE
            self.catch_up()
        elif what == "reset":
            to = draw(st.integers(table.start, table.end))
            self.apply(ResetTo(Q, to))
            table.forget(set(range(table.end)))
            table.done, table.front = set(range(to)), to
            table.acked.clear()
        elif what == "cut":
            end = draw(st.integers(table.start, table.end))
            self.apply(CutTo(Q, end))
            gone = set(range(end, table.end))
            table.forget(gone)
            table.done -= gone
            table.moving -= gone
            table.acked = {each for each in table.acked if each[1] < end}
            table.front = min(table.front, end)
            del table.lanes[end:]
            self.catch_up()

    def catch_up(self) -> None:
        """As the next poll does."""
        there = backlog.waiting(self.queue, self.table, MANY)  # type: ignore[arg-type]
        for lane in backlog.stranded(self.queue, there):
            self.apply(Delivered(Q, [], None, self.queue.front, "a", 0, lane))

    def restart(self) -> None:
        packed = msgspec.json.encode(self.queue.dump())
        self.in_flight = {}
        self.queue = Queue.load(Q, msgspec.json.decode(packed, type=QueueDump), self.in_flight)
        assert msgspec.json.encode(self.queue.dump()) == packed
        self.queue.leases.ripen(self.now)

    # What must hold

    def check(self) -> None:
        self.check_batches()
        self.check_lanes()
        self.check_numbers()
        self.check_acks()

    def check_acks(self) -> None:
        """Of each lease exactly what it has acked itself is known as acked by it, whoever else has done the rest."""
        for number in range(1, self.queue.leases.next_number):
            for lease in (lease_in(number, lane) for lane in range(HIDDEN)):
                for offset in range(self.table.end):
                    assert self.queue.was_acked(lease, offset) == ((lease, offset) in self.table.acked)

    def check_batches(self) -> None:
        queue, table = self.queue, self.table
        held: dict[int, tuple[str | None, int]] = {}
        for batch in queue.batches():
            for offset in offsets_in(batch.runs):
                assert offset not in held, "in two batches at once"
                assert lane_of(batch.lease) == table.lanes[offset]
                held[offset] = batch.member, batch.count
                assert queue.leases.find(batch.lease, offset) is batch
        assert held == {offset: (each.member, each.count) for offset, each in table.held.items()}
        assert {offset: move.lane for offset, move in queue.moving.items() if offset >= table.start} == {
            offset: table.lanes[offset] for offset in table.moving if offset >= table.start
        }
        counts = {who: sum(each.member == who for each in table.held.values()) for who in MEMBERS}
        assert self.in_flight == {who: count for who, count in counts.items() if count}
        assert queue.leases.in_flight == sum(counts.values()) and queue.leases.outstanding == len(held)

    def check_lanes(self) -> None:
        queue, table = self.queue, self.table
        assert queue.front == table.front
        for lane in range(HIDDEN):
            cursor, known = queue.cursor(lane), queue.lanes.get(lane)
            mine = [offset for offset in table.held if table.lanes[offset] == lane]
            ready = {each for each in mine if table.held[each].member is None and table.held[each].at_ns <= self.now}
            found = () if known is None else [batch for batch in known.ready if is_ready(batch)]
            assert {offset for batch in found for offset in offsets_in(batch.runs)} == ready
            assert (queue.first_ready(lane) is not None) == bool(ready)
            assert (0 if known is None else known.outstanding) == len(mine)
            assert cursor <= queue.front
            somewhere = table.done | table.moving | table.parked | set(mine)
            assert set(table.of_lane(lane, 0, cursor)) <= somewhere, "passed over and lost"
            assert not set(table.of_lane(lane, cursor, table.end)) & (table.parked | set(mine)), "would come twice"

    def check_numbers(self) -> None:
        queue, table = self.queue, self.table
        if queue.committed != table.committed:
            # A lane stands where its next message was, and goes on when it is served.
            assert table.start <= queue.committed < table.committed
            assert queue.committed == table.start or table.lanes[queue.committed] == GONE
        for offset, lane in table.visible():
            assert queue.is_done(offset, lane) == (offset in table.done)
        assert queue.parked == len(table.parked)
        there = [each for each in table.visible() if each[0] >= table.start]
        undone = [offset for offset, _ in there if offset not in table.done]
        partition: Any = table
        assert lag.lag(queue, partition) == len(undone)
        new = [each for each in undone if each not in table.held and each not in table.moving | table.parked]
        if new:
            assert backlog.has_new(queue, partition, partition.stable_end), "nobody would look at what is new"
        waiting = backlog.waiting(queue, partition, MANY)
        for lane in range(HIDDEN):
            ready = [o for o, each in table.held.items() if each.member is None and each.at_ns <= self.now]
            to_come = table.of_lane(lane, queue.cursor(lane), table.end)
            again = [each for each in ready if table.lanes[each] == lane]
            assert waiting.get(lane, 0) == len(to_come) + len(again)
        if not there or all(offset in table.done for offset, _ in there):
            assert queue.lanes == {} or queue.known_end > queue.front


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_queue_knows_of_every_offset_what_became_of_it(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backlog, "lanes", PlainLanes)
        patched.setattr(lag, "lanes", PlainLanes)
        script = Script(data)
        script.table.lanes += data.draw(lanes_of_messages)
        for _ in range(data.draw(st.integers(1, 25))):
            script.step()
            script.queue.leases.ripen(script.now)
            script.check()
        script.restart()
        script.check()
