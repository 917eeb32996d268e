"""Taking: what one poll gets from one queue.

Messages are read first and decided on afterwards, in one step with the journal. Nothing here waits for news, and
nobody else may take from the queue meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.broker.dead_letter_topics import moving
from goqueue.broker.group_runtime import Session, Share
from goqueue.broker.group_shards import GroupShards, partition_name
from goqueue.broker.key_index import learn_keys
from goqueue.broker.partition import Partition
from goqueue.broker.picking import pick
from goqueue.broker.settling import Settling
from goqueue.broker.timing import timing_of
from goqueue.broker.topic import Topic
from goqueue.broker.visible import Sight, expired_places, look, passed_by
from goqueue.coordination.group import Group
from goqueue.coordination.groups import GroupsEvent
from goqueue.delivery.events import Acked, Delivered, Dropped, Redelivered
from goqueue.delivery.parcel import SPAN, Parcel
from goqueue.delivery.queue import Queue
from goqueue.delivery.receipts import Seal
from goqueue.model.errors import TopicNotFound
from goqueue.model.logging import get_logger
from goqueue.model.runs import bits_to_runs, lowest, to_bits, to_runs
from goqueue.wire.batch import FrameRun, select_frames

log = get_logger(__name__)

_LOOKS = 64
"""How often one poll looks on in a queue whose next messages are for nobody."""
_READ_AHEAD = 256
"""Under key order more is read than can be delivered: much of it may have to wait."""
_EXPIRED = "its time to live was over"
_NOTHING = Share({}, frozenset())


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages of one lease. In a stream there is no lease: it is 0, and so are ``count`` and ``until_ns``."""

    topic: str
    partition: int
    run: FrameRun
    lease: int
    count: int
    seal: Seal | None
    next_offset: int
    until_ns: int
    """When the messages are anyone's again."""

    def receipt(self, offset: int) -> str | None:
        return None if self.seal is None else self.seal.receipt(offset, self.count, self.lease)

    @property
    def token(self) -> bytes:
        return b"" if self.seal is None else self.seal.token(self.count, self.lease)


@dataclass(slots=True)
class Room:
    """What is left of a poll's bounds. One message goes in however large it is."""

    messages: int
    size: int
    taken: bool = False

    @property
    def is_left(self) -> bool:
        return self.messages > 0 and (self.size > 0 or not self.taken)

    def take(self, run: FrameRun) -> None:
        self.messages -= len(run)
        self.size -= len(run.frames)
        self.taken = True


@dataclass(frozen=True, slots=True)
class Visit:
    """One member at one queue."""

    group: Group
    queue: Queue
    topic: Topic
    partition: Partition
    member_id: str
    room: Room


class Taking:
    def __init__(self, shards: GroupShards, settling: Settling) -> None:
        self._shards = shards
        self._settling = settling
        self._clock = shards.clock

    # Who may take from where

    def share(self, group: Group, member_id: str) -> Share:
        """What a member may take messages from."""
        shares = self._shards.runtime(group.name).shares
        if member_id not in shares:
            if self._shards.settings(group).kind == "shared":
                shares[member_id] = _share(group, self._partitions(group.member(member_id).topics))
            else:
                # One look at who owns what tells everyone's.
                shares.update((each, _share(group, names)) for each, names in group.owned().items())
        return shares.get(member_id, _NOTHING)

    def queues(self, group: Group, member_id: str) -> list[Queue]:
        machine = self._shards.journal(group.name).machine
        return [queue for key in self.share(group, member_id).queues if (queue := machine.queue(key)) is not None]

    def _partitions(self, topics: Sequence[str]) -> list[str]:
        found: list[str] = []
        for name in topics:
            try:
                topic = self._shards.host.topic(name)
            except TopicNotFound:
                continue
            found += (partition_name(topic.record.topic_id, number) for number in range(len(topic.partitions)))
        return found

    def _may_take(self, visit: Visit) -> bool:
        """Asked after every await: the member may have left, the partition have been taken from it, or the state been
        loaded again."""
        group, queue = visit.group, visit.queue
        return (
            self._shards.journal(queue.group).machine.queue(queue.key) is queue
            and visit.member_id in group.state.members
            and queue.key in self.share(group, visit.member_id).queues
        )

    # From a queue

    async def take(self, visit: Visit) -> list[Delivery]:
        """Retries first, then what waited for its key, then new messages."""
        queue, room = visit.queue, visit.room
        is_keyed = self._shards.settings(visit.group).ordering == "key"
        if is_keyed and queue.keys is None:
            await self._learn_keys(visit)
        found: list[Delivery] = []
        while room.is_left and (parcel := next(queue.ready(), None)) is not None:
            before = parcel.bits
            found += await self._redeliver(visit, parcel)
            if parcel.bits == before:
                break
        while room.is_left and (keys := queue.keys) is not None and keys.has_ready:
            parked = keys.parked_count
            found += await self._deliver_parked(visit)
            if keys.parked_count == parked:
                break
        for _ in range(_LOOKS):
            if not room.is_left or not self._shards.may_scan(queue, visit.partition) or not self._may_take(visit):
                break
            if is_keyed and queue.keys is None:
                # A reset came in between: the next poll begins with learning them again.
                break
            at = queue.cursor
            found += await self._deliver_new(visit)
            if queue.cursor == at or (found and queue.keys is None):
                break
        return found

    async def _learn_keys(self, visit: Visit) -> None:
        queue = visit.queue
        keys, lost = await learn_keys(queue, visit.partition)
        if self._may_take(visit):
            queue.keys = keys
            if lost:
                self._apply(visit, [Delivered(queue.key, [], to_runs(lost), queue.cursor, visit.member_id, 0)])

    def drop_expired(self, queue: Queue, partition: Partition) -> None:
        """What retention took leaves the queue."""
        start = partition.log.start_offset
        if start > queue.committed:
            self._shards.change(queue.group, [Dropped(queue.key, start)])
            # Whoever had some of it in hand has room again.
            self._shards.runtime(queue.group).wake_all()

    async def _deliver_new(self, visit: Visit) -> list[Delivery]:
        queue, partition, room = visit.queue, visit.partition, visit.room
        self.drop_expired(queue, partition)
        cursor, keys = queue.cursor, queue.keys
        if cursor >= partition.high_watermark:
            return []
        count = room.messages if queue.keys is None else max(room.messages, _READ_AHEAD)
        run, upto = await partition.read(cursor, max(room.size, 1), count)
        if cursor != queue.cursor or keys is not queue.keys or not self._may_take(visit):
            return []
        if run is None:
            self._apply(visit, [Delivered(queue.key, [], [cursor, upto], upto, visit.member_id, 0)])
            return []
        looked = look(queue, partition, run, upto, self._sight(visit))
        looked.keep_within(room.messages)
        until_ns = self._until_ns(visit)
        events: list[GroupsEvent] = [
            Delivered(queue.key, looked.runs, looked.skipped, looked.upto, visit.member_id, until_ns)
        ]
        events += self._gone_bad(visit, looked.expired)
        made = self._apply(visit, events)
        if queue.keys is not None:
            for offset, key in looked.keys.items():
                queue.keys.hold(offset, key)
            for offset, key in looked.parked:
                queue.keys.park(offset, key)
            if looked.parked and queue.keys.parked_count >= self._shards.host.config.limits.max_parked:
                log.warning(
                    "a partition waits: as many messages as limits.max_parked allows wait for their keys",
                    group=visit.group.name,
                    topic=visit.topic.name,
                    partition=queue.partition,
                    parked=queue.keys.parked_count,
                )
        if not looked.offsets:
            return []
        chosen = run if looked.places is None else select_frames(run, looked.places)
        return self._deliveries(visit, made, looked.offsets, chosen)

    async def _redeliver(self, visit: Visit, parcel: Parcel) -> list[Delivery]:
        queue, first = visit.queue, parcel.first
        wanted = lowest(parcel.bits, visit.room.messages)
        picked = await pick(visit.partition, bits_to_runs(first, wanted), visit.room.size)
        if not self._may_take(visit):
            return []
        # What was settled meanwhile is not to be delivered; what the log does not have any more is done.
        there = wanted & parcel.among([first, picked.upto])
        again = there & to_bits(to_runs(picked.offsets), first, SPAN)
        events: list[GroupsEvent] = []
        if there != again:
            events.append(Acked(queue.key, [(parcel.lease, bits_to_runs(first, there & ~again))]))
        if again:
            parts = [(parcel.lease, bits_to_runs(first, again))]
            events.append(Redelivered(queue.key, parts, visit.member_id, self._until_ns(visit)))
        made = self._apply(visit, events)
        self._settling.tally.redeliveries += again.bit_count()
        if picked.run is None or not again:
            return []
        places = [place for place, offset in enumerate(picked.offsets) if again >> (offset - first) & 1]
        offsets = [picked.offsets[place] for place in places]
        return self._deliveries(visit, made, offsets, select_frames(picked.run, places))

    async def _deliver_parked(self, visit: Visit) -> list[Delivery]:
        queue, room = visit.queue, visit.room
        if queue.keys is None:
            return []
        wanted = sorted(queue.keys.ready(room.messages))
        picked = await pick(visit.partition, to_runs(wanted), room.size)
        keys = queue.keys
        if keys is None or not self._may_take(visit):
            return []
        expired = set() if picked.run is None else expired_places(picked.run, self._sight(visit))
        turn = [(place, offset) for place, offset in enumerate(picked.offsets) if keys.is_ready(offset)]
        places = [place for place, _ in turn if place not in expired]
        taken = [picked.offsets[place] for place in places]
        late = [offset for place, offset in turn if place in expired]
        found = set(picked.offsets)
        gone = [each for each in wanted if each < picked.upto and each not in found and keys.is_ready(each)]
        skipped = gone if visit.topic.settings.expired_messages == "dead_letter" else sorted(gone + late)
        runs = to_runs(taken)
        events: list[GroupsEvent] = [
            Delivered(queue.key, runs, to_runs(skipped), queue.cursor, visit.member_id, self._until_ns(visit))
        ]
        made = self._apply(visit, [*events, *self._gone_bad(visit, late)])
        for offset in [*taken, *late, *gone]:
            if keys.is_ready(offset):
                keys.take(offset)
        if picked.run is None or not taken:
            return []
        return self._deliveries(visit, made, taken, select_frames(picked.run, places))

    def _sight(self, visit: Visit) -> Sight:
        settings = visit.topic.settings
        return Sight(
            visit.group.name,
            self._clock.now_ns(),
            settings.message_ttl_ms,
            settings.expired_messages == "dead_letter",
            self._shards.host.config.limits.max_parked,
        )

    def _gone_bad(self, visit: Visit, offsets: list[int]) -> Sequence[GroupsEvent]:
        """What becomes of messages whose time to live is over, beyond being passed over."""
        self._settling.tally.expired += len(offsets)
        if not offsets or visit.topic.settings.expired_messages != "dead_letter":
            return []
        return moving(self._shards.host, visit.queue, visit.topic, [], to_runs(offsets), _EXPIRED)

    def _apply(self, visit: Visit, events: Sequence[GroupsEvent]) -> range:
        """The leases that came of it."""
        before = visit.queue.next_lease
        self._shards.change(visit.group.name, events)
        return range(before, visit.queue.next_lease)

    def _deliveries(self, visit: Visit, leases: range, offsets: list[int], run: FrameRun) -> list[Delivery]:
        visit.room.take(run)
        seal = self._shards.seal(visit.group, visit.queue)
        found = []
        at = 0
        for lease in leases:
            for parcel in visit.queue.parcels(lease):
                size = parcel.bits.bit_count()
                part = select_frames(run, list(range(at, at + size)))
                at += size
                found.append(
                    Delivery(
                        visit.topic.name,
                        visit.queue.partition,
                        part,
                        lease,
                        parcel.count,
                        seal,
                        offsets[at - 1] + 1,
                        parcel.at_ns,
                    )
                )
        return found

    def _until_ns(self, visit: Visit) -> int:
        return self._clock.now_ns() + timing_of(self._shards.settings(visit.group), visit.topic).visibility_ns

    # From a stream

    def position(self, session: Session | None, queue: Queue, partition: Partition) -> int:
        """Where a member is in a partition: nothing is delivered twice to one who does not commit at once."""
        known = queue.committed if session is None else session.positions.get(queue.key, queue.committed)
        return max(known, partition.log.start_offset)

    async def take_in_order(self, visit: Visit, session: Session) -> list[Delivery]:
        queue, partition = visit.queue, visit.partition
        at = self.position(session, queue, partition)
        if partition.high_watermark <= at:
            return []
        run, following = await partition.read(at, max(visit.room.size, 1), visit.room.messages)
        if not self._may_take(visit) or self.position(session, queue, partition) != at:
            # A reset, or another poll of this member, came in between.
            return []
        session.positions[queue.key] = following
        if run is None:
            return []
        hidden = passed_by(run, self._sight(visit))
        if hidden:
            places = [place for place in range(len(run)) if place not in hidden]
            if not places:
                return []
            run = select_frames(run, places)
        visit.room.take(run)
        return [Delivery(visit.topic.name, queue.partition, run, 0, 0, None, following, 0)]


def _share(group: Group, partitions: list[str]) -> Share:
    queues = dict.fromkeys(f"{group.state.identity}/{partition}" for partition in partitions)
    return Share(queues, frozenset(partitions))
