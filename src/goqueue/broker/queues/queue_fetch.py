"""What one poll gets from one lane of a queue: retries, parked messages whose key is free, new messages.

Messages are read first and decided on afterwards, in one step with the journal. Nothing here waits for news, and
no other poll fetches from the queue meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.partitions.frame_selection import read_frames_at
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.read import find_damaged_frames
from goqueue.broker.queues.assigned_queues import AssignedQueues, drop_expired
from goqueue.broker.queues.deliverable_frames import GroupView, candidates, expired_frames, keys_of
from goqueue.broker.queues.poll_attempt import Delivery, Visit
from goqueue.broker.queues.returns import Returns
from goqueue.broker.queues.tally import Tally
from goqueue.broker.shards.backlog import is_plain, left_behind, may_scan, next_of_lane
from goqueue.broker.shards.dead_letter_topics import target_for
from goqueue.broker.shards.shard_directory import Shards
from goqueue.delivery.fetch import decide_lost, decide_new, decide_parked, decide_redelivery, decide_skip
from goqueue.delivery.in_flight_batch import InFlightBatch
from goqueue.delivery.key_order import KeyOrder, lane_key
from goqueue.delivery.key_recovery import recover_keys
from goqueue.delivery.queue import Queue
from goqueue.delivery.selection import FetchTerms, select
from goqueue.delivery.visibility_timeout import visibility_ns
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
_KEYS_AT_ONCE_BYTES = 1 << 20
_KEYS_AT_ONCE = 4_096


class QueueFetch:
    def __init__(self, shards: Shards, assigned: AssignedQueues, returns: Returns, tally: Tally) -> None:
        self._host = shards.host
        self._assigned = assigned
        self._returns = returns
        self._tally = tally
        self._clock = shards.clock
        self._limits = shards.host.config.limits

    def bring_up_to_date(self, visit: Visit) -> None:
        """Before a queue is read: return to it what is due, and remove from it what its log has lost to retention."""
        queue, partition = visit.queue, visit.partition
        if queue.leases.outstanding:
            self._returns.return_due(visit.poller.group, queue, self._clock.now_ns())
        if partition.log.start_offset > queue.cursors.committed:
            drop_expired(visit.poller.group, queue, partition)

    async def take_alone(self, visit: Visit) -> list[Delivery]:
        """``take``, while no other poll reads the queue; nothing if another one does already."""
        group, queue = visit.poller.group, visit.queue
        reading = group.runtime.reading
        if queue.key in reading:
            return []
        self.bring_up_to_date(visit)
        reading.add(queue.key)
        first_number = queue.leases.next_number
        try:
            return await self.take(visit)
        except BaseException:
            self._returns.give_back_from(visit, first_number)
            raise
        finally:
            reading.discard(queue.key)
            if group.runtime.waiters:
                # Others left it alone meanwhile, and may be waiting for what is left.
                group.offer(queue)

    async def take(self, visit: Visit) -> list[Delivery]:
        """Retries first, then what waited for its key, then new messages."""
        queue, partition, room, lane = visit.queue, visit.partition, visit.room, visit.lane
        is_keyed = visit.poller.group.settings.ordering == "key"
        if is_keyed and queue.keys is None:
            if not (queue.has_ready or queue.parked or self._may_scan(queue, partition, partition.stable_end)):
                return []
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
            end = partition.stable_end
            if not room.is_left or not self._may_scan(queue, partition, end):
                break
            if is_keyed and queue.keys is None:
                # A reset came in between: the next poll begins with learning them again.
                break
            at, reads_all = queue.cursor(lane), is_plain(queue, partition)
            found += await self._deliver_new(visit, at, end, reads_all=reads_all)
            if (found and reads_all and queue.keys is None) or queue.cursor(lane) == at:
                break
        return found

    def _may_scan(self, queue: Queue, partition: Partition, end: int) -> bool:
        return may_scan(queue, partition, end, self._limits.max_outstanding)

    async def learn_keys(self, visit: Visit) -> list[Delivery]:
        """Read from the log which messages wait for their key, and which keys are taken. Nothing is delivered."""
        queue = visit.queue
        keys, lost = await _keys_in_log(queue, visit.partition)
        if self._assigned.may_take(visit):
            queue.keys = keys
            for lane, offsets in lost.items():
                visit.poller.group.change([decide_lost(queue, lane, offsets, visit.poller.member_id)])
        return []

    async def _deliver_new(self, visit: Visit, cursor: int, end: int, *, reads_all: bool) -> list[Delivery]:
        """Read from the lane's cursor on to before ``end``; all lanes are read at once if only one has messages."""
        group, queue, partition, room, lane = visit.poller.group, visit.queue, visit.partition, visit.room, visit.lane
        if cursor < partition.log.start_offset:
            drop_expired(group, queue, partition)
            cursor, reads_all = queue.cursor(lane), is_plain(queue, partition)
        if cursor >= end:
            return []
        # As of now: a compaction that ends while the old files are read forgets what it has removed.
        view, keys = self._view(visit), queue.keys
        count = room.messages if keys is None else max(room.messages, _READ_AHEAD)
        if reads_all:
            run, upto = await partition.read(cursor, max(room.size, 1), count, end)
        else:
            run, upto = await partition.read_lane(lane, cursor, max(room.size, 1), count)
        if cursor != queue.cursor(lane) or keys is not queue.keys or not self._assigned.may_take(visit):
            return []
        first_number = queue.leases.next_number
        left: list[tuple[int, int]] = []
        if run is None:
            # What is left there is for no group, and must not be looked at again and again.
            if not reads_all:
                left = left_behind(partition, lane, queue.front, upto)
            group.change([decide_skip(queue, lane, upto, visit.poller.member_id, left)])
            return []
        terms = self._terms(visit)
        selection = select(queue, candidates(queue, partition, run, upto, view), terms)
        if keys is not None:
            selection.keep_within(room.messages)
        if not reads_all:
            selection.go_on_to(next_of_lane(partition, lane, selection.upto, queue.front))
            left = left_behind(partition, lane, queue.front, selection.upto)
        self._count_expired(queue, selection.expired)
        group.change(decide_new(queue, selection, left, terms))
        if queue.keys is not None:
            selection.note_keys(queue.keys, lane)
            if selection.parked:
                self._warn_if_full(visit, queue.keys)
        if not selection.offsets:
            return []
        chosen = run if selection.indexes is None else select_frames(run, selection.indexes)
        return self.deliveries(visit, lane, queue.leases.issued_since(first_number, lane), chosen)

    def _warn_if_full(self, visit: Visit, keys: KeyOrder) -> None:
        if keys.parked_count >= self._limits.max_parked:
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
        group, first_number = visit.poller.group, visit.queue.leases.next_number
        if redelivery.gone:
            group.change(redelivery.gone, LOST)
        group.change(redelivery.again)
        self._tally.redeliveries += len(redelivery.indexes)
        if picked.run is None or not redelivery.indexes:
            return []
        batches = visit.queue.leases.issued_since(first_number, visit.lane)
        return self.deliveries(visit, visit.lane, batches, select_frames(picked.run, redelivery.indexes))

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
        first_number = queue.leases.next_number
        visit.poller.group.change(parked.events)
        parked.note_keys(keys)
        if picked.run is None or not parked.indexes:
            return []
        batches = queue.leases.issued_since(first_number, visit.lane)
        return self.deliveries(visit, visit.lane, batches, select_frames(picked.run, parked.indexes))

    def _view(self, visit: Visit) -> GroupView:
        return GroupView(
            visit.poller.group.name,
            self._clock.now_ns(),
            visit.topic.settings.message_ttl_ms,
            visit.partition.producers.state.aborted,
        )

    def _terms(self, visit: Visit) -> FetchTerms:
        host, queue, topic = self._host, visit.queue, visit.topic
        return FetchTerms(
            visit.poller.member_id,
            visit.lane,
            self.until_ns(visit),
            topic.settings.expired_messages == "dead_letter",
            self._limits.max_parked,
            lambda: target_for(host, queue, topic),
        )

    def _count_expired(self, queue: Queue, offsets: Sequence[int]) -> None:
        if offsets:
            self._tally.expired += len(offsets)
            self._host.notes.expired(queue, offsets, OVER_AGE)

    def deliveries(self, visit: Visit, lane: int, batches: Sequence[InFlightBatch], run: FrameRun) -> list[Delivery]:
        """What new leases of a lane are for the member: the frames of all their messages are in ``run``."""
        queue, topic, group = visit.queue, visit.topic.record.name, visit.poller.group
        seal = group.seal(queue, visit.topic)
        found = []
        at = 0
        for batch in batches:
            size = batch.bits.bit_count()
            part = run if len(batches) == 1 else run.part(at, at + size)
            at += size
            behind = batch.first + batch.bits.bit_length()
            found.append(Delivery(topic, queue.partition, part, batch.lease, batch.count, seal, behind, batch.at_ns))
        visit.room.take(at, len(run.frames))
        now_ns = self._clock.now_ns()
        first_ns = last_ns = timestamp_of(run.frames)
        if at > 1:
            last_ns = timestamp_of(run.frames[int(run.positions[-1]) :])
        # What is tried again has waited for its time, which says nothing of how fast messages get here.
        is_first = batches[0].count == 1
        waits_ns = now_ns - first_ns, now_ns - last_ns
        group.runtime.note_served(queue.key, lane, at, waits_ns, now_ns, is_first=is_first)
        return found

    def until_ns(self, visit: Visit) -> int:
        """When the visibility timeout of a delivery made now ends."""
        return self._clock.now_ns() + visibility_ns(visit.poller.group.settings, visit.topic.settings)


async def _keys_in_log(queue: Queue, partition: Partition) -> tuple[KeyOrder, dict[int, list[int]]]:
    """The order of keys by the log, and by lane the parked offsets that the log does not have any more."""
    found = {number: await _read_keys(queue, partition, number) for number in list(queue.lanes)}
    # This goes by the queue as it is now: messages may have been settled meanwhile.
    return recover_keys(queue, found)


async def _read_keys(queue: Queue, partition: Partition, number: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    lane = queue.lanes.get(number)
    if lane is None:
        return found
    at = 0
    for first, end in list(lane.acked.gaps(lane.cursor)):
        at = max(at, first)
        while (at := max(at, partition.log.start_offset)) < end:
            # Beyond the gap's end, where the next one may be near.
            run, following = await partition.read(at, _KEYS_AT_ONCE_BYTES, max(1, min(_KEYS_AT_ONCE, lane.cursor - at)))
            if run is None:
                break
            columns = run.columns()
            damaged = find_damaged_frames(partition, run, columns)
            at = following
            for index, (offset, key) in enumerate(zip(columns["offset"].tolist(), keys_of(run), strict=True)):
                if index not in damaged and offset not in lane.acked:
                    found[offset] = lane_key(number, key)
    return found
