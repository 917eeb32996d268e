"""Acks inside a transaction: messages are frozen until it ends, then done or given back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from goqueue.broker.group_shards.group_shard import ActiveGroup, GroupShard
from goqueue.broker.group_shards.shard_directory import GroupShards
from goqueue.broker.queues.receipt_claims import QueueClaims, RequestClaims
from goqueue.broker.queues.tally import Tally
from goqueue.coordination.groups import GroupsEvent
from goqueue.coordination.transaction_records import GroupAcks, GroupOffset
from goqueue.delivery.claims import Claimed, claim_below, members_of
from goqueue.delivery.committed_offsets import decide_commit
from goqueue.delivery.events import Acked, total
from goqueue.delivery.in_flight_batch import InFlightBatch
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import decide_thaw, whole
from goqueue.delivery.settlement import decide_freeze
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb


class TransactionalAcks:
    def __init__(self, shards: GroupShards, tally: Tally) -> None:
        self._shards = shards
        self._tally = tally

    def freeze(
        self, receipts: Sequence[str], leases: Sequence[LeaseClaim], holder: str, frozen: list[GroupAcks]
    ) -> None:
        """Keep messages in flight until a transaction ends: all of them, or an error is raised.

        What is kept is added to ``frozen``. If that is nothing, an error has changed nothing.
        """
        claims = RequestClaims(self._shards, SettlementRequest(Verb.FREEZE, holder=holder))
        for text in receipts:
            claims.add_receipt(text)
        for lease in leases:
            refusal = claims.add_lease(lease).refusal
            if refusal is not None:
                raise refusal
        by_group: dict[str, list[QueueClaims]] = {}
        for each in claims.by_queue.values():
            if each.claimed:
                by_group.setdefault(each.group.name, []).append(each)
        for some in by_group.values():
            frozen += _freeze(some[0].group, [(each.queue, each.claimed) for each in some], holder)

    def freeze_below(self, group: ActiveGroup, places: Sequence[tuple[Queue, int]], holder: str) -> list[GroupAcks]:
        """The same for everything that a group was delivered below an offset, in each of its queues."""
        found = [(queue, claim_below(queue, offset)) for queue, offset in places]
        return _freeze(group, [(queue, claimed) for queue, claimed in found if claimed], holder)

    def thaw(self, acks: Sequence[GroupAcks], holder: str, reason: str, *, backs_off: bool) -> None:
        """A transaction was aborted: what it held is delivered again, or becomes a dead letter.

        ``backs_off``: its producer gave it up, which is like a nack.
        """
        for each in acks:
            shard = self._shards.of(each.group)
            queue = shard.journal.machine.by_key.get(each.queue)
            if queue is not None:
                held = [batch for lease, _ in each.parts for batch in queue.batches(lease)]
                # Of the same lease another transaction may hold others.
                own = [batch for batch in held if batch.member == holder]
                _thaw(shard, queue, own, reason, backs_off=backs_off)

    def thaw_unless(self, holders: Collection[str]) -> None:
        """After a start: give back what is held for any transaction but these."""
        for shard in self._shards.leading:
            for queue in shard.journal.machine.queues():
                _thaw(shard, queue, [batch for batch in queue.batches() if batch.member not in holders])

    def commit(self, name: str, acks: Sequence[GroupAcks], offsets: Sequence[GroupOffset]) -> None:
        """A transaction was committed: what it held of a group is done. Doing it again changes nothing."""
        shard = self._shards.of(name)
        queues = shard.journal.machine.by_key
        events: list[GroupsEvent] = []
        done = 0
        for ack in acks:
            if ack.queue in queues:
                done += total(ack.parts)
                events.append(Acked(ack.queue, ack.parts))
        for each in offsets:
            queue = queues.get(each.queue)
            if queue is not None:
                events += decide_commit(queue, each.offset, each.since)
        shard.change(name, events)
        self._tally.acks += done
        group = shard.get(name)
        if offsets and group is not None:
            # A member may have waited for that before it could hand over a partition.
            for member in list(group.group.state.members):
                group.release(member)


def _thaw(
    shard: GroupShard,
    queue: Queue,
    batches: Sequence[InFlightBatch],
    reason: str | None = None,
    *,
    backs_off: bool = False,
) -> None:
    place, group = shard.place(queue), shard.get(queue.group)
    frozen = [batch for batch in batches if batch.is_frozen]
    if place is not None and group is not None and frozen:
        events = decide_thaw(queue, frozen, group.terms(queue, place[0]), reason, backs_off=backs_off)
        group.change(events, freed=members_of(whole(frozen)))


def _freeze(group: ActiveGroup, claims: Sequence[tuple[Queue, Claimed]], holder: str) -> list[GroupAcks]:
    """Of one group, so that it is one decision."""
    events = [decide_freeze(queue, claimed, holder) for queue, claimed in claims]
    group.change(events, freed=set().union(*(members_of(claimed) for _, claimed in claims)))
    return [GroupAcks(group.name, event.q, event.parts) for event in events]
