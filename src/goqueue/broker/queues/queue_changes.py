"""Carries out decisions about deliveries: journals and applies events, wakes members, hands over partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from goqueue.broker.coordinator.dead_letter_topics import target_for
from goqueue.broker.coordinator.group_shards import GroupShards
from goqueue.broker.partitions.topic import Topic
from goqueue.coordination.group import Group
from goqueue.coordination.groups import GroupsEvent
from goqueue.delivery.claims import Claimed, members_of
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import Terms
from goqueue.model.ids import PartitionKey, queue_key_of


class QueueChanges:
    """Between a decision and ``apply`` nothing may be awaited, so that no other decision is taken on the same state."""

    def __init__(self, shards: GroupShards) -> None:
        self._shards = shards
        self._clock = shards.clock

    def terms(self, group: Group, queue: Queue, topic: Topic) -> Terms:
        """What a decision about a queue's messages goes by, as of now."""
        host = self._shards.host
        return Terms(
            self._shards.settings(group), topic.settings, self._clock.now_ns(), lambda: target_for(host, queue, topic)
        )

    def apply(self, group: Group, claimed: Iterable[Claimed], events: Sequence[GroupsEvent], cause: str = "") -> None:
        """Members that had the claimed messages in flight have room again, and may be free to let go of partitions.

        ``cause`` is what traces show as the reason for a retry or a dead letter.
        """
        # Before the events take the messages out of their batches.
        members = set().union(*map(members_of, claimed))
        self._shards.change(group.name, events, cause)
        runtime = self._shards.runtime(group.name)
        for member in members:
            self.release(group, member)
            runtime.wake_member(member)

    # Handing over

    def release(self, group: Group, member_id: str) -> None:
        """Complete handovers of partitions of which the member that gives them up has nothing in flight any more."""
        if not group.state.handovers:
            return
        done = [name for name in group.leaving(member_id) if not self._is_in_hand(group, member_id, name)]
        if done:
            self._shards.change(group.name, group.decide_handovers(done))

    def _is_in_hand(self, group: Group, member_id: str, partition: PartitionKey) -> bool:
        queue = self._shards.journal(group.name).machine.queue(queue_key_of(group.state.identity, partition))
        if queue is None:
            return False
        if self._shards.settings(group).mode == "queue":
            return queue.in_hand(member_id) > 0
        session = self._shards.runtime(group.name).sessions.get(member_id)
        return session is not None and session.positions.get(queue.key, queue.committed) > queue.committed
