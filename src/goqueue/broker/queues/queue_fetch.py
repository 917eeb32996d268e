"""Taking: what one poll gets from one queue.

Messages are read first and decided on afterwards, in one step with the journal. Nothing here waits for news, and
nobody else may take from the queue meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.coordinator.backlog import is_plain, left_behind, next_of_lane
from goqueue.broker.coordinator.dead_letter_topics import target_for
from goqueue.broker.coordinator.group_runtime import Served, Session, Share
from goqueue.broker.coordinator.group_shards import GroupShards, partition_name
from goqueue.broker.partitions.frame_selection import pick
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.queues.deliverable_frames import Sight, expired_places, look, passed_by
from goqueue.broker.queues.key_index import learn_keys as learn
from goqueue.broker.queues.poll_attempt import Delivery, Visit
from goqueue.broker.queues.stream_commits import StreamCommits
from goqueue.broker.queues.tally import Tally
from goqueue.coordination.group import Group
from goqueue.coordination.groups import GroupsEvent
from goqueue.delivery.dead_letters import decide_dead_letters
from goqueue.delivery.events import Acked, Delivered, Dropped, Redelivered
from goqueue.delivery.in_flight_batch import SPAN, InFlightBatch
from goqueue.delivery.lane import lease_in
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import retry_policy
from goqueue.model.errors import TopicNotFound
from goqueue.model.logging import get_logger
from goqueue.model.runs import Offsets, ascending_to_runs, bits_to_runs, lowest, packed, to_bits, to_runs
from goqueue.observe.trace_event import LOST, OVER_AGE
from goqueue.wire.batch import FrameRun, select_frames
from goqueue.wire.frame import timestamp_of

log = get_logger(__name__)

_LOOKS = 64
"""How often one poll looks on in a queue whose next messages are for nobody."""
_READ_AHEAD = 256
"""Under key order more is read than can be delivered: much of it may have to wait."""
_NOTHING = Share({}, frozenset())


class QueueFetch:
    def __init__(self, shards: GroupShards, commits: StreamCommits, tally: Tally) -> None:
        self._shards = shards
        self._commits = commits
        self._tally = tally
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

    def may_take(self, visit: Visit) -> bool:
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
        queue, room, lane = visit.queue, visit.room, visit.lane
        is_keyed = self._shards.settings(visit.group).ordering == "key"
        if is_keyed and queue.keys is None:
            await self.learn_keys(visit)
        found: list[Delivery] = []
        while room.is_left and (batch := queue.first_ready(lane)) is not None:
            before = batch.bits
            found += await self._redeliver(visit, batch)
            if batch.bits == before:
                break
        while room.is_left and (keys := queue.keys) is not None and keys.ready_count(lane):
            parked = keys.parked_count
            found += await self._deliver_parked(visit)
            if keys.parked_count == parked:
                break
        for _ in range(_LOOKS):
            if not room.is_left or not self._shards.may_scan(queue, visit.partition) or not self.may_take(visit):
                break
            if is_keyed and queue.keys is None:
                # A reset came in between: the next poll begins with learning them again.
                break
            at, reads_all = queue.cursor(lane), is_plain(queue, visit.partition)
            found += await self._deliver_new(visit)
            if queue.cursor(lane) == at or (found and reads_all and queue.keys is None):
                break
        return found

    async def learn_keys(self, visit: Visit) -> list[Delivery]:
        """Which messages wait for their key, and which keys are taken. Nothing is delivered by that."""
        queue = visit.queue
        keys, lost = await learn(queue, visit.partition)
        if self.may_take(visit):
            queue.keys = keys
            for lane, offsets in lost.items():
                gone = Delivered(queue.key, [], to_runs(offsets), queue.cursor(lane), visit.member_id, 0, lane)
                self._apply(visit, [gone])
        return []

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
        lane, keys = visit.lane, queue.keys
        cursor, reads_all = queue.cursor(lane), is_plain(queue, partition)
        if cursor >= partition.stable_end:
            return []
        # As of now: a compaction that ends while the old files are read forgets what it has removed.
        sight = self._sight(visit)
        count = room.messages if queue.keys is None else max(room.messages, _READ_AHEAD)
        if reads_all:
            run, upto = await partition.read(cursor, max(room.size, 1), count)
        else:
            run, upto = await partition.read_lane(lane, cursor, max(room.size, 1), count)
        if cursor != queue.cursor(lane) or keys is not queue.keys or not self.may_take(visit):
            return []
        if run is None:
            # What is left there is for nobody, and must not be looked at again and again.
            left = [] if reads_all else left_behind(partition, lane, queue.front, upto)
            self._apply(visit, [Delivered(queue.key, [], None, upto, visit.member_id, 0, lane, left)])
            return []
        looked = look(queue, lane, partition, run, upto, sight)
        looked.keep_within(room.messages)
        until_ns = self.until_ns(visit)
        left = []
        if not reads_all:
            looked.go_on_to(next_of_lane(partition, lane, looked.upto, queue.front))
            left = left_behind(partition, lane, queue.front, looked.upto)
        events: list[GroupsEvent] = [
            Delivered(queue.key, looked.runs, looked.skipped, looked.upto, visit.member_id, until_ns, lane, left)
        ]
        events += self._gone_bad(visit, looked.expired)
        made = self._apply(visit, events)
        if queue.keys is not None:
            for offset, key in looked.keys.items():
                queue.keys.hold(offset, key)
            for offset, key in looked.parked:
                queue.keys.park(offset, key)
            if looked.is_stopped:
                queue.keys.stopped.add(lane)
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
        return self.deliveries(visit, visit.lane, made, chosen)

    async def _redeliver(self, visit: Visit, batch: InFlightBatch) -> list[Delivery]:
        queue, first = visit.queue, batch.first
        wanted = lowest(batch.bits, visit.room.messages)
        picked = await pick(visit.partition, bits_to_runs(first, wanted), visit.room.size)
        if not self.may_take(visit):
            return []
        # What was settled meanwhile is not to be delivered; what the log does not have any more is done.
        there = wanted & batch.among([first, picked.upto])
        again = there & to_bits(to_runs(picked.offsets), first, SPAN)
        events: list[GroupsEvent] = []
        if there != again:
            gone = Acked(queue.key, [(batch.lease, packed(first, there & ~again))], gone=True)
            self._shards.change(queue.group, [gone], LOST)
        if again:
            events.append(
                Redelivered(queue.key, [(batch.lease, packed(first, again))], visit.member_id, self.until_ns(visit))
            )
        made = self._apply(visit, events)
        self._tally.redeliveries += again.bit_count()
        if picked.run is None or not again:
            return []
        places = [place for place, offset in enumerate(picked.offsets) if again >> (offset - first) & 1]
        return self.deliveries(visit, visit.lane, made, select_frames(picked.run, places))

    async def _deliver_parked(self, visit: Visit) -> list[Delivery]:
        queue, room = visit.queue, visit.room
        if queue.keys is None:
            return []
        wanted = sorted(queue.keys.ready(room.messages, visit.lane))
        picked = await pick(visit.partition, to_runs(wanted), room.size)
        keys = queue.keys
        if keys is None or not self.may_take(visit):
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
            Delivered(
                queue.key,
                runs,
                to_runs(skipped),
                queue.cursor(visit.lane),
                visit.member_id,
                self.until_ns(visit),
                visit.lane,
            )
        ]
        made = self._apply(visit, [*events, *self._gone_bad(visit, late)])
        for offset in [*taken, *late, *gone]:
            if keys.is_ready(offset):
                keys.take(offset)
        if picked.run is None or not taken:
            return []
        return self.deliveries(visit, visit.lane, made, select_frames(picked.run, places))

    def _sight(self, visit: Visit) -> Sight:
        settings = visit.topic.settings
        return Sight(
            visit.group.name,
            self._clock.now_ns(),
            settings.message_ttl_ms,
            settings.expired_messages == "dead_letter",
            self._shards.host.config.limits.max_parked,
            visit.partition.producers.state.aborted,
        )

    def _gone_bad(self, visit: Visit, offsets: list[int]) -> Sequence[GroupsEvent]:
        """What becomes of messages whose time to live is over, beyond being passed over."""
        self._count_expired(visit.queue, offsets)
        if not offsets or visit.topic.settings.expired_messages != "dead_letter":
            return []
        target = target_for(self._shards.host, visit.queue, visit.topic)
        return decide_dead_letters(visit.queue.key, [], to_runs(offsets), OVER_AGE, target, visit.lane)

    def _count_expired(self, queue: Queue, offsets: Sequence[int]) -> None:
        self._tally.expired += len(offsets)
        self._shards.notes.expired(queue, offsets, OVER_AGE)

    def _apply(self, visit: Visit, events: Sequence[GroupsEvent]) -> list[int]:
        """The leases that came of it."""
        before = visit.queue.next_lease
        self._shards.change(visit.group.name, events)
        return [lease_in(number, visit.lane) for number in range(before, visit.queue.next_lease)]

    def deliveries(self, visit: Visit, lane: int, leases: list[int], run: FrameRun) -> list[Delivery]:
        """What leases of a lane are for the member: the frames of all of them are in ``run``."""
        visit.room.take(run)
        seal = self._shards.seal(visit.group, visit.queue)
        found = []
        at = 0
        for lease in leases:
            for batch in visit.queue.batches(lease):
                size = batch.bits.bit_count()
                part = run.part(at, at + size)
                at += size
                found.append(
                    Delivery(
                        visit.topic.name,
                        visit.queue.partition,
                        part,
                        lease,
                        batch.count,
                        seal,
                        batch.first + batch.bits.bit_length(),
                        batch.at_ns,
                    )
                )
        self._note_served(visit, lane, run, is_first=bool(found) and found[0].count == 1)
        return found

    def _note_served(self, visit: Visit, lane: int, run: FrameRun, *, is_first: bool) -> None:
        runtime = self._shards.runtime(visit.group.name)
        by_lane = runtime.served.setdefault(visit.queue.key, {})
        served = by_lane.get(lane)
        if served is None:
            served = by_lane[lane] = Served()
        now_ns = self._clock.now_ns()
        # The first and the last stand for those between: looking at each would cost more than it is worth.
        first_ns, last_ns = timestamp_of(run.frames), timestamp_of(run.frames[int(run.positions[-1]) :])
        waited_ns = max(0, len(run) * (now_ns - (first_ns + last_ns) // 2))
        served.add(len(run), waited_ns, now_ns)
        runtime.lane_delivered[lane] += len(run)
        runtime.lane_wait_ns[lane] += waited_ns
        if is_first:
            # What is tried again has waited for its time, which says nothing of how fast messages get here.
            runtime.note_end_to_end(len(run), now_ns - first_ns, now_ns - last_ns)

    def until_ns(self, visit: Visit) -> int:
        return (
            self._clock.now_ns() + retry_policy(self._shards.settings(visit.group), visit.topic.settings).visibility_ns
        )

    # From a stream

    def position(self, session: Session | None, queue: Queue, partition: Partition) -> int:
        """Where a member is in a partition: nothing is delivered twice to one who does not commit at once.

        At the end, as long as a transaction may move the group beyond where the member is.
        """
        at = max(_known_position(session, queue), partition.log.start_offset)
        if self._commits.is_expected(queue.key, at):
            return max(at, partition.stable_end)
        return at

    async def take_in_order(self, visit: Visit, session: Session) -> list[Delivery]:
        queue, partition = visit.queue, visit.partition
        if _known_position(session, queue) < partition.log.start_offset:
            self.drop_expired(queue, partition)
        at = self.position(session, queue, partition)
        if partition.stable_end <= at:
            return []
        first, sight = partition.next_visible(at), self._sight(visit)
        run, following = await partition.read(first, max(visit.room.size, 1), visit.room.messages)
        if not self.may_take(visit) or self.position(session, queue, partition) != at:
            # A reset, or another poll of this member, came in between.
            return []
        session.positions[queue.key] = following
        if run is None:
            return []
        seen: Offsets = [first, following]
        hidden, expired = passed_by(run, sight)
        if expired:
            offsets = run.columns()["offset"]
            self._count_expired(queue, [int(offsets[place]) for place in expired])
        if hidden or expired:
            places = [place for place in range(len(run)) if place not in hidden and place not in expired]
            if not places:
                return []
            run = select_frames(run, places)
            seen = ascending_to_runs(run.columns()["offset"].tolist())
        visit.room.take(run)
        self._shards.notes.streamed(queue, seen, visit.member_id)
        now_ns = self._clock.now_ns()
        waits_ns = now_ns - timestamp_of(run.frames), now_ns - timestamp_of(run.frames[int(run.positions[-1]) :])
        self._shards.runtime(visit.group.name).note_end_to_end(len(run), *waits_ns)
        return [Delivery(visit.topic.name, queue.partition, run, 0, 0, None, following, 0)]


def _known_position(session: Session | None, queue: Queue) -> int:
    return queue.committed if session is None else session.positions.get(queue.key, queue.committed)


def _share(group: Group, partitions: list[str]) -> Share:
    queues = dict.fromkeys(f"{group.state.identity}/{partition}" for partition in partitions)
    return Share(queues, frozenset(partitions))
