"""What becomes of messages after their delivery: done, tried again, given more time, or moved to the dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from goqueue.broker.coordinator.dead_letter_topics import (
    MAX_REASON_LENGTH,
    CreateTopic,
    dead_letter_topic,
    is_there,
    make_all,
    moving,
)
from goqueue.broker.coordinator.group_shards import GroupShards
from goqueue.broker.coordinator.retry_policy import timing_of
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.settlement_requests import LeaseClaim, Order, Verb
from goqueue.coordination.group import Group
from goqueue.coordination.groups import GroupsEvent
from goqueue.coordination.transactions import GroupAcks, GroupOffset
from goqueue.delivery.events import Acked, Committed, Extended, Frozen, Parts, Released, Returned, total
from goqueue.delivery.in_flight_batch import READY, SPAN, InFlightBatch
from goqueue.delivery.lane import lane_of
from goqueue.delivery.queue import Queue
from goqueue.delivery.receipts import parse_receipt
from goqueue.model.errors import GoQueueError, InvalidReceipt, StaleReceipt
from goqueue.model.logging import get_logger
from goqueue.model.ports import NANOS_PER_MS
from goqueue.model.runs import Runs, bits_to_runs, moved_bits, offsets_in, packed, to_bits, to_runs
from goqueue.observe.trace_event import EXPIRED, NACK, REJECT

log = get_logger(__name__)

__all__ = ["LeaseClaim", "Order", "Settling", "Tally", "Verb"]

_NONE: Mapping[str, GoQueueError] = {}
_CAUSES = {NACK, REJECT}
_MOST_NAMED = 5
_AT_A_STRETCH = 100
_TIMED_OUT = "its visibility timed out"
_LEFT = "its consumer left"
_ABORTED = "its transaction was aborted"


@dataclass(slots=True)
class Tally:
    """Counted since the broker started."""

    acks: int = 0
    nacks: int = 0
    rejects: int = 0
    extensions: int = 0
    redeliveries: int = 0
    visibility_timeouts: int = 0
    dead_letters: int = 0
    redriven: int = 0
    expired: int = 0


@dataclass(slots=True)
class _Share:
    """What one request wants of one queue."""

    group: Group
    queue: Queue
    topic: Topic
    claimed: list[tuple[InFlightBatch, int]] = field(default_factory=list)


class Settling:
    def __init__(self, shards: GroupShards, create: CreateTopic) -> None:
        """``create`` makes a topic for dead letters, to the end even if whoever asked goes away."""
        self._shards = shards
        self._create = create
        self._clock = shards.clock
        self._expected: dict[str, dict[str, GroupOffset]] = {}
        """Where streams may go on soon: by queue, and by the transaction that will tell."""
        self.tally = Tally()

    # By receipt or lease

    async def settle_many_receipts(self, receipts: Sequence[str], order: Order) -> list[GoQueueError | None]:
        """The same in stretches, so that others have their turn; they wait for the disk together."""
        under_way = []
        for start in range(0, len(receipts), _AT_A_STRETCH):
            some = receipts[start : start + _AT_A_STRETCH]
            under_way.append(asyncio.create_task(self.settle_receipts(some, order)))
            await asyncio.sleep(0)
        outcomes: list[GoQueueError | None] = []
        for settled in await asyncio.gather(*under_way, return_exceptions=True):
            if isinstance(settled, BaseException):
                # Such as a disk that failed. All of them may be sent again: what was done stays done.
                raise settled
            outcomes += settled
        return outcomes

    async def settle_receipts(self, receipts: Sequence[str], order: Order) -> list[GoQueueError | None]:
        """One outcome for each receipt; those that hold are carried out whatever becomes of the others."""
        order.check()
        outcomes, shares = self._claim_receipts(receipts, order, {})
        if lacking := self._lacking_dead_letters(shares, order):
            # Anything may happen while topics are made, so all is claimed anew.
            outcomes, shares = self._claim_receipts(
                receipts, order, await make_all(self._shards.host, self._create, lacking)
            )
        await self._carry_out(shares, order)
        return outcomes

    async def settle_leases(self, claims: Sequence[LeaseClaim], order: Order) -> list[tuple[Runs, GoQueueError | None]]:
        """One outcome for each claim: which of its messages could not be settled, and why."""
        order.check()
        outcomes, shares = self._claim_leases(claims, order, {})
        if lacking := self._lacking_dead_letters(shares, order):
            outcomes, shares = self._claim_leases(
                claims, order, await make_all(self._shards.host, self._create, lacking)
            )
        await self._carry_out(shares, order)
        return outcomes

    def _lacking_dead_letters(self, shares: dict[str, _Share], order: Order) -> dict[str, Topic]:
        """Of a rejection: topics, by the names of those for their dead letters, which are not there yet."""
        lacking: dict[str, Topic] = {}
        for share in shares.values():
            if order.verb != "reject" or not share.claimed:
                continue
            name = dead_letter_topic(self._shards.host, share.topic)
            if name is not None and not is_there(self._shards.host, name):
                lacking[name] = share.topic
        return lacking

    def _claim_receipts(
        self, receipts: Sequence[str], order: Order, refused: Mapping[str, GoQueueError]
    ) -> tuple[list[GoQueueError | None], dict[str, _Share]]:
        outcomes: list[GoQueueError | None] = [None] * len(receipts)
        shares: dict[str, _Share] = {}
        for place, text in enumerate(receipts):
            try:
                self._claim_receipt(text, order, shares, refused)
            except GoQueueError as error:
                # Thousands of them with all that their frames hold would keep the garbage collector busy.
                outcomes[place] = error.with_traceback(None)
        return outcomes, shares

    def _claim_leases(
        self, claims: Sequence[LeaseClaim], order: Order, refused: Mapping[str, GoQueueError]
    ) -> tuple[list[tuple[Runs, GoQueueError | None]], dict[str, _Share]]:
        outcomes: list[tuple[Runs, GoQueueError | None]] = []
        shares: dict[str, _Share] = {}
        for claim in claims:
            try:
                outcomes.append(self._claim_lease(claim, order, shares, refused))
            except GoQueueError as error:
                outcomes.append((claim.runs, error))
        return outcomes, shares

    def _share(self, group: str, topic: str, partition: int, shares: dict[str, _Share]) -> _Share:
        try:
            found = self._shards.find(group)
            at = self._shards.host.topic(topic)
        except GoQueueError as error:
            raise StaleReceipt(f"the receipt is void: {error}") from None
        queue = self._shards.queue(found, at.record.topic_id, partition)
        if queue is None:
            raise InvalidReceipt(f"group {group!r} has never had anything of partition {partition} of {topic!r}")
        share = shares.get(queue.key)
        if share is None:
            share = shares[queue.key] = _Share(found, queue, at)
        return share

    def _claim_receipt(
        self, text: str, order: Order, shares: dict[str, _Share], refused: Mapping[str, GoQueueError] = _NONE
    ) -> None:
        receipt = parse_receipt(text)
        share = self._share(receipt.group, receipt.topic, receipt.partition, shares)
        seal = self._shards.seal(share.group, share.queue)
        if seal is None:
            raise StaleReceipt("the receipt is void: its topic was deleted")
        seal.check(receipt)
        batch = share.queue.find(receipt.lease, receipt.offset)
        if batch is not None and order.fits(batch):
            if share.topic.name in refused:
                raise refused[share.topic.name]
            share.claimed.append((batch, 1 << (receipt.offset - batch.first)))
        elif not self._is_so_already(share.queue, receipt.offset, receipt.lease, order, batch):
            raise self._refusal(share.queue, receipt.offset, receipt.lease, batch)

    def _claim_lease(
        self,
        claim: LeaseClaim,
        order: Order,
        shares: dict[str, _Share],
        refused: Mapping[str, GoQueueError] = _NONE,
    ) -> tuple[Runs, GoQueueError | None]:
        share = self._share(claim.group, claim.topic, claim.partition, shares)
        seal = self._shards.seal(share.group, share.queue)
        if seal is None:
            raise StaleReceipt("the lease is void: its topic was deleted")
        seal.check_token(claim.token, claim.count, claim.lease)
        claim.check()
        if share.topic.name in refused:
            raise refused[share.topic.name]
        base = claim.runs[0]
        left = to_bits(claim.runs, base, SPAN)
        for batch in share.queue.batches(claim.lease):
            bits = batch.among(claim.runs)
            if bits and order.fits(batch):
                share.claimed.append((batch, bits))
                left &= ~moved_bits(bits, batch.first - base)
        if left:
            left &= ~share.queue.between(claim.lease, claim.runs, base)
            if order.verb == "ack":
                left &= ~share.queue.acks.acked(claim.lease, base)
        late = [
            offset
            for offset in offsets_in(bits_to_runs(base, left))
            if not self._is_so_already(share.queue, offset, claim.lease, order, share.queue.find(claim.lease, offset))
        ]
        if not late:
            return [], None
        held = share.queue.find(claim.lease, late[0])
        return to_runs(late), self._refusal(share.queue, late[0], claim.lease, held)

    def _is_so_already(self, queue: Queue, offset: int, lease: int, order: Order, held: InFlightBatch | None) -> bool:
        """Whether what is asked for a message was done before, by this very delivery."""
        if held is not None:
            return order.verb == "freeze" and held.member == order.holder
        return order.verb == "ack" and queue.was_acked(lease, offset)

    def _refusal(self, queue: Queue, offset: int, lease: int, held: InFlightBatch | None) -> GoQueueError:
        """Why a message cannot be settled."""
        if held is not None and held.is_frozen:
            return StaleReceipt(f"offset {offset}: the message was acked in {held.member}, which has not ended")
        if held is not None:
            # By a timeout, a nack, or because its consumer left.
            why = f" ({held.error})" if held.error else ""
            return StaleReceipt(f"offset {offset}: the message was given back{why}, and others may get it any moment")
        if offset in queue.moving:
            return StaleReceipt(f"offset {offset}: the message is on its way to the dead letters")
        if queue.is_done(offset, lane_of(lease)):
            return StaleReceipt(f"offset {offset}: the message is settled already")
        return StaleReceipt(f"offset {offset}: the message was delivered again since, or the group was reset")

    async def _carry_out(self, shares: dict[str, _Share], order: Order) -> None:
        for share in shares.values():
            if share.claimed:
                cause = order.verb if order.verb in _CAUSES else ""
                self._change(share, self._events(share, _parts(share.claimed), order), cause)
        # Also what is the case already may not be durable yet.
        journals = {share.group.name for share in shares.values()}
        for name in journals:
            await self._shards.journal(name).settled()

    def _change(self, share: _Share, events: list[GroupsEvent], cause: str) -> None:
        """Whoever had the messages in hand has room again, and may be free to hand their partition over."""
        had = _members(share.claimed)
        self._shards.change(share.group.name, events, cause)
        self._have_room(share.group, had)

    def _have_room(self, group: Group, members: set[str]) -> None:
        runtime = self._shards.runtime(group.name)
        for member in members:
            self.release(group, member)
            runtime.wake_member(member)

    def _events(self, share: _Share, parts: Parts, order: Order) -> list[GroupsEvent]:
        key, count = share.queue.key, total(parts)
        match order.verb:
            case "ack":
                self.tally.acks += count
                return [Acked(key, parts)]
            case "extend":
                self.tally.extensions += count
                timing = timing_of(self._shards.settings(share.group), share.topic)
                more_ns = timing.visibility_ns if order.delay_ms is None else order.delay_ms * NANOS_PER_MS
                return [Extended(key, parts, self._clock.now_ns() + more_ns)]
            case "release":
                return [Released(key, parts)]
            case "reject":
                self.tally.rejects += count
                return [*self._moving(share, parts, order.reason or "rejected")]
            case _:
                self.tally.nacks += count
                return self._give_back(share, share.claimed, order.reason or "nacked", order.delay_ms, backs_off=True)

    def _give_back(
        self,
        share: _Share,
        given: list[tuple[InFlightBatch, int]],
        reason: str,
        delay_ms: int | None = None,
        *,
        backs_off: bool,
    ) -> list[GroupsEvent]:
        """To be tried again, or to the dead letters if it was tried often enough."""
        timing = timing_of(self._shards.settings(share.group), share.topic)
        now_ns = self._clock.now_ns()
        later: dict[int, list[tuple[InFlightBatch, int]]] = {}
        exhausted: list[tuple[InFlightBatch, int]] = []
        for batch, bits in given:
            if batch.count > timing.max_retries:
                exhausted.append((batch, bits))
                continue
            wait_ns = 0
            if delay_ms is not None:
                wait_ns = delay_ms * NANOS_PER_MS
            elif backs_off:
                wait_ns = timing.backoff(batch.count)
            later.setdefault(wait_ns, []).append((batch, bits))
        key = share.queue.key
        events: list[GroupsEvent] = [
            Returned(key, _parts(some), now_ns + wait_ns if wait_ns else 0, reason) for wait_ns, some in later.items()
        ]
        if exhausted:
            events += self._moving(share, _parts(exhausted), reason)
        return events

    def _moving(self, share: _Share, parts: Parts, reason: str) -> Sequence[GroupsEvent]:
        return moving(self._shards.host, share.queue, share.topic, parts, [], reason)

    # By a transaction

    def freeze(
        self, receipts: Sequence[str], claims: Sequence[LeaseClaim], holder: str, frozen: list[GroupAcks]
    ) -> None:
        """Keep messages in hand until a transaction ends: all of them, or an error is raised.

        What is kept is added to ``frozen``. If that is nothing, an error has changed nothing.
        """
        order = Order("freeze", holder=holder)
        shares: dict[str, _Share] = {}
        for text in receipts:
            self._claim_receipt(text, order, shares)
        for claim in claims:
            _, refusal = self._claim_lease(claim, order, shares)
            if refusal is not None:
                raise refusal
        by_group: dict[str, list[_Share]] = {}
        for share in shares.values():
            if share.claimed:
                by_group.setdefault(share.group.name, []).append(share)
        for some in by_group.values():
            frozen += self._freeze(some, holder)

    def freeze_below(self, group: Group, places: Sequence[tuple[Queue, Topic, int]], holder: str) -> list[GroupAcks]:
        """The same for everything that a group was delivered below an offset, in each of its queues."""
        shares = []
        for queue, topic, offset in places:
            held = [(batch, batch.among([0, offset])) for batch in queue.batches() if not batch.is_frozen]
            if claimed := [(batch, bits) for batch, bits in held if bits]:
                shares.append(_Share(group, queue, topic, claimed))
        return self._freeze(shares, holder) if shares else []

    def _freeze(self, shares: Sequence[_Share], holder: str) -> list[GroupAcks]:
        """Of one group, so that it is one decision."""
        acks = [GroupAcks(share.group.name, share.queue.key, _parts(share.claimed)) for share in shares]
        had = _members([each for share in shares for each in share.claimed])
        self._shards.change(shares[0].group.name, [Frozen(ack.queue, ack.parts, holder) for ack in acks])
        self._have_room(shares[0].group, had)
        return acks

    def thaw(self, acks: Sequence[GroupAcks], holder: str, reason: str, *, backs_off: bool) -> None:
        """A transaction was aborted: what it held is to be delivered again, or a dead letter.

        ``backs_off``: its producer gave it up, which is like a nack.
        """
        for each in acks:
            queue = self._shards.journal(each.group).machine.queue(each.queue)
            if queue is not None:
                held = [batch for lease, _ in each.parts for batch in queue.batches(lease)]
                # Of the same lease another transaction may hold others.
                own = [batch for batch in held if batch.member == holder]
                self._thaw(queue, own, f"{_ABORTED}: {reason}"[:MAX_REASON_LENGTH], backs_off=backs_off)

    def thaw_unless(self, holders: Collection[str]) -> None:
        """After a start: the same for what is held for any transaction but these."""
        for journal in self._shards.journals:
            for queue in list(journal.machine.queues()):
                self._thaw(queue, [batch for batch in queue.batches() if batch.member not in holders])

    def _thaw(
        self, queue: Queue, batches: Sequence[InFlightBatch], reason: str = _ABORTED, *, backs_off: bool = False
    ) -> None:
        place = self._shards.place(queue)
        claimed = [(batch, batch.bits) for batch in batches if batch.is_frozen]
        if place is not None and claimed:
            group = self._shards.journal(queue.group).machine.find(queue.group)
            share = _Share(group, queue, place[0], claimed)
            self._change(share, self._give_back(share, claimed, reason, backs_off=backs_off), "")

    def settle_for(self, name: str, acks: Sequence[GroupAcks], offsets: Sequence[GroupOffset]) -> None:
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
            if queue is not None and each.since <= queue.committed < each.offset:
                events.append(Committed(each.queue, each.offset))
        self._shards.change(name, events)
        self.tally.acks += done
        if offsets and (group := machine.get(name)) is not None:
            # Whoever has waited for that with a partition to hand over need not any more.
            for member in list(group.state.members):
                self.release(group, member)

    def expect(self, offset: GroupOffset, holder: str) -> None:
        """A transaction may let a stream go on there: until it has ended, nobody reads again what lies below.

        Whoever did, be it the same member that does not know what became of its commit, would do the same work once
        more, and both might be committed.
        """
        expected = self._expected.setdefault(offset.queue, {})
        before = expected.get(holder)
        if before is None or before.offset < offset.offset:
            expected[holder] = offset

    def expect_no_more(self, offsets: Sequence[GroupOffset], holder: str) -> None:
        """The transaction has ended: whoever waits looks again."""
        for each in offsets:
            expected = self._expected.get(each.queue, {})
            expected.pop(holder, None)
            if not expected:
                self._expected.pop(each.queue, None)
        for name in {each.group for each in offsets}:
            if self._shards.journal(name).machine.get(name) is not None:
                self._shards.runtime(name).wake_all()

    def is_expected(self, queue: str, offset: int) -> bool:
        """Whether a transaction may move a stream beyond an offset."""
        expected = self._expected.get(queue)
        return expected is not None and any(each.offset > offset for each in expected.values())

    # By time

    def tend(self, queue: Queue) -> None:
        """Let time do its work on a queue: retries become ready, what was not settled in time is given back."""
        now_ns = self._clock.now_ns()
        at_ns = queue.next_time_ns()
        if at_ns is None or at_ns > now_ns:
            # The alarm may have been for a message that was settled since, and know of no later one.
            self._shards.rearm(queue)
            return
        place = self._shards.place(queue)
        if place is None:
            return
        expired = queue.ripen(now_ns)
        if expired:
            given = [(batch, batch.bits) for batch in expired]
            self.tally.visibility_timeouts += sum(bits.bit_count() for _, bits in given)
            group = self._shards.journal(queue.group).machine.find(queue.group)
            share = _Share(group, queue, place[0], given)
            told = _described(share)
            self._change(share, self._give_back(share, given, _TIMED_OUT, backs_off=False), EXPIRED)
            log.info("messages were not settled in time and are given back", **told)
        self._shards.rearm(queue)
        self._shards.offer(queue.group, queue)

    def give_back_of(self, group: Group, member_id: str, *, orderly: bool) -> list[GroupsEvent]:
        """What a member that goes has in flight is anyone's again, at once.

        If it went without a word, one of these messages may have been the reason: those that were tried often enough
        become dead letters, or such a one would come back for ever.
        """
        events: list[GroupsEvent] = []
        for share in self._in_flight_of(group, member_id):
            if orderly:
                events.append(Returned(share.queue.key, _parts(share.claimed), READY, _LEFT))
            else:
                events += self._give_back(share, share.claimed, _LEFT, backs_off=False)
        return events

    def give_back_unseen(
        self, group: Group, member_id: str, is_unseen: Callable[[tuple[str, int, int]], bool]
    ) -> list[GroupsEvent]:
        """What a member has in flight and never got is anyone's again, and the delivery does not count.

        ``is_unseen`` tells by topic, partition and lease.
        """
        events: list[GroupsEvent] = []
        for share in self._in_flight_of(group, member_id):
            here = share.topic.name, share.queue.partition
            unseen = [each for each in share.claimed if is_unseen((*here, each[0].lease))]
            if unseen:
                events.append(Released(share.queue.key, _parts(unseen)))
        return events

    def _in_flight_of(self, group: Group, member_id: str) -> Iterator[_Share]:
        """Everything that a member has in flight, queue by queue."""
        for queue in self._shards.queues_of(group):
            place = self._shards.place(queue)
            if place is not None and queue.in_hand(member_id):
                held = [(batch, batch.bits) for batch in queue.batches() if batch.member == member_id]
                yield _Share(group, queue, place[0], held)

    # Handing over

    def release(self, group: Group, member_id: str) -> None:
        """A member that has nothing more in hand of a partition that is to leave it lets go of it."""
        if not group.state.handovers:
            return
        done = [name for name in group.leaving(member_id) if not self._in_hand(group, member_id, name)]
        if done:
            self._shards.change(group.name, group.decide_handovers(done))

    def _in_hand(self, group: Group, member_id: str, partition: str) -> bool:
        queue = self._shards.journal(group.name).machine.queue(f"{group.state.identity}/{partition}")
        if queue is None:
            return False
        if self._shards.settings(group).mode == "queue":
            return queue.in_hand(member_id) > 0
        session = self._shards.runtime(group.name).sessions.get(member_id)
        return session is not None and session.positions.get(queue.key, queue.committed) > queue.committed

    # By offset

    def auto_commit(self, group: Group, member_id: str, *, now: bool = False) -> None:
        """Of a stream member: it has come back for more, so what it got before is done."""
        member = group.member(member_id)
        session = self._shards.runtime(group.name).sessions.get(member_id)
        if not member.auto_commit or session is None:
            return
        interval_ns = self._shards.settings(group).auto_commit_ms * NANOS_PER_MS
        if not now and self._clock.monotonic_ns() - session.committed_at_ns < interval_ns and not group.state.handovers:
            return
        session.committed_at_ns = self._clock.monotonic_ns()
        machine = self._shards.journal(group.name).machine
        events: list[GroupsEvent] = []
        for key, position in session.positions.items():
            queue = machine.queue(key)
            if queue is not None and position > queue.committed:
                events.append(Committed(key, position))
        self._shards.change(group.name, events)


def _members(claimed: Sequence[tuple[InFlightBatch, int]]) -> set[str]:
    """Who has these in hand."""
    return {batch.member for batch, _ in claimed if batch.member is not None}


def _described(share: _Share) -> dict[str, Any]:
    """For the log: whose messages these are, and the first few of them."""
    topic, partition = share.topic.name, share.queue.partition
    runs = (bits_to_runs(batch.first, bits) for batch, bits in share.claimed)
    offsets = list(islice((offset for each in runs for offset in offsets_in(each)), _MOST_NAMED))
    return {
        "group": share.queue.group,
        "members": sorted({batch.member for batch, _ in share.claimed if batch.member is not None}),
        "topic": topic,
        "partition": partition,
        "count": sum(bits.bit_count() for _, bits in share.claimed),
        "offsets": offsets,
    }


def _parts(claimed: Sequence[tuple[InFlightBatch, int]]) -> Parts:
    """By lease, its runs in order. The same message may be claimed twice in one request."""
    by_lease: dict[int, list[tuple[InFlightBatch, int]]] = {}
    for batch, bits in claimed:
        by_lease.setdefault(batch.lease, []).append((batch, bits))
    parts: Parts = []
    for lease, some in by_lease.items():
        first = min(batch.first for batch, _ in some)
        merged = 0
        for batch, bits in some:
            merged |= bits << (batch.first - first)
        parts.append((lease, packed(first, merged)))
    return parts
