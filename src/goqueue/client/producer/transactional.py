"""Transactions of a producer: producer id, epoch, and the one open transaction."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from goqueue.client.connection.call_outcome import CallOutcome
from goqueue.client.connection.directory import Attempt
from goqueue.client.connection.instants import Span, span_ns
from goqueue.client.producer.outbox import Outbox, OutboxTerms
from goqueue.client.producer.sequences import ProducerIdentity, init_producer
from goqueue.client.producer.transaction import AsyncTransaction
from goqueue.model.errors import (
    ClientClosed,
    GoQueueError,
    InvalidConfiguration,
    ProducerFenced,
    TransactionAborted,
    TransactionConflict,
)
from goqueue.model.sequences import next_sequence
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.proto import goqueue_pb2 as pb

_NS_PER_MS = 1_000_000
_MAX_MS = 1 << 53


class TransactionSequence:
    """Sequence numbers of the producer in one partition. All partitions share its id."""

    begins_anew = False

    def __init__(self, identity: ProducerIdentity, forget: Callable[[], None]) -> None:
        self._identity = identity
        self._forget = forget
        self._next = 0
        self._is_abandoned = False

    async def stamp(self, count: int) -> ProducerStamp:
        if self._is_abandoned:
            raise TransactionAborted(
                "it is not known what became of messages of this transaction, so it can only be aborted"
            )
        return ProducerStamp(*self._identity, self._next, count)

    def stored(self, stamp: ProducerStamp) -> None:
        self._next = next_sequence(stamp.first_sequence, stamp.message_count)

    def abandon(self) -> None:
        self._is_abandoned = True
        self._forget()


class Transactional:
    """One transaction at a time. With a ``transactional_id`` the producer takes over from its predecessor.

    After a batch or a transaction with unknown outcome, the producer is initialized again before the next transaction:
    with a transactional id in the next epoch, without one under another id. In both cases sequences begin at 0, and the
    broker ends what was left open. The same happens when the broker reports it as fenced, since the id may only have
    expired: it is fenced for good when it is refused under its transactional id.
    """

    def __init__(self, terms: OutboxTerms, name: str | None, timeout: Span | None) -> None:
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidConfiguration(f"transactional_id is {name!r}; it must be a text that is not empty")
        self._terms = terms
        self.directory = terms.directory
        self.name = name or ""
        self._timeout_ms = _timeout_ms(timeout)
        self._identity: ProducerIdentity | None = None
        self._instance = secrets.token_hex(8)
        self._was_initialized = False
        """Whether it has taken over before: then it is initialized again only if no other producer has taken over
        since."""
        self._sequences: dict[tuple[str, int], TransactionSequence] = {}
        self._open: AsyncTransaction | None = None
        self._in_doubt: set[AsyncTransaction] = set()
        """Transactions that may still be open at the broker."""
        self._is_closed = False
        self._begin_lock = asyncio.Lock()
        self._fenced: ProducerFenced | None = None

    @property
    def open(self) -> AsyncTransaction | None:
        return self._open

    async def begin(self, for_key: str = "") -> AsyncTransaction:
        if not self.name:
            # With a transactional id the broker ends them when the producer is initialized again.
            await self._call_off_doubtful()
        async with self._begin_lock:
            if self._fenced is not None:
                raise self._fenced
            if self._open is not None:
                raise TransactionConflict(
                    f"the producer has transaction {self._open.id} open; end it first, or use another producer"
                )
            identity = await self._initialized()
            if self._is_closed:
                raise ClientClosed("the producer is closed")
            # The broker learns of it with the first operation in it.
            made_id = f"{identity.producer_id}-{identity.epoch}-{secrets.token_hex(8)}"
            self._open = AsyncTransaction(
                self, made_id, identity, pb.Begin(timeout_ms=self._timeout_ms, for_key=for_key)
            )
            return self._open

    async def take_over(self) -> None:
        """Fence the previous producer with this transactional id, and have its open transaction aborted."""
        async with self._begin_lock:
            await self._initialized()

    async def is_fenced(self) -> bool:
        """Whether another producer has taken over, found by initializing again; that does not fence the other one."""
        if not self.name:
            return False
        try:
            await self.take_over()
        except ProducerFenced:
            return True
        except GoQueueError:
            # The next transaction tries again.
            return False
        return False

    async def _initialized(self) -> ProducerIdentity:
        if self._identity is None:
            request = pb.InitProducerRequest(
                transactional_id=self.name,
                timeout_ms=self._timeout_ms,
                instance=self._instance,
                again=self._was_initialized,
            )
            try:
                self._identity = await self._retry(lambda: init_producer(self.directory, request))
            except ProducerFenced as error:
                self._fenced = error
                raise
            self._was_initialized = bool(self.name)
            # Includes sequences that an earlier transaction left behind after it was given up.
            self._sequences = {}
        return self._identity

    def outbox(self, transaction: AsyncTransaction, check_open: Callable[[], None]) -> Outbox:
        """The outbox of a transaction."""

        def sequence(topic: str, number: int) -> TransactionSequence:
            found = self._sequences.get((topic, number))
            if found is None:
                identity = transaction.identity
                found = self._sequences[topic, number] = TransactionSequence(identity, lambda: self.forget(identity))
            return found

        return Outbox(self._terms, sequence, check_open, transaction.id, transaction.begin)

    def forget(self, identity: ProducerIdentity) -> None:
        """Initialize again before the next transaction, unless that was done since."""
        if self._identity == identity:
            self._identity = None
            self._sequences = {}

    def ended(self, transaction: AsyncTransaction, *, in_doubt: bool = False) -> None:
        if self._open is transaction:
            self._open = None
        if in_doubt:
            self._in_doubt.add(transaction)
        else:
            self._in_doubt.discard(transaction)

    def note_prepared(self, transaction: AsyncTransaction) -> None:
        """It is prepared. Without a transactional id the next one can begin at once, under another id."""
        self.ended(transaction)
        if not self.name:
            self.forget(transaction.identity)

    async def close(self) -> None:
        """Abort transactions that are open or in doubt; one that is being ended may finish."""
        self._is_closed = True
        if self._open is not None:
            await self._open.call_off()
        await self._call_off_doubtful()

    async def _call_off_doubtful(self) -> None:
        """A best effort, so that no reader waits for their remains at the broker."""
        left, self._in_doubt = self._in_doubt, set()
        for each in left:
            await each.call_off()

    # Requests

    async def request(
        self,
        method: str,
        make_request: Callable[[], Any],
        outcome: CallOutcome,
        retry_if: type[GoQueueError] | None = None,
    ) -> Any:
        """A request to the coordinator, with retries. All of these can be repeated with the same answer."""
        return await self._retry(lambda: self.request_once(method, make_request, outcome), retry_if)

    async def request_once(self, method: str, make_request: Callable[[], Any], outcome: CallOutcome) -> Any:
        """One request, retried only until a broker is found."""

        async def attempted(attempt: Attempt) -> Any:
            try:
                return await attempt.command(getattr(attempt.broker.transactions, method), make_request())
            except BaseException as error:
                outcome.ended(error)
                raise

        return await self.directory.any(attempted)

    async def _retry(self, request: Callable[[], Any], retry_if: type[GoQueueError] | None = None) -> Any:
        """Retry until the delivery timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._terms.config.delivery_timeout_ms / 1_000
        backoff = self.directory.backoff()
        while True:
            try:
                return await request()
            except GoQueueError as error:
                goes_on = error.retriable or (retry_if is not None and isinstance(error, retry_if))
                pause_s = backoff.next_s(error.retry_after_s)
                if not goes_on or loop.time() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)


def _timeout_ms(timeout: Span | None) -> int:
    """0: the broker's default."""
    if timeout is None:
        return 0
    timeout_ms = -(-span_ns("transaction_timeout", timeout) // _NS_PER_MS)
    if not 1 <= timeout_ms <= _MAX_MS:
        raise InvalidConfiguration(f"transaction_timeout is {timeout!r}; it must be more than nothing")
    return timeout_ms
