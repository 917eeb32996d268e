"""What a broker keeps of a group in memory only: sessions of members, waiting polls, positions in streams."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.spread_calls import SpreadCalls
from goqueue.coordination.shard_state import ShardState
from goqueue.delivery.lane_scheduler import LaneScheduler
from goqueue.delivery.receipts import Seal
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.ids import PartitionKey, QueueKey
from goqueue.model.message import HIDDEN
from goqueue.observe.histogram import Histogram
from goqueue.observe.rates import Rate

_END_TO_END_BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0
)  # fmt: skip

_FEW_MEMBERS = 50
_PAUSE_S_EACH = 0.003


@dataclass(eq=False, slots=True)
class Waiter:
    """A poll that found nothing. ``partitions`` are those it would take messages from."""

    member: str
    partitions: frozenset[PartitionKey]
    has_room: bool
    woken: asyncio.Future[None]

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


@dataclass(slots=True)
class Session:
    """When a member was last heard of. A member with a call open is alive, however long the call takes."""

    heard_ns: int
    calls: int = 0
    turn: int = 0
    """Which of its partitions comes first in the next poll."""
    committed_at_ns: int = 0
    window: int | None = None
    """How many messages the member wants in flight for now; ``None``: as many as it may."""
    positions: dict[QueueKey, int] = field(default_factory=dict)
    """Of a stream member: the next offset to read, by queue."""
    lane_scheduler: LaneScheduler = field(default_factory=LaneScheduler)
    """Of this member; members of a shared group have one together."""

    def go_back(self, steps: dict[QueueKey, tuple[int | None, int | None]]) -> None:
        """Undo steps (from, to) by queue, where nothing else has happened since."""
        for key, (before, after) in steps.items():
            if self.positions.get(key) == after:
                self.positions.pop(key, None)
                if before is not None:
                    self.positions[key] = before


@dataclass(frozen=True, slots=True)
class Share:
    """What a member may fetch from, by the keys of queues and the names of partitions."""

    queues: dict[QueueKey, Journal[ShardState]]
    """With the journal that each queue is in."""
    partitions: frozenset[PartitionKey]


@dataclass(slots=True)
class Served:
    """What a group got of one lane of one partition, since the start."""

    rate: Rate = field(default_factory=Rate)
    waited_ns: int = 0
    """How long they had waited together, from their timestamps on."""
    last_ns: int | None = None

    def add(self, count: int, waited_ns: int, now_ns: int) -> None:
        self.rate.add(count, now_ns)
        self.waited_ns += max(0, waited_ns)
        self.last_ns = now_ns


class GroupRuntime:
    """Lost when nothing of the group is led here any more. A coordinator that is led anew begins all sessions again."""

    def __init__(self, name: str, takers: dict[str, GroupRuntime], waking: SpreadCalls[asyncio.Future[None]]) -> None:
        self._name = name
        self._takers = takers
        """Of all groups, those with a waiter who can take something: a partition's news concerns no others."""
        self._waking = waking
        self._waiting_takers = 0
        self.sessions: dict[str, Session] = {}
        self.waiters: dict[Waiter, None] = {}
        self.reading: set[QueueKey] = set()
        """Queues that some poll is reading; others leave them alone."""
        self.seals: dict[QueueKey, Seal] = {}
        self.version = 0
        """Rises with every change of who owns what."""
        self.shares: dict[str, Share] = {}
        """By member; worked out when asked for, void when who owns what changes."""
        self.is_behind = False
        """Whether the group has yet to follow topics that came or went, or to show shards what has changed: a journal
        took nothing just then."""
        self.lane_scheduler = LaneScheduler()
        """Of all members of a shared group."""
        self.served: dict[QueueKey, dict[int, Served]] = {}
        """What was delivered, by queue and lane."""
        self.lane_delivered = [0] * HIDDEN
        self.lane_wait_ns = [0] * HIDDEN
        """The same by lane only, and for good: what was delivered from topics that are gone counts as well."""
        self.end_to_end = Histogram(_END_TO_END_BOUNDS_S)
        """From the timestamps of messages to their delivery."""
        self._changed: dict[asyncio.Future[None], None] = {}
        self._notified_s = -float("inf")
        """When members were last notified of a change, by the loop's clock."""
        self._notification: asyncio.TimerHandle | None = None

    def note_served(
        self, key: QueueKey, lane: int, count: int, waits_ns: tuple[int, int], now_ns: int, *, is_first: bool
    ) -> None:
        """So many messages of a queue's lane were delivered; how long the first and the last of them had waited.

        These two stand for those between: looking at each would cost more than it is worth. ``is_first``: they had not
        been delivered before.
        """
        by_lane = self.served.setdefault(key, {})
        served = by_lane.get(lane)
        if served is None:
            served = by_lane[lane] = Served()
        waited_ns = max(0, count * (sum(waits_ns) // 2))
        served.add(count, waited_ns, now_ns)
        self.lane_delivered[lane] += count
        self.lane_wait_ns[lane] += waited_ns
        if is_first:
            self.note_end_to_end(count, *waits_ns)

    def note_end_to_end(self, count: int, first_ns: int, last_ns: int) -> None:
        """So many messages were delivered at once: how long the first and the last of them had been on their way."""
        half = count // 2
        self.end_to_end.observe(first_ns / NANOS_PER_SECOND, count - half)
        if half:
            self.end_to_end.observe(last_ns / NANOS_PER_SECOND, half)

    def session(self, member: str, now_ns: int) -> Session:
        """The member was heard of just now."""
        found = self.session_or_new(member, now_ns)
        found.heard_ns = now_ns
        return found

    def session_or_new(self, member: str, now_ns: int) -> Session:
        found = self.sessions.get(member)
        if found is None:
            found = self.sessions[member] = Session(now_ns)
        return found

    def notify_change(self) -> None:
        """Partitions have other owners now: polls look again, and streams notify their members.

        If many members join one after the other, each of them would be notified of each join. So members of a large
        group are notified of several changes at once, with a pause that grows with their number.
        """
        self.version += 1
        self.shares.clear()
        if self._notification is not None:
            return
        if len(self.sessions) > _FEW_MEMBERS:
            loop = asyncio.get_running_loop()
            next_s = self._notified_s + len(self.sessions) * _PAUSE_S_EACH
            if next_s > loop.time():
                self._notification = loop.call_at(next_s, self._notify)
                return
            self._notified_s = loop.time()
        self._notify()

    def end(self) -> None:
        """The group was deleted, or the broker stops: end all waits."""
        self.version += 1
        self.shares.clear()
        self._notify()

    def _notify(self) -> None:
        if self._notification is not None:
            self._notification.cancel()
            self._notified_s, self._notification = self._notification.when(), None
        self.wake_all()
        changed, self._changed = self._changed, {}
        self._waking.add(changed)

    async def wait_for_change(self, seen: int) -> int:
        """Return the version when it is another than ``seen``."""
        while self.version == seen:
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._changed[change] = None
            try:
                await change
            finally:
                self._changed.pop(change, None)
        return self.version

    def wait(self, waiter: Waiter) -> None:
        """Wake this poll when there is news, until ``stop_waiting``."""
        self.waiters[waiter] = None
        if waiter.has_room:
            self._waiting_takers += 1
            self._takers[self._name] = self

    def stop_waiting(self, waiter: Waiter) -> None:
        """Calling it twice is harmless."""
        if waiter not in self.waiters:
            return
        del self.waiters[waiter]
        if waiter.has_room:
            self._waiting_takers -= 1
            # A group that was deleted may have been made again meanwhile: that one has its own entry.
            if not self._waiting_takers and self._takers.get(self._name) is self:
                del self._takers[self._name]

    @property
    def has_takers(self) -> bool:
        """Whether a poll waits that has room and was not woken yet."""
        return any(waiter.has_room and not waiter.woken.done() for waiter in self.waiters)

    def wake_one(self, partition: PartitionKey) -> None:
        """Wake the poll that has room and has waited longest for this partition."""
        for waiter in self.waiters:
            if waiter.has_room and partition in waiter.partitions and not waiter.woken.done():
                waiter.wake()
                return

    def wake_member(self, member: str) -> None:
        """Wake the polls of a member that has room again."""
        for waiter in self.waiters:
            if waiter.member == member:
                waiter.wake()

    def wake_all(self) -> None:
        self._waking.add([waiter.woken for waiter in self.waiters])
