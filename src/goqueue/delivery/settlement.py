"""Decisions on delivered messages: ack, nack, reject, extend, release, freeze, and the commit of an offset."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from goqueue.delivery.claims import Claimed, to_parts
from goqueue.delivery.dead_letters import decide_dead_letters
from goqueue.delivery.events import Acked, AnyQueueEvent, Extended, Frozen, Released, total
from goqueue.delivery.queue import Queue
from goqueue.delivery.retry import Terms, decide_return
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.delivery.visibility_timeout import visibility_ns
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.runs import packed


class Settled(NamedTuple):
    """The events of a decision, and how many messages they are about; each counts once."""

    events: list[AnyQueueEvent]
    messages: int


def decide_ack(queue: Queue, claimed: Claimed) -> Settled:
    """Messages are done. It depends on no settings, and is what most requests ask for."""
    if len(claimed) == 1:
        batch, bits = claimed[0]
        return Settled([Acked(queue.key, [(batch.lease, packed(batch.first, bits))])], bits.bit_count())
    parts = to_parts(claimed)
    # Some of them may be the same.
    return Settled([Acked(queue.key, parts)], total(parts))


def decide_settlement(queue: Queue, claimed: Claimed, request: SettlementRequest, terms: Terms) -> Settled:
    """Settle messages of one queue as a request asks."""
    key, parts = queue.key, to_parts(claimed)
    events: list[AnyQueueEvent]
    match request.verb:
        case Verb.ACK:
            return decide_ack(queue, claimed)
        case Verb.EXTEND:
            asked_ms = request.delay_ms
            more_ns = visibility_ns(terms.group, terms.topic) if asked_ms is None else asked_ms * NANOS_PER_MS
            events = [Extended(key, parts, terms.now_ns + more_ns)]
        case Verb.RELEASE:
            events = [Released(key, parts)]
        case Verb.REJECT:
            events = decide_dead_letters(key, parts, [], request.reason or "rejected", terms.find_target())
        case Verb.FREEZE:
            events = [decide_freeze(queue, claimed, request.holder)]
        case Verb.NACK:
            reason = request.reason or "nacked"
            events = decide_return(queue, claimed, reason, terms, delay_ms=request.delay_ms, backs_off=True)
    return Settled(events, total(parts))


def decide_freeze(queue: Queue, claimed: Claimed, holder: str) -> Frozen:
    """Messages are acked in a transaction, which holds them until it ends."""
    return Frozen(queue.key, to_parts(claimed), holder)


def decide_release_unseen(queue: Queue, member: str, unseen: Collection[int]) -> list[AnyQueueEvent]:
    """Leases that their member never received are ready for the next poll, and the delivery does not count."""
    held = [(batch, batch.bits) for batch in queue.batches() if batch.member == member and batch.lease in unseen]
    return [Released(queue.key, to_parts(held))] if held else []
