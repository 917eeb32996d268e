"""Where groups are: committing, asking, and beginning somewhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from goqueue.broker.groups.subscriptions import Subscriptions
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.queues.stream_commits import StreamCommits
from goqueue.broker.queues.transactional_acks import TransactionalAcks
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.lag import lag
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.shard_state import ShardEvent
from goqueue.coordination.transaction_records import GroupAcks, GroupOffset
from goqueue.delivery.committed_offsets import decide_acks_below, decide_commit, decide_reset
from goqueue.delivery.queue import Queue
from goqueue.model.errors import NotAssigned, OffsetOutOfRange
from goqueue.model.fields import shown
from goqueue.model.ids import partition_key, queue_key
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_PARTITIONS_AT_A_STRETCH = 500
Offsets = Mapping[str, Mapping[int, int]]
"""By topic and partition."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Where a group is in one partition."""

    topic: str
    partition: int
    committed: int
    latest: int
    lag: int
    in_flight: int
    waiting: int
    owner: str | None


class GroupOffsets:
    def __init__(
        self, shards: Shards, commits: StreamCommits, acks: TransactionalAcks, subscriptions: Subscriptions
    ) -> None:
        self._shards = shards
        self._host = shards.host
        self._clock = shards.clock
        self._commits = commits
        self._acks = acks
        self._subscriptions = subscriptions

    async def commit(self, name: str, member_id: str, offsets: Offsets, generation: int | None = None) -> None:
        """In a stream: everything below is done. In a queue: what was delivered below is, and nothing else."""
        group = self._shards.find(name)
        events: list[ShardEvent] = []
        is_stream = group.settings.mode == "stream"
        for queue, offset in self._checked(group, member_id, offsets, generation):
            events += decide_commit(queue, offset) if is_stream else decide_acks_below(queue, offset)
        group.change(events)
        group.release(member_id)
        group.runtime.wake_all()
        await group.settled()

    def commit_later(
        self, name: str, member_id: str, offsets: Offsets, generation: int | None, holder: str, frozen: list[GroupAcks]
    ) -> list[GroupOffset]:
        """The same for a transaction, which does it when it is committed. What it holds until then is added to
        ``frozen``; if that is nothing, an error has changed nothing."""
        group = self._shards.find(name)
        checked = self._checked(group, member_id, offsets, generation)
        if group.settings.mode == "stream":
            later = [GroupOffset(name, queue.key, offset, queue.committed, member_id) for queue, offset in checked]
            for each in later:
                self._commits.expect(each, holder)
            return later
        self._acks.freeze_below(group, checked, holder, frozen)
        return []

    def read_again(self, offsets: Sequence[GroupOffset]) -> None:
        """Members of a stream go back to what is committed: the transaction with which they went on was aborted."""
        for each in offsets:
            group = self._shards.served(each.group)
            session = None if group is None else group.runtime.sessions.get(each.member)
            if session is not None:
                # Only this member: another that has the partition by now has begun with what is committed.
                session.positions.pop(each.queue, None)

    def _checked(
        self, group: ActiveGroup, member_id: str, offsets: Offsets, generation: int | None
    ) -> list[tuple[Queue, int]]:
        """Where a member wants to be, if it may say so."""
        name, state, settings = group.name, group.group.state, group.settings
        group.group.member(member_id)
        if settings.kind == "range" or generation is None or generation > state.generation:
            group.group.check_generation(generation)
        group.runtime.session(member_id, self._clock.monotonic_ns())
        found = []
        for queue, partition, offset in self._named_queues(group, offsets):
            place = partition_key(queue.topic_id, queue.partition)
            if settings.kind != "shared" and state.owners.get(place) != member_id:
                raise NotAssigned(
                    f"partition {queue.partition} of that topic is not assigned to member {member_id!r} of {name!r}"
                )
            if not 0 <= offset <= partition.high_watermark:
                raise OffsetOutOfRange(f"offset {shown(offset)} is not there; the latest is {partition.high_watermark}")
            found.append((queue, offset))
        return found

    def _named_queues(self, group: ActiveGroup, offsets: Offsets) -> list[tuple[Queue, Partition, int]]:
        found = []
        for topic_name, by_partition in offsets.items():
            topic = self._host.topic(topic_name)
            for number, offset in by_partition.items():
                partition = topic.partition(number)
                self._shards.map.check_led(topic, number)
                queue = group.queue(topic, number)
                if queue is None:
                    raise NotAssigned(f"group {group.name!r} does not read topic {topic_name!r}")
                found.append((queue, partition, offset))
        return found

    async def committed(self, name: str, topic: str | None = None) -> dict[str, dict[int, int]]:
        """Committed offsets: the end of what is done without a gap."""
        if topic is not None:
            self._host.topic(topic)
        found: dict[str, dict[int, int]] = {}
        for each in await self.lag_in_stretches(name):
            if topic is None or each.topic == topic:
                found.setdefault(each.topic, {})[each.partition] = each.committed
        await self._shards.find(name).settled()
        return found

    async def reset(self, name: str, offsets: Offsets) -> None:
        """Begin again at these offsets; receipts from before are void.

        What is wrong is found before anything is changed; of very many partitions some are changed after others.
        """
        group = self._shards.find(name)
        events: list[ShardEvent] = []
        topics = [self._host.topic(each) for each in offsets]
        stretch = TimeSlice()
        for topic in topics:
            for number, offset in offsets[topic.name].items():
                partition = topic.partition(number)
                key = queue_key(group.group.state.identity, topic.record.topic_id, number)
                events.append(decide_reset(key, offset, partition.log.start_offset, partition.high_watermark))
                if stretch.is_over:
                    await stretch.rest()
        # It may have been deleted meanwhile, or know other topics.
        group = self._shards.find(name)
        group.change(self._subscriptions.opened(group.group, topics, group.settings))
        for start in range(0, len(events), _PARTITIONS_AT_A_STRETCH):
            if start:
                await asyncio.sleep(0)
                group = self._shards.find(name)
            group.change(events[start : start + _PARTITIONS_AT_A_STRETCH])
        group.runtime.wake_all()
        await group.settled()
        log.info("a group was set to other offsets", group=name, topics=sorted(offsets)[:10])

    def lag(self, name: str) -> list[PartitionLag]:
        """Where the group is in each of its partitions."""
        return sorted(self._lags(name), key=_place)

    async def lag_in_stretches(self, name: str) -> list[PartitionLag]:
        """``lag``, giving way to others meanwhile: there may be thousands."""
        found = []
        stretch = TimeSlice()
        for each in self._lags(name):
            found.append(each)
            if stretch.is_over:
                await stretch.rest()
        return sorted(found, key=_place)

    def _lags(self, name: str) -> Iterator[PartitionLag]:
        group = self._shards.find(name)
        self._shards.map.check_all_led()
        for queue in group.queues():
            place = group.shards.place(queue)
            if place is None:
                continue
            topic, partition = place
            in_flight = queue.leases.in_flight
            yield PartitionLag(
                topic.name,
                queue.partition,
                queue.committed,
                partition.high_watermark,
                lag(queue, partition),
                in_flight,
                queue.leases.outstanding - in_flight,
                group.group.state.owners.get(partition_key(queue.topic_id, queue.partition)),
            )


def _place(lag: PartitionLag) -> tuple[str, int]:
    return lag.topic, lag.partition
