"""Messages that come back without a request: visibility timeouts, members that leave, answers that never arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.poll_attempt import Visit
from goqueue.broker.queues.tally import Tally
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.coordination.shard_state import ShardEvent
from goqueue.delivery.claims import Claimed, members_of
from goqueue.delivery.leases import lease_in
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import decide_departure, whole
from goqueue.delivery.settlement import decide_release_unseen
from goqueue.delivery.visibility_timeout import decide_timeout
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.model.runs import bits_to_runs, offsets_in
from goqueue.observe.trace_event import EXPIRED

log = get_logger(__name__)

_MOST_NAMED = 5


class Returns:
    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def return_due(self, group: ActiveGroup, queue: Queue, now_ns: int) -> None:
        """Make due retries ready, and return messages to the queue whose visibility timeout is over."""
        at_ns = queue.leases.next_time_ns()
        if at_ns is None:
            return
        if at_ns > now_ns:
            # The timer may have been for a message that was settled since, and not be set for a later one.
            group.shards.of_queue(queue.key).rearm(queue)
            return
        place = group.shards.place(queue)
        if place is None:
            return
        expired = queue.leases.ripen(now_ns)
        if expired:
            claimed = whole(expired)
            self._tally.visibility_timeouts += sum(bits.bit_count() for _, bits in claimed)
            described = _described(queue, place[0], claimed)
            events = decide_timeout(queue, expired, group.terms(queue, place[0]))
            # Before the events take the messages out of their batches.
            members = members_of(claimed)
            group.change(events, EXPIRED, members)
            log.info("messages were not settled in time and are given back", **described)
        group.shards.of_queue(queue.key).rearm(queue)
        group.offer(queue)

    def give_back(self, group: ActiveGroup, member_id: str, is_unseen: Callable[[tuple[str, int, int]], bool]) -> None:
        """Release deliveries that never reached their member; ``is_unseen`` answers by topic, partition and lease."""
        # If that cannot be written either, their visibility timeout returns them.
        with suppress(GoQueueError):
            group.change(self.of_unseen(group, member_id, is_unseen))

    def give_back_from(self, visit: Visit, first_number: int) -> None:
        """The same for what a visit was delivered of its queue, by the lease of this number and later ones."""
        first_lease = lease_in(first_number, 0)
        here = visit.topic.name, visit.queue.partition
        self.give_back(
            visit.poller.group, visit.poller.member_id, lambda lease: lease[:2] == here and lease[2] >= first_lease
        )

    def of_member(self, group: ActiveGroup, member_id: str, *, orderly: bool) -> list[ShardEvent]:
        """What becomes of everything that a departing member has in flight. The caller has to apply it."""
        events: list[ShardEvent] = []
        for queue, topic in _queues_in_hand(group, member_id):
            events += decide_departure(queue, member_id, group.terms(queue, topic), orderly=orderly)
        return events

    def of_departed(self, group: ActiveGroup) -> list[ShardEvent]:
        """What becomes of everything that members have in flight who are not in the group any more.

        When a member leaves, its shard and those of its partitions note that one by one. A crash may come in between,
        or one of them may be led elsewhere at the time.
        """
        members = group.group.state.members
        held = {
            batch.member
            for queue in group.queues()
            for batch in queue.batches()
            if batch.member is not None and not batch.is_frozen and batch.member not in members
        }
        return [event for member_id in sorted(held) for event in self.of_member(group, member_id, orderly=False)]

    def of_unseen(
        self, group: ActiveGroup, member_id: str, is_unseen: Callable[[tuple[str, int, int]], bool]
    ) -> list[ShardEvent]:
        """What a member has in flight and never got is ready at once, and the delivery does not count.

        ``is_unseen`` answers by topic, partition and lease. The caller has to apply the events.
        """
        events: list[ShardEvent] = []
        for queue, topic in _queues_in_hand(group, member_id):
            leases = {batch.lease for batch in queue.batches() if batch.member == member_id}
            unseen = {lease for lease in leases if is_unseen((topic.name, queue.partition, lease))}
            events += decide_release_unseen(queue, member_id, unseen)
        return events


def _queues_in_hand(group: ActiveGroup, member_id: str) -> Iterator[tuple[Queue, Topic]]:
    """Queues of which a member has messages in flight."""
    for queue in group.queues():
        place = group.shards.place(queue)
        if place is not None and queue.leases.in_hand(member_id):
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
