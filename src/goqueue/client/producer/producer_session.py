"""Session of a transactional producer with the broker: producer id, epoch, sequence numbers, and requests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from goqueue.client.connection.instants import Span, span_ns
from goqueue.client.connection.retries import Attempt, CallOutcome
from goqueue.client.producer.outbox import OutboxTerms
from goqueue.client.producer.sequences import ProducerIdentity, init_producer
from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.model.producer_sequences import next_sequence
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
            raise errors.TransactionAborted(
                "it is not known what became of messages of this transaction, so it can only be aborted"
            )
        return ProducerStamp(*self._identity, self._next, count)

    def stored(self, stamp: ProducerStamp) -> None:
        self._next = next_sequence(stamp.first_sequence, stamp.message_count)

    def abandon(self) -> None:
        self._is_abandoned = True
        self._forget()


class ProducerSession:
    """With a ``transactional_id`` the producer takes over from its predecessor.

    After a batch or a transaction with unknown outcome, the producer is initialized again before the next transaction:
    with a transactional id in the next epoch, without one under another id. In both cases sequences begin at 0, and the
    broker ends what was left open. The same happens when the broker reports it as fenced, since the id may only have
    expired: it is fenced for good when it is refused under its transactional id.
    """

    def __init__(self, terms: OutboxTerms, name: str | None, timeout: Span | None) -> None:
        if name is not None and (not isinstance(name, str) or not name):
            raise errors.InvalidConfiguration(f"transactional_id is {name!r}; it must be a text that is not empty")
        self.terms = terms
        self.directory = terms.directory
        self.name = name or ""
        self.timeout_ms = _timeout_ms(timeout)
        self._identity: ProducerIdentity | None = None
        self._instance = secrets.token_hex(8)
        self._was_initialized = False
        """Whether it has taken over before: it does so again only if no other producer has done so since."""
        self._sequences: dict[tuple[str, int], TransactionSequence] = {}
        self._init_lock = asyncio.Lock()
        self.fenced: errors.ProducerFenced | None = None

    async def identity(self) -> ProducerIdentity:
        """The id in use; at first, and after ``forget``, from the broker. Under a transactional id this fences the
        previous producer, and aborts its open transaction."""
        async with self._init_lock:
            if self._identity is None:
                request = pb.InitProducerRequest(
                    transactional_id=self.name,
                    timeout_ms=self.timeout_ms,
                    instance=self._instance,
                    again=self._was_initialized,
                )
                try:
                    self._identity = await self.directory.retry(
                        lambda: init_producer(self.directory, request), self.terms.config.delivery_timeout_ms
                    )
                except errors.ProducerFenced as error:
                    self.fenced = error
                    raise
                self._was_initialized = bool(self.name)
                # Includes sequences that an earlier transaction left behind after it was given up.
                self._sequences = {}
            return self._identity

    async def is_fenced(self) -> bool:
        """Whether another producer has taken over, found by initializing again; that does not fence the other one."""
        if not self.name:
            return False
        try:
            await self.identity()
        except errors.ProducerFenced:
            return True
        except GoQueueError:
            # The next transaction tries again.
            return False
        return False

    async def explain_abort(self, transaction_id: str, error: GoQueueError) -> GoQueueError:
        """Why a transaction has ended, if the broker no longer knows it or the producer."""
        if isinstance(error, errors.TransactionNotFound):
            return errors.TransactionAborted(
                f"transaction {transaction_id} was aborted: the broker does not know it any more, because it was "
                "started again while the transaction was open, or that ended long ago; do its work again in a new one"
            )
        if await self.is_fenced():
            return error
        return errors.TransactionAborted(
            f"transaction {transaction_id} was aborted: {error}; do its work again in a new one"
        )

    def sequence(self, identity: ProducerIdentity, topic: str, number: int) -> TransactionSequence:
        """The sequence of a partition in transactions under this id."""
        found = self._sequences.get((topic, number))
        if found is None:
            found = self._sequences[topic, number] = TransactionSequence(identity, lambda: self.forget(identity))
        return found

    def forget(self, identity: ProducerIdentity) -> None:
        """Initialize again before the next transaction, unless that was done since."""
        if self._identity == identity:
            self._identity = None
            self._sequences = {}

    async def request(
        self,
        method: str,
        make_request: Callable[[], Any],
        outcome: CallOutcome,
        retry_if: type[GoQueueError] | None = None,
    ) -> Any:
        """A request to the coordinator, with retries. All of these can be repeated with the same answer."""
        within_ms = self.terms.config.delivery_timeout_ms
        return await self.directory.retry(lambda: self.request_once(method, make_request, outcome), within_ms, retry_if)

    async def request_once(self, method: str, make_request: Callable[[], Any], outcome: CallOutcome) -> Any:
        """One request, retried only until a broker is found."""

        async def attempted(attempt: Attempt) -> Any:
            try:
                return await attempt.command(getattr(attempt.broker.transactions, method), make_request())
            except BaseException as error:
                outcome.ended(error)
                raise

        return await self.directory.any(attempted)


def _timeout_ms(timeout: Span | None) -> int:
    """0: the broker's default."""
    if timeout is None:
        return 0
    timeout_ms = -(-span_ns("transaction_timeout", timeout) // _NS_PER_MS)
    if not 1 <= timeout_ms <= _MAX_MS:
        raise errors.InvalidConfiguration(f"transaction_timeout is {timeout!r}; it must be more than nothing")
    return timeout_ms
