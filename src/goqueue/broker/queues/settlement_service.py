"""Settling messages by receipt or lease: ack, nack, reject, extend, release."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from goqueue.broker.partitions.topic import Topic
from goqueue.broker.queues.receipt_claims import RequestClaims
from goqueue.broker.queues.tally import Tally
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.shards.dead_letter_topics import CreateTopic, dead_letter_topic, make_all
from goqueue.broker.shards.shard_directory import Shards
from goqueue.coordination.shard_state import ShardState
from goqueue.delivery.settlement import decide_ack, decide_settlement
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb
from goqueue.model.errors import GoQueueError
from goqueue.model.runs import Runs
from goqueue.observe.trace_event import NACK, REJECT

_CAUSES = {Verb.NACK: NACK, Verb.REJECT: REJECT}
_AT_A_STRETCH = 100
Outcome = TypeVar("Outcome")


class SettlementService:
    """Carries out requests of consumers about messages that were delivered to them."""

    def __init__(self, shards: Shards, create: CreateTopic, tally: Tally) -> None:
        """``create`` makes a topic for dead letters, to the end even if the caller is cancelled."""
        self._shards = shards
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
        return await self._settle(request, lambda claims: claims.add_receipts(receipts))

    async def settle_leases(
        self, leases: Sequence[LeaseClaim], request: SettlementRequest
    ) -> list[tuple[Runs, GoQueueError | None]]:
        """One outcome for each lease: which of its messages could not be settled, and why."""
        return await self._settle(request, lambda claims: claims.add_leases(leases))

    async def _settle(
        self, request: SettlementRequest, claim: Callable[[RequestClaims], list[Outcome]]
    ) -> list[Outcome]:
        claims = RequestClaims(self._shards, request)
        outcomes = claim(claims)
        if lacking := self._lacking_dead_letter_topics(claims, request):
            # Anything may happen while topics are made, so all is claimed anew.
            claims = RequestClaims(self._shards, request, await make_all(self._shards.host, self._create, lacking))
            outcomes = claim(claims)
        await self._carry_out(claims, request)
        return outcomes

    def _lacking_dead_letter_topics(self, claims: RequestClaims, request: SettlementRequest) -> dict[str, Topic]:
        """For a rejection: dead-letter topics that do not exist yet, by name, with the topic that needs them."""
        lacking: dict[str, Topic] = {}
        if request.verb != Verb.REJECT:
            return lacking
        for each in [found for found in claims.by_queue.values() if found.claimed]:
            name = dead_letter_topic(self._shards.host, each.topic)
            if name is not None and name not in self._shards.host.topics.by_name:
                lacking[name] = each.topic
        return lacking

    async def _carry_out(self, claims: RequestClaims, request: SettlementRequest) -> None:
        journals: dict[Journal[ShardState], None] = {}
        shards = self._shards.map.by_number
        for each in claims.by_queue.values():
            journals[shards[each.topic.shards[each.queue.partition]].journal] = None
            if each.claimed:
                if request.verb is Verb.ACK:
                    settled = decide_ack(each.queue, each.claimed)
                else:
                    settled = decide_settlement(
                        each.queue, each.claimed, request, each.group.terms(each.queue, each.topic)
                    )
                self._count(request.verb, settled.messages)
                each.group.change(settled.events, _CAUSES.get(request.verb, ""), each.members)
        # A request that repeats another one may change nothing, and yet what it asks for may not be durable.
        await Journal.all_settled(journals)

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
