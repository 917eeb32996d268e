"""What one poll gets from several priority lanes, by weight, over all of a member's queues together.

The backlog of each lane is known before anything is read. So a poll plans first, reads each lane ahead, and delivers
what it has read in one step for each queue. If not all of it fits into the answer, the most urgent lane is served from
every queue before the next lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from goqueue.broker.queues.assigned_queues import AssignedQueues
from goqueue.broker.queues.poll_attempt import Attempt, Delivery, Visit
from goqueue.broker.queues.queue_fetch import QueueFetch
from goqueue.broker.queues.read_ahead import Ahead, ReadAhead
from goqueue.broker.queues.returns import Returns
from goqueue.broker.shards.backlog import LANES, at_most_waiting, left_behind, may_scan, next_of_lane, stranded
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.shard_state import ShardEvent
from goqueue.delivery.fetch import decide_read_ahead, decide_skip
from goqueue.delivery.in_flight_batch import InFlightBatch
from goqueue.delivery.lane_scheduler import LaneScheduler
from goqueue.delivery.leases import lane_of, lease_in
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import GoQueueError
from goqueue.model.ids import QueueKey
from goqueue.wire.batch import FrameRun

Backlog = dict[int, int]
"""How many messages wait in each lane."""

_STEPS = 1_000
"""How far one poll looks for something to show."""


@dataclass(slots=True)
class _Job:
    """So many from one lane of one queue."""

    visit: Visit
    lane: int
    count: int
    ahead: Ahead | None = None
    """What was read of it, if it needs no closer look."""

    @property
    def place(self) -> tuple[str, int]:
        return self.visit.queue.key, self.lane


class LaneFetch:
    def __init__(self, shards: Shards, assigned: AssignedQueues, fetch: QueueFetch, returns: Returns) -> None:
        self._returns = returns
        self._assigned = assigned
        self._fetch = fetch
        self._clock = shards.clock
        self._max_outstanding = shards.host.config.limits.max_outstanding
        self._ahead = ReadAhead()

    async def serve(self, attempt: Attempt) -> None:
        poller, group = attempt.poller, attempt.poller.group
        runtime = group.runtime
        visits = self._visits(attempt, runtime.reading)
        first_numbers = [visit.queue.leases.next_number for visit in visits]
        runtime.reading.update(visit.queue.key for visit in visits)
        is_shared = group.settings.kind == "shared"
        try:
            await self._serve(attempt, visits, runtime.lane_scheduler if is_shared else poller.session.lane_scheduler)
        except BaseException:
            for visit, first_number in zip(visits, first_numbers, strict=True):
                self._returns.give_back_from(visit, first_number)
            raise
        finally:
            for visit in visits:
                runtime.reading.discard(visit.queue.key)
            # Others left them alone meanwhile, and may be waiting for what is left.
            group.offer_all([visit.queue for visit in visits])
        if attempt.room.is_left:
            # Everything was looked at: there is nothing to offer to others.
            attempt.to_visit.clear()

    def _visits(self, attempt: Attempt, reading: set[QueueKey]) -> list[Visit]:
        found = []
        for queue in attempt.to_visit:
            where = attempt.poller.group.shards.place(queue)
            if where is not None and queue.key not in reading:
                visit = Visit(attempt.poller, queue, where[0], where[1], attempt.room)
                found.append(visit)
                self._fetch.bring_up_to_date(visit)
        return found

    async def _serve(self, attempt: Attempt, visits: Sequence[Visit], scheduler: LaneScheduler) -> None:
        room = attempt.room
        for visit in visits:
            if attempt.poller.group.must_learn_keys(visit.queue):
                # The backlog of its lanes is not known before.
                await attempt.harvest(self._fetch.learn_keys(visit))
        barren: set[tuple[str, int]] = set()
        while room.is_left:
            waits = self._waits(visits, room.messages)
            now_ns = self._clock.monotonic_ns()
            open_waits = [
                (visit, {lane: count for lane, count in there.items() if (visit.queue.key, lane) not in barren})
                for visit, there in waits
            ]
            plan = scheduler.plan(_total(open_waits), room.messages, *_rules(open_waits), now_ns)
            if not plan:
                break
            jobs = await self._read_jobs(_spread(_whole(plan), open_waits))
            begun = len(attempt.found)
            if all(job.ahead is not None for job in jobs) and _size(jobs) <= room.size:
                for visit in visits:
                    attempt.found += self._hand_out(visit, [job for job in jobs if job.visit is visit])
            else:
                _limit(jobs, plan)
                await self._lane_by_lane(attempt, jobs)
            served = _note_served(attempt.found[begun:], scheduler, now_ns)
            barren |= {job.place for job in jobs if job.count and not served[_named(job)]}
            order = list(_whole(plan))
            attempt.found[begun:] = sorted(attempt.found[begun:], key=lambda each: order.index(lane_of(each.lease)))
        if not attempt.found and room.is_left:
            for visit in visits:
                self._pass_over(visit)

    def _waits(self, visits: Sequence[Visit], most: int) -> list[tuple[Visit, Backlog]]:
        """What there is in the queues that the member may still take from, up to where every lane has enough."""
        waits: list[tuple[Visit, Backlog]] = []
        short = dict.fromkeys(LANES, most)
        for visit in visits:
            if visit.partition.closed or not self._assigned.may_take(visit):
                continue
            there = at_most_waiting(visit.queue, visit.partition, most)
            self._catch_up(visit, there)
            waits.append((visit, there))
            short = {lane: count - there.get(lane, 0) for lane, count in short.items()}
            if max(short.values()) <= 0:
                break
        return waits

    async def _lane_by_lane(self, attempt: Attempt, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            if not attempt.room.is_left:
                # Not its fault.
                job.count = 0
            if not job.count:
                continue
            if job.ahead is not None:
                attempt.found += self._hand_out(job.visit, [job])
            else:
                part = attempt.room.part(job.count)
                visit = replace(job.visit, lane=job.lane, room=part)
                try:
                    await attempt.harvest(self._fetch.take(visit))
                finally:
                    attempt.room.absorb(part, job.count)

    # Reading ahead

    async def _read_jobs(self, jobs: list[_Job]) -> list[_Job]:
        for job in jobs:
            try:
                job.ahead = await self._read(job.visit, job.lane)
            except GoQueueError:
                # The closer look will meet it again.
                job.ahead = None
        return jobs

    async def _read(self, visit: Visit, lane: int) -> Ahead | None:
        """What comes next in a lane, if it is only to be handed out."""
        queue, partition = visit.queue, visit.partition
        if not self._has_only_new(visit, lane):
            return None
        if not may_scan(queue, partition, partition.stable_end, self._max_outstanding):
            return None
        place, cursor = (queue.key, lane), queue.cursor(lane)
        return self._ahead.get(place, cursor) or await self._ahead.read(partition, place, cursor)

    def _has_only_new(self, visit: Visit, lane: int) -> bool:
        """Whether there is nothing to try again, to wait for or to leave out in a lane."""
        queue, settings = visit.queue, visit.poller.group.settings
        if settings.ordering == "key" or queue.moving or visit.topic.settings.message_ttl_ms is not None:
            return False
        return queue.has_only_new(lane)

    def _hand_out(self, visit: Visit, jobs: Sequence[_Job]) -> list[Delivery]:
        """From what was read ahead, all in one event; nothing else runs meanwhile."""
        queue, room = visit.queue, visit.room
        if not jobs or visit.partition.closed or not self._assigned.may_take(visit):
            return []
        until_ns = self._fetch.until_ns(visit)
        handed: list[tuple[_Job, FrameRun]] = []
        events: list[ShardEvent] = []
        front, messages, size = queue.front, room.messages, room.size
        for job in jobs:
            lane, ahead = job.lane, job.ahead
            if messages <= 0 or ahead is None or not ahead.fits(queue.cursor(lane)):
                continue
            if not self._has_only_new(visit, lane):
                # It had when it was read.
                continue
            run, offsets = ahead.first(min(job.count, messages), max(size, 1))
            messages, size = messages - len(run), size - len(run.frames)
            end = int(offsets[-1]) + 1
            following = ahead.following(len(run))
            upto = next_of_lane(visit.partition, lane, end, front) if following is None else min(following, front)
            upto = max(upto, end)
            left = left_behind(visit.partition, lane, front, upto)
            events.append(decide_read_ahead(queue, lane, offsets, upto, left, visit.poller.member_id, until_ns))
            handed.append((job, run))
            front = max(front, upto)
        if not handed:
            return []
        number = queue.leases.next_number
        visit.poller.group.change(events)
        found: list[Delivery] = []
        for job, run in handed:
            self._ahead.taken(job.place, job.ahead, len(run), queue.cursor(job.lane))
            batches: list[InFlightBatch] = []
            while queue.leases.has(lease_in(number, job.lane)):
                batches += queue.leases.batches(lease_in(number, job.lane))
                number += 1
            found += self._fetch.deliveries(visit, job.lane, batches, run)
        return found

    # Going on without anything to hand out

    def _catch_up(self, visit: Visit, there: Backlog) -> None:
        """Lanes for which nothing waits go on to where the others are."""
        queue = visit.queue
        late = stranded(queue, there)
        if late:
            skips = [decide_skip(queue, lane, queue.front, visit.poller.member_id) for lane in late]
            visit.poller.group.change(skips)

    def _pass_over(self, visit: Visit) -> None:
        """Skip what lies next in the partition if no group sees it: it is delayed, the system's own, or was aborted."""
        queue, partition = visit.queue, visit.partition
        if partition.closed or partition.stable_end <= queue.front or not self._assigned.may_take(visit):
            return
        if any(lane.cursor < queue.front for lane in queue.lanes.values()):
            return
        upto = partition.next_visible(max(queue.front, partition.log.start_offset), _STEPS)
        if upto > queue.front:
            visit.poller.group.change([decide_skip(queue, visit.lane, upto, visit.poller.member_id)])


def _total(waits: Sequence[tuple[Visit, Backlog]]) -> Backlog:
    total: Counter[int] = Counter()
    for _, there in waits:
        total.update(there)
    return total


def _rules(waits: Sequence[tuple[Visit, Backlog]]) -> tuple[list[int], int]:
    """Lane weights, and after how long a lane is boosted. Of several topics, what is best for each lane counts."""
    settings = {id(visit.topic): visit.topic.settings for visit, _ in waits}.values()
    weights = [max(of_lane) for of_lane in zip(*(each.lane_weights for each in settings), strict=True)]
    return weights, min((each.lane_starvation_ms for each in settings), default=0) * NANOS_PER_MS


def _whole(plan: Sequence[tuple[int, int]]) -> Backlog:
    """How many of each lane. A lane comes twice in a plan if there is room for more than this round."""
    counts: Counter[int] = Counter()
    for lane, count in plan:
        counts[lane] += count
    return counts


def _spread(counts: Backlog, waits: Sequence[tuple[Visit, Backlog]]) -> list[_Job]:
    """Lane by lane: as many from the first queue as it has, the rest from the next."""
    jobs = []
    for lane, count in counts.items():
        for visit, there in waits:
            part = min(count, there.get(lane, 0))
            if part:
                jobs.append(_Job(visit, lane, part))
                count -= part
    return jobs


def _limit(jobs: Sequence[_Job], plan: Sequence[tuple[int, int]]) -> None:
    """What does not fit into the answer is taken round by round, lest the first lane take all of it."""
    left: Backlog = {}
    for lane, count in plan:
        left.setdefault(lane, count)
    for job in jobs:
        job.count = min(job.count, left[job.lane])
        left[job.lane] -= job.count


def _size(jobs: Sequence[_Job]) -> int:
    return sum(job.ahead.size_of(job.count) for job in jobs if job.ahead is not None)


def _named(job: _Job) -> tuple[str, int, int]:
    return job.visit.topic.name, job.visit.queue.partition, job.lane


def _note_served(found: Sequence[Delivery], scheduler: LaneScheduler, now_ns: int) -> Counter[tuple[str, int, int]]:
    """How many came of each topic, partition and lane."""
    served: Counter[tuple[str, int, int]] = Counter()
    for each in found:
        lane = lane_of(each.lease)
        served[each.topic, each.partition, lane] += len(each.run)
        scheduler.note_served(lane, len(each.run), now_ns)
    return served
