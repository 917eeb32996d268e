"""Settling messages by receipt or lease: ack, nack, reject, extend, release."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from goqueue.broker.coordinator.dead_letter_topics import CreateTopic, dead_letter_topic, is_there, make_all
from goqueue.broker.coordinator.group_shards import GroupShards
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.claims import Claims
from goqueue.broker.queues.queue_changes import QueueChanges
from goqueue.broker.queues.tally import Tally
from goqueue.delivery.settlement import decide_settlement
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb
from goqueue.model.errors import GoQueueError
from goqueue.model.runs import Runs
from goqueue.observe.trace_event import NACK, REJECT

_CAUSES = {Verb.NACK: NACK, Verb.REJECT: REJECT}
_AT_A_STRETCH = 100


class Settlement:
    """Carries out requests of consumers about messages that were delivered to them."""

    def __init__(self, shards: GroupShards, changes: QueueChanges, create: CreateTopic, tally: Tally) -> None:
        """``create`` makes a topic for dead letters, to the end even if the caller is cancelled."""
        self._shards = shards
        self._changes = changes
        self._create = create
        self.tally = tally

    async def settle_many_receipts(
        self, receipts: Sequence[str], request: SettlementRequest
    ) -> list[GoQueueError | None]:
        """``settle_receipts`` in stretches that let other requests run; all of them wait for the disk together."""
        under_way = []
        for start in range(0, len(receipts), _AT_A_STRETCH):
            some = receipts[start : start + _AT_A_STRETCH]
            under_way.append(asyncio.create_task(self.settle_receipts(some, request)))
            await asyncio.sleep(0)
        outcomes: list[GoQueueError | None] = []
        for settled in await asyncio.gather(*under_way, return_exceptions=True):
            if isinstance(settled, BaseException):
                # Such as a disk that failed. All of them may be sent again: what was done stays done.
                raise settled
            outcomes += settled
        return outcomes

    async def settle_receipts(self, receipts: Sequence[str], request: SettlementRequest) -> list[GoQueueError | None]:
        """One outcome for each receipt; those that hold are carried out whatever becomes of the others."""
        request.check()
        claims = Claims(self._shards, request)
        outcomes = _claim_receipts(claims, receipts)
        if lacking := self._lacking_dead_letter_topics(claims, request):
            # Anything may happen while topics are made, so all is claimed anew.
            claims = Claims(self._shards, request, await make_all(self._shards.host, self._create, lacking))
            outcomes = _claim_receipts(claims, receipts)
        await self._carry_out(claims, request)
        return outcomes

    async def settle_leases(
        self, leases: Sequence[LeaseClaim], request: SettlementRequest
    ) -> list[tuple[Runs, GoQueueError | None]]:
        """One outcome for each lease: which of its messages could not be settled, and why."""
        request.check()
        claims = Claims(self._shards, request)
        outcomes = _claim_leases(claims, leases)
        if lacking := self._lacking_dead_letter_topics(claims, request):
            claims = Claims(self._shards, request, await make_all(self._shards.host, self._create, lacking))
            outcomes = _claim_leases(claims, leases)
        await self._carry_out(claims, request)
        return outcomes

    def _lacking_dead_letter_topics(self, claims: Claims, request: SettlementRequest) -> dict[str, Topic]:
        """For a rejection: dead-letter topics that do not exist yet, by name, with the topic that needs them."""
        lacking: dict[str, Topic] = {}
        if request.verb != Verb.REJECT:
            return lacking
        for each in claims.queues:
            if not each.claimed:
                continue
            name = dead_letter_topic(self._shards.host, each.topic)
            if name is not None and not is_there(self._shards.host, name):
                lacking[name] = each.topic
        return lacking

    async def _carry_out(self, claims: Claims, request: SettlementRequest) -> None:
        queues = claims.queues
        for each in queues:
            if each.claimed:
                terms = self._changes.terms(each.group, each.queue, each.topic)
                settled = decide_settlement(each.queue, each.claimed, request, terms)
                self._count(request.verb, settled.messages)
                self._changes.apply(each.group, [each.claimed], settled.events, _CAUSES.get(request.verb, ""))
        # A request that repeats another one may change nothing, and yet what it asks for may not be durable.
        for name in {each.group.name for each in queues}:
            await self._shards.journal(name).settled()

    def _count(self, verb: Verb, messages: int) -> None:
        match verb:
            case Verb.ACK:
                self.tally.acks += messages
            case Verb.NACK:
                self.tally.nacks += messages
            case Verb.REJECT:
                self.tally.rejects += messages
            case Verb.EXTEND:
                self.tally.extensions += messages


def _claim_receipts(claims: Claims, receipts: Sequence[str]) -> list[GoQueueError | None]:
    outcomes: list[GoQueueError | None] = [None] * len(receipts)
    for index, text in enumerate(receipts):
        try:
            claims.add_receipt(text)
        except GoQueueError as error:
            # Thousands of them with all that their frames hold would keep the garbage collector busy.
            outcomes[index] = error.with_traceback(None)
    return outcomes


def _claim_leases(claims: Claims, leases: Sequence[LeaseClaim]) -> list[tuple[Runs, GoQueueError | None]]:
    outcomes: list[tuple[Runs, GoQueueError | None]] = []
    for lease in leases:
        try:
            outcome = claims.add_lease(lease)
            outcomes.append((outcome.refused, outcome.refusal))
        except GoQueueError as error:
            outcomes.append((lease.runs, error))
    return outcomes
