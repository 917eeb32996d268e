"""Checks the receipts and leases of one request, and gathers the messages that they claim by queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from goqueue.broker.partitions.topic import Topic
from goqueue.broker.shards.active_group import ActiveGroup
from goqueue.broker.shards.shard_directory import Shards
from goqueue.delivery.claims import Claimed, LeaseOutcome, claim_lease, claim_message
from goqueue.delivery.queue import Queue
from goqueue.delivery.receipts import Seal, parse_receipt
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest
from goqueue.model.errors import (
    GoQueueError,
    GroupNotFound,
    InvalidGroupName,
    InvalidReceipt,
    StaleReceipt,
    TopicNotFound,
)
from goqueue.model.runs import Runs


@dataclass(slots=True)
class QueueClaims:
    """What one request claims of one queue, and which members have it in flight."""

    group: ActiveGroup
    queue: Queue
    topic: Topic
    seal: Seal
    claimed: Claimed = field(default_factory=list)
    members: dict[str, None] = field(default_factory=dict)
    """In the order in which they are claimed."""


@dataclass(slots=True)
class RequestClaims:
    """``by_queue`` has the queues that the request names, whether anything is left there to settle or not.

    ``refused`` has the topics, by name, whose messages cannot be settled as the request asks, and why.
    """

    shards: Shards
    request: SettlementRequest
    refused: Mapping[str, GoQueueError] = field(default_factory=dict)
    by_queue: dict[str, QueueClaims] = field(default_factory=dict)

    def add_receipts(self, receipts: Sequence[str]) -> list[GoQueueError | None]:
        """Claim the messages of receipts; for each an error if its message cannot be settled."""
        outcomes: list[GoQueueError | None] = [None] * len(receipts)
        for index, text in enumerate(receipts):
            try:
                self.add_receipt(text)
            except GoQueueError as error:
                # Thousands of them with all that their frames hold would keep the garbage collector busy.
                outcomes[index] = error.with_traceback(None)
        return outcomes

    def add_leases(self, leases: Sequence[LeaseClaim]) -> list[tuple[Runs, GoQueueError | None]]:
        """Claim messages of leases; for each those that cannot be settled, and why."""
        outcomes: list[tuple[Runs, GoQueueError | None]] = []
        for lease in leases:
            try:
                outcome = self.add_lease(lease)
                outcomes.append((outcome.refused, outcome.refusal))
            except GoQueueError as error:
                outcomes.append((lease.runs, error))
        return outcomes

    def add_receipt(self, text: str) -> None:
        """Claim the message of a receipt; an error is raised if that cannot be settled."""
        receipt = parse_receipt(text)
        found = self._queue_claims(receipt.group, receipt.topic, receipt.partition)
        found.seal.check(receipt)
        batch = claim_message(found.queue, receipt.lease, receipt.offset, self.request)
        if batch is not None:
            self._check_not_refused(found)
            found.claimed.append((batch, 1 << (receipt.offset - batch.first)))
            if batch.member is not None:
                found.members[batch.member] = None

    def add_lease(self, claim: LeaseClaim) -> LeaseOutcome:
        """Claim messages of a lease, those that can be settled."""
        found = self._queue_claims(claim.group, claim.topic, claim.partition)
        found.seal.check_token(claim.token, claim.count, claim.lease)
        claim.check()
        self._check_not_refused(found)
        outcome = claim_lease(found.queue, claim.lease, claim.runs, self.request)
        found.claimed += outcome.claimed
        found.members.update((batch.member, None) for batch, _ in outcome.claimed if batch.member is not None)
        return outcome

    def _check_not_refused(self, found: QueueClaims) -> None:
        if self.refused and found.topic.name in self.refused:
            raise self.refused[found.topic.name]

    def _queue_claims(self, name: str, topic_name: str, partition: int) -> QueueClaims:
        try:
            group = self.shards.find_served(name)
            topics = self.shards.host.topics
            topic = topics.by_name.get(topic_name) or topics.find(topic_name)
        except (GroupNotFound, InvalidGroupName, TopicNotFound) as error:
            raise StaleReceipt(f"the receipt is void: {error}") from None
        sealed = group.sealed_queue(topic, partition)
        if sealed is None:
            if 0 <= partition < len(topic.partitions):
                self.shards.map.check_led(topic, partition)
            raise InvalidReceipt(f"group {name!r} has never had anything of partition {partition} of {topic_name!r}")
        queue, seal = sealed
        claims = self.by_queue.get(queue.key)
        if claims is None:
            claims = self.by_queue[queue.key] = QueueClaims(group, queue, topic, seal)
        return claims
