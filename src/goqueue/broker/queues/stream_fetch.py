"""What one poll of a stream gets from one partition: messages in the order of offsets, without leases."""

from __future__ import annotations

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.queues.assigned_queues import AssignedQueues, drop_expired
from goqueue.broker.queues.deliverable_frames import GroupView, passed_by
from goqueue.broker.queues.poll_attempt import Delivery, Visit
from goqueue.broker.queues.stream_commits import StreamCommits
from goqueue.broker.queues.tally import Tally
from goqueue.broker.shards.group_runtime import Session
from goqueue.broker.shards.shard_directory import Shards
from goqueue.delivery.queue import Queue
from goqueue.model.runs import Offsets, ascending_to_runs
from goqueue.observe.trace_event import OVER_AGE
from goqueue.wire.batch import select_frames
from goqueue.wire.frame import timestamp_of


class StreamFetch:
    def __init__(self, shards: Shards, assigned: AssignedQueues, commits: StreamCommits, tally: Tally) -> None:
        self._notes = shards.notes
        self._assigned = assigned
        self._commits = commits
        self._tally = tally
        self._clock = shards.clock

    def position(self, session: Session | None, queue: Queue, partition: Partition) -> int:
        """Where a member reads on: a member that does not commit at once gets nothing twice.

        At the partition's end as long as a transaction may move the group beyond where the member is.
        """
        at = max(_known_position(session, queue), partition.log.start_offset)
        if self._commits.is_expected(queue.key, at):
            return max(at, partition.stable_end)
        return at

    async def take(self, visit: Visit) -> list[Delivery]:
        queue, partition, session = visit.queue, visit.partition, visit.poller.session
        if _known_position(session, queue) < partition.log.start_offset:
            drop_expired(visit.poller.group, queue, partition)
        at = self.position(session, queue, partition)
        if partition.stable_end <= at:
            return []
        first = partition.next_visible(at)
        view = GroupView(
            visit.poller.group.name,
            self._clock.now_ns(),
            visit.topic.settings.message_ttl_ms,
            partition.producers.state.aborted,
        )
        run, following = await partition.read(first, max(visit.room.size, 1), visit.room.messages)
        if not self._assigned.may_take(visit) or self.position(session, queue, partition) != at:
            # A reset, or another poll of this member, came in between.
            return []
        session.positions[queue.key] = following
        if run is None:
            return []
        seen: Offsets = [first, following]
        hidden, expired = passed_by(run, view)
        if expired:
            offsets = run.columns()["offset"]
            self._tally.expired += len(expired)
            self._notes.expired(queue, [int(offsets[index]) for index in expired], OVER_AGE)
        if hidden or expired:
            indexes = [index for index in range(len(run)) if index not in hidden and index not in expired]
            if not indexes:
                return []
            run = select_frames(run, indexes)
            seen = ascending_to_runs(run.columns()["offset"].tolist())
        visit.room.take(len(run), len(run.frames))
        self._notes.streamed(queue, seen, visit.poller.member_id)
        now_ns = self._clock.now_ns()
        waits_ns = now_ns - timestamp_of(run.frames), now_ns - timestamp_of(run.frames[int(run.positions[-1]) :])
        visit.poller.group.runtime.note_end_to_end(len(run), *waits_ns)
        return [Delivery(visit.topic.name, queue.partition, run, 0, 0, None, following, 0)]


def _known_position(session: Session | None, queue: Queue) -> int:
    return queue.committed if session is None else session.positions.get(queue.key, queue.committed)
