"""Acks inside a transaction: messages are frozen until it ends, then done or given back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from goqueue.broker.coordinator.group_shards import GroupShards
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.claims import Claims, QueueClaims
from goqueue.broker.queues.queue_changes import QueueChanges
from goqueue.broker.queues.tally import Tally
from goqueue.coordination.group import Group
from goqueue.coordination.groups import GroupsEvent
from goqueue.coordination.transaction_records import GroupAcks, GroupOffset
from goqueue.delivery.claims import claim_below, to_parts
from goqueue.delivery.events import Acked, Frozen, total
from goqueue.delivery.in_flight_batch import InFlightBatch
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import decide_thaw, whole
from goqueue.delivery.settlement import decide_commit
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb


class TransactionalAcks:
    def __init__(self, shards: GroupShards, changes: QueueChanges, tally: Tally) -> None:
        self._shards = shards
        self._changes = changes
        self._tally = tally

    def freeze(
        self, receipts: Sequence[str], leases: Sequence[LeaseClaim], holder: str, frozen: list[GroupAcks]
    ) -> None:
        """Keep messages in flight until a transaction ends: all of them, or an error is raised.

        What is kept is added to ``frozen``. If that is nothing, an error has changed nothing.
        """
        claims = Claims(self._shards, SettlementRequest(Verb.FREEZE, holder=holder))
        for text in receipts:
            claims.add_receipt(text)
        for lease in leases:
            refusal = claims.add_lease(lease).refusal
            if refusal is not None:
                raise refusal
        by_group: dict[str, list[QueueClaims]] = {}
        for each in claims.queues:
            if each.claimed:
                by_group.setdefault(each.group.name, []).append(each)
        for some in by_group.values():
            frozen += self._freeze(some, holder)

    def freeze_below(self, group: Group, places: Sequence[tuple[Queue, Topic, int]], holder: str) -> list[GroupAcks]:
        """The same for everything that a group was delivered below an offset, in each of its queues."""
        found = [QueueClaims(group, queue, topic, claim_below(queue, offset)) for queue, topic, offset in places]
        claims = [each for each in found if each.claimed]
        return self._freeze(claims, holder) if claims else []

    def _freeze(self, claims: Sequence[QueueClaims], holder: str) -> list[GroupAcks]:
        """Of one group, so that it is one decision."""
        acks = [GroupAcks(each.group.name, each.queue.key, to_parts(each.claimed)) for each in claims]
        events = [Frozen(ack.queue, ack.parts, holder) for ack in acks]
        self._changes.apply(claims[0].group, [each.claimed for each in claims], events)
        return acks

    def thaw(self, acks: Sequence[GroupAcks], holder: str, reason: str, *, backs_off: bool) -> None:
        """A transaction was aborted: what it held is delivered again, or becomes a dead letter.

        ``backs_off``: its producer gave it up, which is like a nack.
        """
        for each in acks:
            queue = self._shards.journal(each.group).machine.queue(each.queue)
            if queue is not None:
                held = [batch for lease, _ in each.parts for batch in queue.batches(lease)]
                # Of the same lease another transaction may hold others.
                own = [batch for batch in held if batch.member == holder]
                self._thaw(queue, own, reason, backs_off=backs_off)

    def thaw_unless(self, holders: Collection[str]) -> None:
        """After a start: give back what is held for any transaction but these."""
        for journal in self._shards.journals:
            for queue in list(journal.machine.queues()):
                self._thaw(queue, [batch for batch in queue.batches() if batch.member not in holders])

    def _thaw(
        self, queue: Queue, batches: Sequence[InFlightBatch], reason: str | None = None, *, backs_off: bool = False
    ) -> None:
        place = self._shards.place(queue)
        frozen = [batch for batch in batches if batch.is_frozen]
        if place is not None and frozen:
            group = self._shards.journal(queue.group).machine.find(queue.group)
            terms = self._changes.terms(group, queue, place[0])
            events = decide_thaw(queue, frozen, terms, reason, backs_off=backs_off)
            self._changes.apply(group, [whole(frozen)], events)

    def commit(self, name: str, acks: Sequence[GroupAcks], offsets: Sequence[GroupOffset]) -> None:
        """A transaction was committed: what it held of a group is done. Doing it again changes nothing."""
        machine = self._shards.journal(name).machine
        events: list[GroupsEvent] = []
        done = 0
        for ack in acks:
            if machine.queue(ack.queue) is not None:
                done += total(ack.parts)
                events.append(Acked(ack.queue, ack.parts))
        for each in offsets:
            queue = machine.queue(each.queue)
            if queue is not None:
                events += decide_commit(queue, each.offset, each.since)
        self._shards.change(name, events)
        self._tally.acks += done
        if offsets and (group := machine.get(name)) is not None:
            # A member may have waited for that before it could hand over a partition.
            for member in list(group.state.members):
                self._changes.release(group, member)
