"""What one poll gets from one lane of a queue: retries, parked messages whose key is free, new messages.

Messages are read first and decided on afterwards, in one step with the journal. Nothing here waits for news, and
no other poll fetches from the queue meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.coordinator.backlog import is_plain, left_behind, next_of_lane
from goqueue.broker.coordinator.dead_letter_topics import target_for
from goqueue.broker.coordinator.group_runtime import Served
from goqueue.broker.coordinator.group_shards import GroupShards
from goqueue.broker.partitions.frame_selection import read_frames_at
from goqueue.broker.queues.assigned_queues import AssignedQueues
from goqueue.broker.queues.deliverable_frames import GroupView, candidates, expired_frames
from goqueue.broker.queues.key_index import learn_keys as learn
from goqueue.broker.queues.poll_attempt import Delivery, Visit
from goqueue.broker.queues.tally import Tally
from goqueue.coordination.groups import GroupsEvent
from goqueue.delivery.fetch import (
    decide_lost,
    decide_new,
    decide_parked,
    decide_redelivery,
    decide_skip,
)
from goqueue.delivery.in_flight_batch import InFlightBatch
from goqueue.delivery.key_order import KeyOrder
from goqueue.delivery.lane import lease_in
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import visibility_ns
from goqueue.delivery.selection import FetchTerms, select
from goqueue.model.logging import get_logger
from goqueue.model.runs import bits_to_runs, lowest, to_runs
from goqueue.observe.trace_event import LOST, OVER_AGE
from goqueue.wire.batch import FrameRun, select_frames
from goqueue.wire.frame import timestamp_of

log = get_logger(__name__)

_LOOKS = 64
"""How often one poll looks on in a queue whose next messages are not for its group."""
_READ_AHEAD = 256
"""Under key order more is read than can be delivered: much of it may have to wait."""


class QueueFetch:
    def __init__(self, shards: GroupShards, assigned: AssignedQueues, tally: Tally) -> None:
        self._shards = shards
        self._assigned = assigned
        self._tally = tally
        self._clock = shards.clock

    async def take(self, visit: Visit) -> list[Delivery]:
        """Retries first, then what waited for its key, then new messages."""
        queue, room, lane = visit.queue, visit.room, visit.lane
        is_keyed = visit.poller.settings.ordering == "key"
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
            if (
                not room.is_left
                or not self._shards.may_scan(queue, visit.partition)
                or not self._assigned.may_take(visit)
            ):
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
        """Read from the log which messages wait for their key, and which keys are taken. Nothing is delivered."""
        queue = visit.queue
        keys, lost = await learn(queue, visit.partition)
        if self._assigned.may_take(visit):
            queue.keys = keys
            for lane, offsets in lost.items():
                self._apply(visit, [decide_lost(queue, lane, offsets, visit.poller.member_id)])
        return []

    async def _deliver_new(self, visit: Visit) -> list[Delivery]:
        queue, partition, room = visit.queue, visit.partition, visit.room
        self._assigned.drop_expired(queue, partition)
        lane, keys = visit.lane, queue.keys
        cursor, reads_all = queue.cursor(lane), is_plain(queue, partition)
        if cursor >= partition.stable_end:
            return []
        # As of now: a compaction that ends while the old files are read forgets what it has removed.
        view = self._view(visit)
        count = room.messages if queue.keys is None else max(room.messages, _READ_AHEAD)
        if reads_all:
            run, upto = await partition.read(cursor, max(room.size, 1), count)
        else:
            run, upto = await partition.read_lane(lane, cursor, max(room.size, 1), count)
        if cursor != queue.cursor(lane) or keys is not queue.keys or not self._assigned.may_take(visit):
            return []
        left: list[tuple[int, int]] = []
        if run is None:
            # What is left there is for no group, and must not be looked at again and again.
            if not reads_all:
                left = left_behind(partition, lane, queue.front, upto)
            self._apply(visit, [decide_skip(queue, lane, upto, visit.poller.member_id, left)])
            return []
        terms = self._terms(visit)
        selection = select(queue, candidates(queue, partition, run, upto, view), terms)
        selection.keep_within(room.messages)
        if not reads_all:
            selection.go_on_to(next_of_lane(partition, lane, selection.upto, queue.front))
            left = left_behind(partition, lane, queue.front, selection.upto)
        self._count_expired(queue, selection.expired)
        made = self._apply(visit, decide_new(queue, selection, left, terms))
        if queue.keys is not None:
            selection.note_keys(queue.keys, lane)
            if selection.parked:
                self._warn_if_full(visit, queue.keys)
        if not selection.offsets:
            return []
        chosen = run if selection.indexes is None else select_frames(run, selection.indexes)
        return self.deliveries(visit, lane, made, chosen)

    def _warn_if_full(self, visit: Visit, keys: KeyOrder) -> None:
        if keys.parked_count >= self._shards.host.config.limits.max_parked:
            log.warning(
                "a partition waits: as many messages as limits.max_parked allows wait for their keys",
                group=visit.poller.group.name,
                topic=visit.topic.name,
                partition=visit.queue.partition,
                parked=keys.parked_count,
            )

    async def _redeliver(self, visit: Visit, batch: InFlightBatch) -> list[Delivery]:
        wanted = lowest(batch.bits, visit.room.messages)
        picked = await read_frames_at(visit.partition, bits_to_runs(batch.first, wanted), visit.room.size)
        if not self._assigned.may_take(visit):
            return []
        redelivery = decide_redelivery(visit.queue, batch, wanted, picked.offsets, picked.upto, self._terms(visit))
        if redelivery.gone:
            self._shards.change(visit.queue.group, redelivery.gone, LOST)
        made = self._apply(visit, redelivery.again)
        self._tally.redeliveries += len(redelivery.indexes)
        if picked.run is None or not redelivery.indexes:
            return []
        return self.deliveries(visit, visit.lane, made, select_frames(picked.run, redelivery.indexes))

    async def _deliver_parked(self, visit: Visit) -> list[Delivery]:
        queue, room = visit.queue, visit.room
        if queue.keys is None:
            return []
        wanted = sorted(queue.keys.ready(room.messages, visit.lane))
        picked = await read_frames_at(visit.partition, to_runs(wanted), room.size)
        keys = queue.keys
        if keys is None or not self._assigned.may_take(visit):
            return []
        expired = set() if picked.run is None else expired_frames(picked.run, self._view(visit))
        parked = decide_parked(queue, keys, wanted, picked.offsets, picked.upto, expired, self._terms(visit))
        self._count_expired(queue, parked.expired)
        made = self._apply(visit, parked.events)
        parked.note_keys(keys)
        if picked.run is None or not parked.indexes:
            return []
        return self.deliveries(visit, visit.lane, made, select_frames(picked.run, parked.indexes))

    def _view(self, visit: Visit) -> GroupView:
        return GroupView(
            visit.poller.group.name,
            self._clock.now_ns(),
            visit.topic.settings.message_ttl_ms,
            visit.partition.producers.state.aborted,
        )

    def _terms(self, visit: Visit) -> FetchTerms:
        host, queue, topic = self._shards.host, visit.queue, visit.topic
        return FetchTerms(
            visit.poller.member_id,
            visit.lane,
            self.until_ns(visit),
            topic.settings.expired_messages == "dead_letter",
            host.config.limits.max_parked,
            lambda: target_for(host, queue, topic),
        )

    def _count_expired(self, queue: Queue, offsets: Sequence[int]) -> None:
        self._tally.expired += len(offsets)
        self._shards.notes.expired(queue, offsets, OVER_AGE)

    def _apply(self, visit: Visit, events: Sequence[GroupsEvent]) -> list[int]:
        """The leases that came of it."""
        before = visit.queue.leases.next_number
        self._shards.change(visit.poller.group.name, events)
        return [lease_in(number, visit.lane) for number in range(before, visit.queue.leases.next_number)]

    def deliveries(self, visit: Visit, lane: int, leases: list[int], run: FrameRun) -> list[Delivery]:
        """What leases of a lane are for the member: the frames of all of them are in ``run``."""
        visit.room.take(run)
        seal = self._shards.seal(visit.poller.group, visit.queue)
        found = []
        at = 0
        for lease in leases:
            for batch in visit.queue.leases.batches(lease):
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
        runtime, count = visit.poller.runtime, len(run)
        by_lane = runtime.served.setdefault(visit.queue.key, {})
        served = by_lane.get(lane)
        if served is None:
            served = by_lane[lane] = Served()
        now_ns = self._clock.now_ns()
        # The first and the last stand for those between: looking at each would cost more than it is worth.
        first_ns, last_ns = timestamp_of(run.frames), timestamp_of(run.frames[int(run.positions[-1]) :])
        waited_ns = max(0, count * (now_ns - (first_ns + last_ns) // 2))
        served.add(count, waited_ns, now_ns)
        runtime.lane_delivered[lane] += count
        runtime.lane_wait_ns[lane] += waited_ns
        if is_first:
            # What is tried again has waited for its time, which says nothing of how fast messages get here.
            runtime.note_end_to_end(count, now_ns - first_ns, now_ns - last_ns)

    def until_ns(self, visit: Visit) -> int:
        """When the visibility timeout of a delivery made now ends."""
        return self._clock.now_ns() + visibility_ns(visit.poller.settings, visit.topic.settings)
