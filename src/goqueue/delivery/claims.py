"""Which messages of a lease a request may settle, and why not the others.

A claim holds as long as the message was neither settled nor delivered again. An ack that this very delivery made
before succeeds once more; an ack of what another delivery settled is stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from goqueue.delivery.events import Parts
from goqueue.delivery.in_flight_batch import SPAN, InFlightBatch
from goqueue.delivery.leases import lane_of
from goqueue.delivery.queue import Queue
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.model.errors import StaleReceipt
from goqueue.model.runs import Runs, bits_to_runs, moved_bits, offsets_in, packed, to_bits, to_runs

Claimed = list[tuple[InFlightBatch, int]]
"""Batches, and which of their messages are meant, as bits from the batch's ``first`` on."""


_NEEDS_FLIGHT = frozenset({Verb.EXTEND, Verb.RELEASE, Verb.FREEZE})
"""What cannot be done with a message that waits for a retry."""


class LeaseOutcome(NamedTuple):
    """What of a lease can be settled, and what cannot: ``refusal`` is the reason for the first of ``refused``."""

    claimed: Claimed
    refused: Runs
    refusal: StaleReceipt | None


def claim_message(queue: Queue, lease: int, offset: int, request: SettlementRequest) -> InFlightBatch | None:
    """The batch with a message that can be settled; ``None`` if this delivery has settled it in this way before.

    Raises ``StaleReceipt`` otherwise.
    """
    batch = queue.leases.find(lease, offset)
    if batch is not None and _is_possible(request, batch):
        return batch
    if _is_done_already(queue, lease, offset, request, batch):
        return None
    raise _refusal(queue, lease, offset, batch)


def claim_lease(queue: Queue, lease: int, runs: Runs, request: SettlementRequest) -> LeaseOutcome:
    """The same for many messages of one lease, all within its span."""
    base = runs[0]
    left = to_bits(runs, base, SPAN)
    claimed: Claimed = []
    for batch in queue.leases.batches(lease):
        bits = batch.among(runs)
        if bits and _is_possible(request, batch):
            claimed.append((batch, bits))
            left &= ~moved_bits(bits, batch.first - base)
    if left:
        left &= ~queue.between(lease, runs, base)
        if request.verb == Verb.ACK:
            left &= ~queue.acks.acked(lease, base)
    late = [
        offset
        for offset in offsets_in(bits_to_runs(base, left))
        if not _is_done_already(queue, lease, offset, request, queue.leases.find(lease, offset))
    ]
    if not late:
        return LeaseOutcome(claimed, [], None)
    held = queue.leases.find(lease, late[0])
    return LeaseOutcome(claimed, to_runs(late), _refusal(queue, lease, late[0], held))


def claim_below(queue: Queue, offset: int) -> Claimed:
    """Everything that was delivered below an offset, but for what transactions hold."""
    held = [(batch, batch.among([0, offset])) for batch in queue.batches() if not batch.is_frozen]
    return [(batch, bits) for batch, bits in held if bits]


def to_parts(claimed: Sequence[tuple[InFlightBatch, int]]) -> Parts:
    """By lease, its runs in order. The same message may be claimed twice in one request."""
    by_lease: dict[int, Claimed] = {}
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


def members_of(claimed: Claimed) -> list[str]:
    """The members that have these messages in flight, in the order of the batches."""
    return list(dict.fromkeys(batch.member for batch, _ in claimed if batch.member is not None))


def _is_possible(request: SettlementRequest, batch: InFlightBatch) -> bool:
    """Whether a request can be carried out on messages of this batch."""
    if batch.is_frozen:
        return False
    return batch.member is not None or request.verb not in _NEEDS_FLIGHT


def _is_done_already(
    queue: Queue, lease: int, offset: int, request: SettlementRequest, held: InFlightBatch | None
) -> bool:
    """Whether this very delivery was settled in this way before."""
    if held is not None:
        return request.verb == Verb.FREEZE and held.member == request.holder
    return request.verb == Verb.ACK and queue.was_acked(lease, offset)


def _refusal(queue: Queue, lease: int, offset: int, held: InFlightBatch | None) -> StaleReceipt:
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
