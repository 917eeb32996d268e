"""Operations of consumers on a group's queues: poll, settle, peek, statistics."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, Served, operation
from goqueue.broker.operations.limits import too_many_polled
from goqueue.broker.queues.lane_report import PartitionLanes, lane_stats
from goqueue.broker.queues.peek import Peek, PeekPage
from goqueue.broker.queues.polling import Delivery, PollBounds
from goqueue.broker.queues.tally import Tally
from goqueue.broker.shards.dead_letter_topics import dead_letter_topic
from goqueue.delivery.receipts import parse_receipt
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest
from goqueue.model.errors import GoQueueError, TopicNotFound
from goqueue.model.runs import Runs


class QueueOperations(ResourceOperations):
    """What members of a group do with messages. What these operations answer is durable."""

    @operation("queues.poll", Resource.GROUP)
    def poll(
        self, caller: Caller, group: str, member_id: str, bounds: PollBounds
    ) -> Coroutine[Any, Any, list[Delivery]]:
        """The next messages for a member; none if none came in time, or if the broker stops."""
        limits = self._host.config.limits
        if bounds.max_messages > limits.max_poll_messages:
            raise too_many_polled(bounds.max_messages, limits)
        return self._host.groups.polling.poll(group, member_id, bounds)

    @operation("queues.pace", Resource.GROUP)
    def pause_s(self, caller: Caller, group: str, member_id: str, bounds: PollBounds) -> float:
        """How long a member with plenty in flight should wait before its next poll, so that it gets more at once."""
        return self._host.groups.polling.pause_s(group, member_id, bounds)

    @operation("queues.give_back", Resource.GROUP, Served.ALWAYS)
    def give_back(self, caller: Caller, group: str, member_id: str, deliveries: list[Delivery]) -> None:
        """Undo deliveries that could not be handed to the member."""
        self._host.groups.polling.give_back(group, member_id, deliveries)

    @operation("queues.report_damage", Resource.GROUP)
    def report_damage(self, caller: Caller, group: str, delivery: Delivery, offsets: list[int]) -> None:
        """Messages of a delivery failed their checksum when they were decoded: note it in the partition's health."""
        with suppress(TopicNotFound):
            # It may have been deleted since.
            self._host.topics.find(delivery.topic).partition(delivery.partition).note_damage(offsets)

    @operation("queues.settle_receipts", Resource.RECEIPTS)
    def settle_receipts(
        self, caller: Caller, receipts: Sequence[str], order: SettlementRequest
    ) -> Coroutine[Any, Any, list[GoQueueError | None]]:
        """One outcome for each receipt; those that hold are carried out whatever becomes of the others."""
        settling = self._host.groups.settling
        if len(receipts) == 1:
            return settling.settle_receipts(receipts, order)
        return settling.settle_many_receipts(receipts, order)

    @operation("queues.settle_leases", Resource.GROUP)
    def settle_leases(
        self, caller: Caller, group: str, claims: Sequence[LeaseClaim], order: SettlementRequest
    ) -> Coroutine[Any, Any, list[tuple[Runs, GoQueueError | None]]]:
        """The same for messages that are named by their lease; each outcome says which of its offsets were refused."""
        return self._host.groups.settling.settle_leases(claims, order)

    @operation("queues.dead_letter_topic", Resource.RECEIPTS)
    def dead_letter_topic(self, caller: Caller, receipts: Sequence[str]) -> list[str | None]:
        """Where the message of each valid receipt goes when it is rejected; ``None``: it stays where it lies."""
        known: dict[str, str | None] = {}
        found = []
        for receipt in receipts:
            topic = parse_receipt(receipt).topic
            if topic not in known:
                known[topic] = self._dead_letter_topic(topic)
            found.append(known[topic])
        return found

    def _dead_letter_topic(self, topic: str) -> str | None:
        try:
            return dead_letter_topic(self._host.groups.shards.host, self._host.topics.find(topic))
        except TopicNotFound:
            return None

    @operation("queues.settlement_stats", Resource.BROKER)
    def settlement_stats(self, caller: Caller) -> Tally:
        """What was settled since the broker started, over all groups. Counters that go on counting: read them now."""
        return self._host.groups.settling.tally

    @operation("queues.peek", Resource.GROUP)
    def peek(self, caller: Caller, group: str, wanted: Peek) -> Coroutine[Any, Any, PeekPage]:
        """Messages that the group has not finished, without taking any."""
        return self._host.groups.peeking.page(group, wanted)

    @operation("queues.lane_stats", Resource.TOPIC)
    def lane_stats(self, caller: Caller, topic: str | None) -> Coroutine[Any, Any, list[PartitionLanes]]:
        """What each priority lane holds and delivers, by partition; of all topics if none is named."""
        return lane_stats(self._host.groups.shards, topic)
