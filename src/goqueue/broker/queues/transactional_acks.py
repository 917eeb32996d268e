"""Acks inside a transaction: messages are frozen until it ends, then done or given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.broker.queues.receipt_claims import QueueClaims, RequestClaims
from goqueue.broker.queues.tally import Tally
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.shard import Shard
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.shard_state import ShardEvent
from goqueue.coordination.transaction_records import GroupAcks, GroupOffset
from goqueue.delivery.claims import Claimed, claim_below, members_of
from goqueue.delivery.committed_offsets import decide_commit
from goqueue.delivery.events import Acked, total
from goqueue.delivery.in_flight_batch import InFlightBatch
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import decide_thaw, whole
from goqueue.delivery.settlement import decide_freeze
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb
from goqueue.model.errors import GoQueueError, StorageFailed


class TransactionalAcks:
    def __init__(self, shards: Shards, tally: Tally) -> None:
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
            _freeze(some[0].group, [(each.queue, each.claimed) for each in some], holder, frozen)

    def freeze_below(
        self, group: ActiveGroup, places: Sequence[tuple[Queue, int]], holder: str, frozen: list[GroupAcks]
    ) -> None:
        """The same for everything that a group was delivered below an offset, in each of its queues."""
        found = [(queue, claim_below(queue, offset)) for queue, offset in places]
        _freeze(group, [(queue, claimed) for queue, claimed in found if claimed], holder, frozen)

    def thaw(self, acks: Sequence[GroupAcks], holder: str, reason: str, *, backs_off: bool) -> None:
        """A transaction was aborted: what it held is delivered again, or becomes a dead letter.

        ``backs_off``: its producer gave it up, which is like a nack.
        """
        for each in acks:
            queue = self._shards.map.led_queue(each.queue)
            if queue is not None:
                held = [batch for lease, _ in each.parts for batch in queue.batches(lease)]
                # Of the same lease another transaction may hold others.
                own = [batch for batch in held if batch.member == holder]
                self._thaw(queue, own, reason, backs_off=backs_off)

    def thaw_where(self, is_over: Callable[[str], bool]) -> None:
        """Give back what is held by members of which this says that their transaction is over. If that cannot be done
        for some groups, the others get what is theirs."""
        failure: GoQueueError | None = None
        for shard in self._shards.leading:
            for queue in shard.state.queues():
                frozen = [batch for batch in queue.batches() if batch.is_frozen]
                try:
                    self._thaw(queue, [batch for batch in frozen if batch.member is None or is_over(batch.member)])
                except StorageFailed:
                    raise
                except GoQueueError as error:
                    failure = error
        if failure is not None:
            raise failure

    def commit(self, name: str, acks: Sequence[GroupAcks], offsets: Sequence[GroupOffset]) -> None:
        """A transaction was committed: what it held of a group is done. Doing it again changes nothing."""
        queues = self._shards.map
        events: list[ShardEvent] = []
        done = 0
        for ack in acks:
            if queues.led_queue(ack.queue) is not None:
                done += total(ack.parts)
                events.append(Acked(ack.queue, ack.parts))
        for each in offsets:
            queue = queues.led_queue(each.queue)
            if queue is not None:
                events += decide_commit(queue, each.offset, each.since)
        group = self._shards.served(name)
        self._shards.change(name, events)
        self._tally.acks += done
        if offsets and group is not None and group.coordinated is not None:
            # A member may have waited for that before it could hand over a partition.
            for member in list(group.coordinated.state.members):
                group.release(member)

    def _thaw(
        self, queue: Queue, batches: Sequence[InFlightBatch], reason: str | None = None, *, backs_off: bool = False
    ) -> None:
        frozen = [batch for batch in batches if batch.is_frozen]
        if not frozen:
            return
        place, group = self._shards.map.place(queue), self._shards.group_of(queue)
        if group is None:
            # If it is not gone: its settings are not known here.
            self._shards.of(queue.group)
        elif place is not None:
            events = decide_thaw(queue, frozen, group.terms(queue, place[0]), reason, backs_off=backs_off)
            group.change(events, freed=members_of(whole(frozen)))


def _freeze(group: ActiveGroup, claims: Sequence[tuple[Queue, Claimed]], holder: str, frozen: list[GroupAcks]) -> None:
    """Of one group, one decision for each shard, so that what was frozen is known if one of them cannot be written."""
    by_shard: dict[Shard, list[tuple[Queue, Claimed]]] = {}
    for queue, claimed in claims:
        by_shard.setdefault(group.shards.of_queue(queue.key), []).append((queue, claimed))
    for own in by_shard.values():
        events = [decide_freeze(queue, claimed, holder) for queue, claimed in own]
        # Before the events take the messages out of their batches.
        members = dict.fromkeys(member for _, claimed in own for member in members_of(claimed))
        group.change(events)
        frozen += [GroupAcks(group.name, event.q, event.parts) for event in events]
        group.change((), freed=members)
