"""Receipts and leases of a request, checked and gathered by queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from goqueue.broker.coordinator.group_shards import GroupShards
from goqueue.broker.partitions.topic import Topic
from goqueue.coordination.group import Group
from goqueue.delivery.claims import Claimed, LeaseOutcome, claim_lease, claim_message
from goqueue.delivery.queue import Queue
from goqueue.delivery.receipts import parse_receipt
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest
from goqueue.model.errors import GoQueueError, InvalidReceipt, StaleReceipt


@dataclass(slots=True)
class QueueClaims:
    """What one request claims of one queue."""

    group: Group
    queue: Queue
    topic: Topic
    claimed: Claimed = field(default_factory=list)


class Claims:
    """What one request claims, by queue.

    ``refused`` has the topics, by name, whose messages cannot be settled as the request asks, and why.
    """

    def __init__(
        self, shards: GroupShards, request: SettlementRequest, refused: Mapping[str, GoQueueError] | None = None
    ) -> None:
        self._shards = shards
        self._request = request
        self._refused = refused or {}
        self._by_queue: dict[str, QueueClaims] = {}

    @property
    def queues(self) -> list[QueueClaims]:
        """Those that the request names, be there anything left to settle or not."""
        return list(self._by_queue.values())

    def add_receipt(self, text: str) -> None:
        """Claim the message of a receipt; an error is raised if that cannot be settled."""
        receipt = parse_receipt(text)
        found = self._queue_claims(receipt.group, receipt.topic, receipt.partition)
        seal = self._shards.seal(found.group, found.queue)
        if seal is None:
            raise StaleReceipt("the receipt is void: its topic was deleted")
        seal.check(receipt)
        batch = claim_message(found.queue, receipt.lease, receipt.offset, self._request)
        if batch is not None:
            if self._refused and found.topic.name in self._refused:
                raise self._refused[found.topic.name]
            found.claimed.append((batch, 1 << (receipt.offset - batch.first)))

    def add_lease(self, claim: LeaseClaim) -> LeaseOutcome:
        """Claim messages of a lease, those that can be settled."""
        found = self._queue_claims(claim.group, claim.topic, claim.partition)
        seal = self._shards.seal(found.group, found.queue)
        if seal is None:
            raise StaleReceipt("the lease is void: its topic was deleted")
        seal.check_token(claim.token, claim.count, claim.lease)
        claim.check()
        if self._refused and found.topic.name in self._refused:
            raise self._refused[found.topic.name]
        outcome = claim_lease(found.queue, claim.lease, claim.runs, self._request)
        found.claimed += outcome.claimed
        return outcome

    def _queue_claims(self, group: str, topic: str, partition: int) -> QueueClaims:
        try:
            found = self._shards.find(group)
            at = self._shards.host.topic(topic)
        except GoQueueError as error:
            raise StaleReceipt(f"the receipt is void: {error}") from None
        queue = self._shards.queue(found, at.record.topic_id, partition)
        if queue is None:
            raise InvalidReceipt(f"group {group!r} has never had anything of partition {partition} of {topic!r}")
        claims = self._by_queue.get(queue.key)
        if claims is None:
            claims = self._by_queue[queue.key] = QueueClaims(found, queue, at)
        return claims
