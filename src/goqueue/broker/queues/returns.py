"""Messages that come back without a request: visibility timeouts, members that leave, answers that never arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from goqueue.broker.coordinator.group_shards import GroupShards
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.queue_changes import QueueChanges
from goqueue.broker.queues.tally import Tally
from goqueue.coordination.group import Group
from goqueue.coordination.groups import GroupsEvent
from goqueue.delivery.claims import Claimed, members_of
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import decide_departure, decide_timeout, whole
from goqueue.delivery.settlement import decide_release_unseen
from goqueue.model.logging import get_logger
from goqueue.model.runs import bits_to_runs, offsets_in
from goqueue.observe.trace_event import EXPIRED

log = get_logger(__name__)

_MOST_NAMED = 5


class Returns:
    def __init__(self, shards: GroupShards, changes: QueueChanges, tally: Tally) -> None:
        self._shards = shards
        self._changes = changes
        self._clock = shards.clock
        self._tally = tally

    def tend(self, queue: Queue) -> None:
        """Make due retries ready, and give back messages whose visibility timeout is over."""
        now_ns = self._clock.now_ns()
        at_ns = queue.leases.next_time_ns()
        if at_ns is None:
            return
        if at_ns > now_ns:
            # The timer may have been for a message that was settled since, and not be set for a later one.
            self._shards.rearm(queue)
            return
        place = self._shards.place(queue)
        if place is None:
            return
        expired = queue.leases.ripen(now_ns)
        if expired:
            claimed = whole(expired)
            self._tally.visibility_timeouts += sum(bits.bit_count() for _, bits in claimed)
            group = self._shards.journal(queue.group).machine.find(queue.group)
            told = _described(queue, place[0], claimed)
            events = decide_timeout(queue, expired, self._changes.terms(group, queue, place[0]))
            self._changes.apply(group, [claimed], events, EXPIRED)
            log.info("messages were not settled in time and are given back", **told)
        self._shards.rearm(queue)
        self._shards.offer(queue.group, queue)

    def of_member(self, group: Group, member_id: str, *, orderly: bool) -> list[GroupsEvent]:
        """What becomes of everything that a departing member has in flight. The caller has to apply it."""
        events: list[GroupsEvent] = []
        for queue, topic in self._queues_in_hand(group, member_id):
            terms = self._changes.terms(group, queue, topic)
            events += decide_departure(queue, member_id, terms, orderly=orderly)
        return events

    def of_unseen(
        self, group: Group, member_id: str, is_unseen: Callable[[tuple[str, int, int]], bool]
    ) -> list[GroupsEvent]:
        """What a member has in flight and never got is ready at once, and the delivery does not count.

        ``is_unseen`` answers by topic, partition and lease. The caller has to apply the events.
        """
        events: list[GroupsEvent] = []
        for queue, topic in self._queues_in_hand(group, member_id):
            leases = {batch.lease for batch in queue.batches() if batch.member == member_id}
            unseen = {lease for lease in leases if is_unseen((topic.name, queue.partition, lease))}
            events += decide_release_unseen(queue, member_id, unseen)
        return events

    def _queues_in_hand(self, group: Group, member_id: str) -> Iterator[tuple[Queue, Topic]]:
        """Queues of which a member has messages in flight."""
        for queue in self._shards.queues_of(group):
            place = self._shards.place(queue)
            if place is not None and queue.in_hand(member_id):
                yield queue, place[0]


def _described(queue: Queue, topic: Topic, claimed: Claimed) -> dict[str, Any]:
    """For the log: which members had the messages, and the first few offsets."""
    runs = (bits_to_runs(batch.first, bits) for batch, bits in claimed)
    return {
        "group": queue.group,
        "members": sorted(members_of(claimed)),
        "topic": topic.name,
        "partition": queue.partition,
        "count": sum(bits.bit_count() for _, bits in claimed),
        "offsets": list(islice((offset for each in runs for offset in offsets_in(each)), _MOST_NAMED)),
    }
