"""Transactions seen from outside: by operators, and by coordinators that commit what several writers have prepared."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta

from goqueue.api.http.bodies.fields import TransactionPath
from goqueue.api.http.bodies.transaction_control_schemas import (
    CommitManyRequest,
    CommittedKey,
    EndedState,
    OperatorAbortRequest,
    TouchedPartition,
    TransactionDetails,
    TransactionInfo,
    TransactionListResponse,
    TransactionStats,
)
from goqueue.api.http.bodies.transaction_schemas import AbortTransactionResponse
from goqueue.api.http.routing.declaration import Controller, Documented, get, post
from goqueue.broker.operations import Caller, ManyCommitted, OpenTransaction, Operations, TimeSlice, acks_in
from goqueue.broker.operations.limits import MAX_COMMIT_KEY_LENGTH, MAX_COMMITTED_TOGETHER
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import InvalidRequest, TransactionAborted, TransactionConflict, TransactionNotFound
from goqueue.model.fields import shown
from goqueue.model.units import format_duration_ms, format_instant_ns

_ID = "4514783002117349-0-5f5e1a2b3c4d5e6f"
_INFO = {
    "transaction_id": _ID,
    "producer_id": 4_514_783_002_117_349,
    "epoch": 0,
    "transactional_id": "billing",
    "state": "ongoing",
    "started_at": "2030-01-01T09:00:00Z",
    "deadline": "2030-01-01T09:01:00Z",
    "messages": 2,
}
_LISTED = {**_INFO, "topics": ["invoices"]}
_DETAILS = {
    **_INFO,
    "acks": 1,
    "partitions": [{"topic": "invoices", "partition": 0, "first_offset": 17, "end_offset": 19}],
    "groups": ["billing"],
}
_KEY = {"key": "nightly/7", "transactions": [_ID], "committed_at": "2030-01-01T09:00:30Z", "is_new": True}
_STATS = {
    "active_transactions": 3,
    "prepared_transactions": 1,
    "begun_total": 50,
    "committed_total": 40,
    "aborted_total": 7,
    "timed_out_total": 2,
    "fenced_total": 1,
    "avg_duration": "120ms",
}


class TransactionControlRoutes(Controller):
    """Transactions as operators see them, and commits under a key."""

    tag = "Transactions"

    def __init__(self, operations: Operations) -> None:
        self._transactions = operations.transactions

    @get(
        "/transactions",
        answer=Documented("The oldest first.", {"transactions": [_LISTED], "total": 1}),
        summary="List transactions that have not ended",
    )
    async def list_transactions(
        self,
        caller: Caller,
        limit: Annotated[
            int, Meta(ge=1, le=MAX_COMMITTED_TOGETHER, description="The most transactions to answer with.")
        ] = 1_000,
    ) -> TransactionListResponse:
        """Readers of the partitions that the oldest has written to wait for it."""
        found = self._transactions.all_open(caller)
        listed: list[TransactionInfo] = []
        stretch = TimeSlice()
        for each in found[:limit]:
            listed.append(_info(each))
            if stretch.is_over:
                await stretch.rest()
        return TransactionListResponse(listed, len(found))

    @get(
        "/transactions/stats",
        answer=Documented("Since the broker started.", _STATS),
        summary="How many transactions there are and were",
    )
    async def transaction_stats(self, caller: Caller) -> TransactionStats:
        """How many are open or prepared now, and what became of others since the broker started."""
        stats = self._transactions.stats(caller)
        tally, states = stats.tally, stats.by_state
        average_ns = tally.duration_ns // tally.committed if tally.committed else 0
        return TransactionStats(
            active_transactions=sum(states.values()),
            prepared_transactions=states.get("prepared", 0),
            begun_total=tally.begun,
            committed_total=tally.committed,
            aborted_total=tally.aborted,
            timed_out_total=tally.timed_out,
            fenced_total=stats.fenced,
            avg_duration=format_duration_ms(average_ns // NANOS_PER_MS),
        )

    @get(
        "/transactions/{transaction_id}",
        errors=(404,),
        answer=Documented("What it did so far, or how it ended.", _DETAILS),
        summary="Look at a transaction",
    )
    async def describe_transaction(self, caller: Caller, transaction_id: TransactionPath) -> TransactionDetails:
        """What it did so far; of one that has ended, how."""
        try:
            return _details(self._transactions.describe(caller, transaction_id))
        except TransactionAborted as error:
            return _ended(transaction_id, "completed_abort", str(error).partition(": ")[2])
        except TransactionConflict:
            return _ended(transaction_id, "completed_commit")

    @post(
        "/transactions/{transaction_id}/abort",
        errors=(404, 409),
        summary="Abort anyone's transaction (for operators)",
    )
    async def abort_any(
        self, caller: Caller, transaction_id: TransactionPath, data: OperatorAbortRequest | None = None
    ) -> AbortTransactionResponse:
        """Its producer is told so when it comes back to it."""
        await self._transactions.abort(caller, transaction_id, None if data is None else data.reason)
        return AbortTransactionResponse("aborted", transaction_id)

    @post(
        "/transactions/commit-many",
        errors=(404, 409, 507),
        answer=Documented("What is committed under the key, be it by this request or before.", _KEY),
        summary="Commit prepared transactions under a key, all or none",
    )
    async def commit_many(self, caller: Caller, data: CommitManyRequest) -> CommittedKey:
        """The first request with a key decides; every later one is told what that has committed."""
        return _key(await self._transactions.commit_many(caller, data.key, data.transactions))

    @get(
        "/transactions/keys/{key}",
        keeps_slashes=True,
        errors=(404,),
        answer=Documented("What was committed.", {**_KEY, "is_new": False}),
        summary="Ask what was committed under a key",
    )
    async def find_key(
        self, caller: Caller, key: Annotated[str, Meta(description="The application's own; a / in it is written %2F.")]
    ) -> CommittedKey:
        """It is an error if nothing was, or so long ago that it is forgotten."""
        if len(key) > MAX_COMMIT_KEY_LENGTH:
            raise InvalidRequest(f"the key has {len(key)} characters; 1 to {MAX_COMMIT_KEY_LENGTH} are allowed")
        found = await self._transactions.committed_under(caller, key)
        if found is None:
            raise TransactionNotFound(
                f"nothing was committed under key {shown(key)}, or so long ago that it is forgotten"
            )
        return _key(found)


def _key(found: ManyCommitted) -> CommittedKey:
    return CommittedKey(found.key, found.transactions, format_instant_ns(found.at_ns), found.is_new)


def _told(each: OpenTransaction) -> dict[str, Any]:
    """What is told of a transaction that has not ended, in a list and alone."""
    return {
        "transaction_id": each.transaction_id,
        "producer_id": each.producer_id,
        "epoch": each.epoch,
        "transactional_id": each.name or UNSET,
        "for_key": each.for_key or UNSET,
        "state": each.state.value,
        "started_at": format_instant_ns(each.started_ns),
        "deadline": format_instant_ns(each.deadline_ns),
        "messages": each.messages,
    }


def _info(each: OpenTransaction) -> TransactionInfo:
    return TransactionInfo(**_told(each), topics=sorted({touch.topic.name for touch in each.touched.values()}))


def _details(each: OpenTransaction) -> TransactionDetails:
    touches = sorted(each.touched.values(), key=lambda touch: (touch.topic.name, touch.number))
    return TransactionDetails(
        **_told(each),
        acks=acks_in(each),
        partitions=[TouchedPartition(touch.topic.name, touch.number, touch.first, touch.end) for touch in touches],
        groups=each.groups,
    )


def _ended(transaction_id: str, state: EndedState, reason: str = "") -> TransactionDetails:
    """Of one that has ended its id tells whose it was."""
    producer_id, epoch, _ = transaction_id.split("-")
    return TransactionDetails(
        transaction_id=transaction_id,
        producer_id=int(producer_id),
        epoch=int(epoch),
        state=state,
        reason=reason or UNSET,
    )
