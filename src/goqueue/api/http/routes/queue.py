"""What becomes of messages that were polled: ack, nack, reject, more time."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from goqueue.api.http.bodies.durations import bounded_ms
from goqueue.api.http.bodies.queue_schemas import (
    AckRequest,
    AckResponse,
    ExtendVisibilityRequest,
    ExtendVisibilityResponse,
    NackRequest,
    NackResponse,
    RejectRequest,
    RejectResponse,
    ReliabilityStats,
    SettleRequest,
    SettleResult,
)
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import get, post
from goqueue.broker.operations import Caller, SettlementRequest, Verb
from goqueue.broker.operations.limits import MAX_RECEIPT_LENGTH, MAX_SETTLED_AT_ONCE
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.topic_settings import MAX_VISIBILITY_MS
from goqueue.model.units import format_instant_ns

_MAX_BODY_BYTES = MAX_SETTLED_AT_ONCE * (MAX_RECEIPT_LENGTH + len('"",')) + (64 << 10)


class QueueRoutes(BrokerRoutes):
    """Settling messages that were polled."""

    tag = "Queue"

    @post("/messages/ack", errors=(410,), max_body_bytes=_MAX_BODY_BYTES, summary="Done with a message, or many")
    async def ack(self, caller: Caller, data: AckRequest) -> AckResponse:
        """This group never gets it again."""
        results = await self._settle(caller, data, SettlementRequest(Verb.ACK))
        return AckResponse(_all_ok(results), results)

    @post("/messages/nack", errors=(410,), max_body_bytes=_MAX_BODY_BYTES, summary="Try a message again later")
    async def nack(self, caller: Caller, data: NackRequest) -> NackResponse:
        """After max_retries it becomes a dead letter instead."""
        delay_ms = None if data.delay is None else bounded_ms("delay", data.delay, MAX_VISIBILITY_MS)
        results = await self._settle(caller, data, SettlementRequest(Verb.NACK, delay_ms, data.reason or ""))
        return NackResponse(_all_ok(results), results)

    @post(
        "/messages/reject",
        errors=(409, 410),
        max_body_bytes=_MAX_BODY_BYTES,
        summary="Move a message to the dead letters",
    )
    async def reject(self, caller: Caller, data: RejectRequest) -> RejectResponse:
        """It is not tried again; a dead letter that is rejected stays where it lies."""
        results = await self._settle(caller, data, SettlementRequest(Verb.REJECT, reason=data.reason or ""))
        dead = None
        if data.receipt_handle is not None:
            (dead,) = self._operations.queues.dead_letter_topic(caller, [data.receipt_handle])
        return RejectResponse(_all_ok(results), dead or UNSET, results)

    @post(
        "/messages/visibility",
        errors=(410,),
        max_body_bytes=_MAX_BODY_BYTES,
        summary="Keep a message hidden from others for longer",
    )
    async def extend_visibility(self, caller: Caller, data: ExtendVisibilityRequest) -> ExtendVisibilityResponse:
        """The timeout counts from now."""
        timeout_ms = bounded_ms("timeout", data.timeout, MAX_VISIBILITY_MS)
        # The broker counts from a moment later: what is answered is never too late.
        deadline = format_instant_ns(self._operations.clock.now_ns() + timeout_ms * NANOS_PER_MS)
        results = await self._settle(caller, data, SettlementRequest(Verb.EXTEND, timeout_ms))
        return ExtendVisibilityResponse(_all_ok(results), deadline, results)

    @get("/reliability/stats", summary="How many messages were settled, and how")
    async def reliability_stats(self, caller: Caller) -> ReliabilityStats:
        """Over all groups, since the broker started."""
        tally = self._operations.queues.settlement_stats(caller)
        return ReliabilityStats(
            acks_total=tally.acks,
            nacks_total=tally.nacks,
            rejects_total=tally.rejects,
            dlq_messages=tally.dead_letters,
            visibility_extensions=tally.extensions,
            redeliveries=tally.redeliveries,
            visibility_timeouts=tally.visibility_timeouts,
            redriven=tally.redriven,
            expired=tally.expired,
        )

    async def _settle(
        self, caller: Caller, data: SettleRequest, order: SettlementRequest
    ) -> list[SettleResult] | UnsetType:
        """One receipt raises what is wrong with it; many have a result each."""
        if (data.receipt_handle is None) == (data.receipt_handles is None):
            raise InvalidRequest("give either receipt_handle or receipt_handles")
        if data.receipt_handle is not None:
            (refusal,) = await self._operations.queues.settle_receipts(caller, [data.receipt_handle], order)
            if refusal is not None:
                raise refusal
            return UNSET
        receipts = data.receipt_handles or []
        outcomes = await self._operations.queues.settle_receipts(caller, receipts, order)
        results = [_result(outcome) for outcome in outcomes]
        if order.verb == Verb.REJECT:
            rejected = [(receipt, each) for receipt, each in zip(receipts, results, strict=True) if each.ok]
            topics = self._operations.queues.dead_letter_topic(caller, [receipt for receipt, _ in rejected])
            for (_, each), topic in zip(rejected, topics, strict=True):
                each.dlq_topic = topic or UNSET
        return results


def _result(outcome: GoQueueError | None) -> SettleResult:
    if outcome is None:
        return SettleResult(ok=True)
    return SettleResult(error=str(outcome), code=outcome.code, retriable=outcome.retriable)


def _all_ok(results: list[SettleResult] | UnsetType) -> bool:
    return isinstance(results, UnsetType) or all(each.ok is True for each in results)
