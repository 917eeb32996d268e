"""Any sequence of events against a plain table of what became of each offset."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

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
from goqueue.delivery.queue import Queue, QueueDump
from goqueue.model.runs import pairs, to_runs

Q = "g/t/0"
TARGET = Target("t.dlq", "d", 0, 0)
MEMBERS = ("a", "b")


class Table:
    """Offset by offset: 'done', 'moving', or who has it and how often it was delivered."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[str | None, int]] = {}
        self.done: set[int] = set()
        self.moving: set[int] = set()
        self.cursor = 0

    @property
    def prefix(self) -> int:
        at = 0
        while at in self.done:
            at += 1
        return at


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
        for parcel in self.queue.parcels():
            for first, end in pairs(parcel.runs):
                for offset in range(first, end):
                    if self.data.draw(st.booleans()):
                        chosen.setdefault(parcel.lease, []).append(offset)
        return chosen

    def step(self) -> None:
        table = self.table
        self.now += 1
        what = self.data.draw(
            st.sampled_from(["deliver"] * 3 + ["again"] * 2 + ["ack", "ack", "return", "release", "extend"])
            | st.sampled_from(["move", "moved", "drop", "reset", "cut", "restart"])
        )
        member = self.data.draw(st.sampled_from(MEMBERS))
        parts = self.draw_held() if what in ("again", "ack", "return", "release", "extend", "move") else {}
        flat = {offset for offsets in parts.values() for offset in offsets}
        packed = [(lease, to_runs(sorted(offsets))) for lease, offsets in parts.items()]
        event: AnyQueueEvent | None = None
        if what == "deliver":
            upto = table.cursor + self.data.draw(st.integers(1, 8))
            fresh = [each for each in range(table.cursor, upto) if each not in table.moving and each not in table.done]
            taken = [each for each in fresh if self.data.draw(st.booleans())]
            skipped = [each for each in fresh if each not in taken]
            event = Delivered(Q, to_runs(taken), to_runs(skipped), upto, member, self.now + 50)
            table.cursor = upto
            table.done |= set(skipped)
            table.held |= dict.fromkeys(taken, (member, 1))
        elif what == "again":
            event = Redelivered(Q, packed, member, self.now + 50)
            table.held |= {each: (member, table.held[each][1] + 1) for each in flat}
        elif what == "ack":
            event = Acked(Q, packed)
            table.done |= flat
            table.held = {each: fate for each, fate in table.held.items() if each not in flat}
        elif what == "return":
            event = Returned(Q, packed, self.data.draw(st.sampled_from([0, self.now + 5])), "no")
            table.held |= {each: (None, table.held[each][1]) for each in flat}
        elif what == "release":
            # Only what is in flight: it counts at least once.
            flat = {each for each in flat if table.held[each][0] is not None}
            packed = [(lease, to_runs(sorted(flat & set(offsets)))) for lease, offsets in parts.items()]
            event = Released(Q, packed)
            table.held |= {each: (None, table.held[each][1] - 1) for each in flat}
        elif what == "extend":
            event = Extended(Q, packed, self.now + 99)
        elif what == "move":
            event = Moving(Q, packed, [], "bad", TARGET)
            table.moving |= flat
            table.held = {each: fate for each, fate in table.held.items() if each not in flat}
        elif what == "moved":
            some = {each for each in table.moving if self.data.draw(st.booleans())}
            event = Moved(Q, to_runs(sorted(some)))
            table.moving -= some
            table.done |= some
        elif what == "drop":
            start = self.data.draw(st.integers(0, table.cursor + 3))
            event = Dropped(Q, start)
            table.done |= set(range(start))
            table.held = {each: fate for each, fate in table.held.items() if each >= start}
            table.cursor = max(table.cursor, start)
        elif what == "reset":
            to = self.data.draw(st.integers(0, table.cursor))
            event = ResetTo(Q, to)
            table.done, table.held, table.cursor = set(range(to)), {}, to
        elif what == "cut":
            end = self.data.draw(st.integers(0, table.cursor))
            event = CutTo(Q, end)
            table.done = {each for each in table.done if each < end}
            table.moving = {each for each in table.moving if each < end}
            table.held = {each: fate for each, fate in table.held.items() if each < end}
            table.cursor = min(table.cursor, end)
        if event is None:
            self.restart()
        else:
            # As it comes out of the journal.
            again = msgspec.json.decode(msgspec.json.encode(event), type=type(event))
            assert isinstance(again, QueueEvent)
            self.queue.apply(again)

    def restart(self) -> None:
        packed = msgspec.json.encode(self.queue.dump())
        self.in_flight = {}
        self.queue = Queue.load(Q, msgspec.json.decode(packed, type=QueueDump), self.in_flight)
        assert msgspec.json.encode(self.queue.dump()) == packed

    def check(self) -> None:
        queue, table = self.queue, self.table
        held: dict[int, tuple[str | None, int]] = {}
        for parcel in queue.parcels():
            for first, end in pairs(parcel.runs):
                for offset in range(first, end):
                    assert offset not in held, "in two parcels at once"
                    held[offset] = parcel.member, parcel.count
                    assert queue.find(parcel.lease, offset) is parcel
        assert held == table.held
        assert set(queue.moving) == table.moving
        assert queue.cursor == table.cursor
        assert queue.committed == table.prefix
        assert queue.acked.above == len(table.done) - table.prefix
        assert all((each in queue.acked) == (each in table.done) for each in range(table.cursor + 5))
        assert queue.outstanding == len(held)
        counts = {who: sum(1 for member, _ in held.values() if member == who) for who in MEMBERS}
        assert self.in_flight == {who: count for who, count in counts.items() if count}
        assert queue.in_flight == sum(counts.values())
        end = max(table.cursor, queue.acked.end) + 5
        assert queue.lag(0, end) == end - len([each for each in table.done if each < end])
        below = {each for each in range(table.cursor) if each not in table.done}
        assert queue.parked == len(below - set(held) - table.moving)
        ready = {
            offset for parcel in queue.ready() for first, stop in pairs(parcel.runs) for offset in range(first, stop)
        }
        assert all(held[offset][0] is None for offset in ready)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_queue_knows_of_every_offset_what_became_of_it(data: st.DataObject) -> None:
    script = Script(data)
    for _ in range(data.draw(st.integers(1, 25))):
        script.step()
        script.check()
        script.queue.ripen(script.now)
        script.check()
    script.restart()
    script.check()
