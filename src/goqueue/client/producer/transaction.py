"""Transaction: messages, acks and offsets that become visible together or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NoReturn

from goqueue.client.connection.retries import CallOutcome
from goqueue.client.consumer.consumer import AsyncConsumer
from goqueue.client.consumer.delivery import Received
from goqueue.client.consumer.reader import Record
from goqueue.client.messages.outgoing_message import Outgoing, Sent
from goqueue.client.producer.outbox import Outbox
from goqueue.client.producer.pending_batches import Stored
from goqueue.client.producer.producer_session import ProducerSession
from goqueue.client.producer.send_input import SendInput
from goqueue.client.producer.sender import AsyncSender
from goqueue.client.producer.sequences import ProducerIdentity
from goqueue.client.producer.transaction_acks import add_each, take_messages
from goqueue.client.producer.transaction_contents import PendingOperations, TransactionContents
from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.wire.batch import FrameRun
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

State = Literal["open", "committing", "preparing", "aborting", "prepared", "committed", "aborted", "in doubt"]


class AsyncTransaction(AsyncSender):
    """Made by ``AsyncProducer.begin`` and ``transaction``.

    Messages become visible when it commits. They cannot have dedup ids: a transaction detects retries itself. The
    broker aborts it if it has not ended within the producer's ``transaction_timeout``.

    It commits as a whole or not at all: not if a message was refused or timed out, if ``send_many`` raised or an ack
    failed, or if one of them was cancelled. A ``send`` that raises has had no effect and may be retried.
    """

    def __init__(
        self,
        session: ProducerSession,
        contents: TransactionContents,
        on_ended: Callable[[AsyncTransaction, bool], None],
    ) -> None:
        """``on_ended`` is called when it has ended or is prepared, and whether it may still be open at the broker."""
        self._session = session
        self._contents = contents
        self._on_ended = on_ended
        self.id = contents.id
        self._state: State = "open"
        self._outbox = Outbox(
            session.terms,
            lambda *at: session.sequence(contents.identity, *at),
            self._check_sending,
            contents,
            self._note,
        )
        self._work = PendingOperations()
        self._end_lock = asyncio.Lock()
        """Held while it is being ended, so that others can wait for the end."""
        self._end_outcome = CallOutcome()
        """Outcome of the requests to end it."""
        self._is_prepare_requested = self._is_commit_requested = self._was_prepared = False

    @property
    def identity(self) -> ProducerIdentity:
        return self._contents.identity

    @property
    def is_open(self) -> bool:
        return self._state == "open"

    @property
    def _is_committed(self) -> bool:
        return self._state == "committed"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self._state}>"

    def _check_sending(self) -> None:
        if self._state != "open":
            self._refuse()

    def _refuse(self) -> NoReturn:
        if self._state == "aborted":
            raise errors.TransactionAborted(f"transaction {self.id} was aborted")
        raise errors.TransactionConflict(f"transaction {self.id} is {self._state}; it takes nothing more")

    def _note(self, done: asyncio.Future[Stored]) -> None:
        """Note the result of a sent message: if one fails, the transaction cannot commit."""
        if done.cancelled():
            self._work.fail(asyncio.CancelledError())
            return
        error = done.exception() or next(iter(done.result().failures.values()), None)
        if error is not None:
            self._work.fail(error)
            if isinstance(error, errors.ProducerFenced):
                self._forget_identity()

    @property
    def _is_empty(self) -> bool:
        """Whether nothing was done or attempted in it."""
        return self._contents.is_empty and not self._outbox.has_sent

    @property
    def _was_never_begun(self) -> bool:
        """Whether the broker cannot have received anything of it."""
        return self._is_empty and not self._is_prepare_requested

    # Operations

    async def _send(self, topic: str, message: Outgoing) -> asyncio.Future[Sent]:
        self._work.begin()
        try:
            return await self._outbox.send(topic, message)
        except Exception as error:
            if not self.is_open:
                # The end was requested while this message was being sent.
                self._work.fail(error)
            raise
        except BaseException as error:
            self._work.fail(error)
            raise
        finally:
            self._work.end()

    async def _send_input(self, topic: str, messages: SendInput) -> list[Sent]:
        self._check_sending()
        with self._work:
            return await super()._send_input(topic, messages)

    async def send_frames(self, topic: str, partition: int, run: FrameRun) -> None:
        """Send frames encoded by the caller: of one partition, flagged as transactional, and fitting one batch with a
        stamp. Waits while the buffer is full; whether all are stored is known after ``prepare`` or ``commit``."""
        self._check_sending()
        with self._work:
            await self._outbox.enqueue(topic, partition, run)

    async def ack(self, messages: Received[Any] | Iterable[Received[Any]]) -> None:
        """Ack messages of a queue when the transaction commits; if it aborts they are delivered again. Until then no
        member gets them, and here they count as settled.

        Raises without any effect if one of them is settled or lost. If the broker refuses some, those are in flight
        again and the transaction cannot commit. They must come from consumers of the same client.
        """
        self._check_sending()
        portions = take_messages(messages, self._session.directory)
        with self._work:
            await add_each(
                portions,
                lambda portion, outcome: self._add("AddAcks", partial(self._contents.acks_request, portion), outcome),
            )

    async def commit_offsets(self, consumer: AsyncConsumer, record: Record | None = None) -> None:
        """Streams only: when the transaction commits, the group continues after everything handed out, or after
        ``record`` in its partition. If it aborts, the consumer reads again from the committed offsets.

        Called before work that may fail, it makes the consumer read again in that case too. The consumer needs
        ``auto_commit=False`` and must belong to the same client.
        """
        self._check_sending()
        request = self._contents.take_offsets(consumer, record, self._session.directory)
        if request is not None:
            with self._work:
                await self._add("AddOffsets", request, CallOutcome())

    async def _add(self, method: str, make_request: Callable[[], Any], outcome: CallOutcome) -> None:
        self._contents.has_acks = True
        try:
            answer = await self._session.request(method, make_request, outcome)
        except errors.ProducerFenced:
            self._forget_identity()
            raise
        self._contents.incarnations.add(answer.incarnation)

    def _forget_identity(self) -> None:
        self._session.forget(self._contents.identity)

    # Ending

    async def commit(self) -> None:
        """Wait until everything sent is stored, then make it visible. Safe to call twice.

        ``TransactionAborted`` if it was aborted, by the broker or because an operation in it failed. A lost answer is
        requested again; ``DeliveryTimeout`` if none arrives within the delivery timeout, or if the broker no longer
        knows the outcome. The transaction is then in doubt, committed or not: ``commit`` may be repeated, or ``abort``
        tried. The same holds if this call is cancelled.
        """
        async with self._end_lock:
            if self._state == "committed":
                return
            if self._state not in ("prepared", "in doubt"):
                await self._flush("committing")
                if self._was_never_begun:
                    self._end("committed")
                    return
            self._is_commit_requested = True
            # ``TransactionConflict`` is retried: an abort or prepare under way is finished in a moment.
            await self._decide(
                "committing", "CommitTransaction", self._contents.end_request, retry_if=errors.TransactionConflict
            )
            self._end("committed")

    async def prepare(self) -> str:
        """Wait until everything is stored durably, and leave the end to ``client.commit_many`` or
        ``client.abort_transaction``, which take the id that this returns. A prepared transaction survives its producer
        and restarts of the broker.

        Raises as ``commit`` does, and may be repeated in the same way.
        """
        async with self._end_lock:
            if self._state == "prepared":
                return self.id
            if self._contents.has_offsets:
                raise errors.InvalidRequest(
                    "a transaction with offsets of a stream cannot be prepared: its consumer could not go on before it "
                    "ends"
                )
            if self._state != "in doubt" or self._is_commit_requested:
                await self._flush("preparing")
            # Retried as for a commit. But if this request begins it, the conflicting transaction may stay open.
            retry_if = None if self._is_empty else errors.TransactionConflict
            self._is_prepare_requested = True
            answer = await self._decide("preparing", "PrepareTransaction", self._preparing, retry_if=retry_if)
            self._contents.incarnations.add(answer.incarnation)
            self._state, self._was_prepared = "prepared", True
            self._on_ended(self, False)
            if not self._session.name:
                # The next one can begin at once, under another id.
                self._forget_identity()
            await self._outbox.give_up()
            return self.id

    async def abort(self, reason: str = "") -> None:
        """Discard everything in it. If the broker cannot be reached, it aborts the transaction at its timeout.

        Messages acked in it are delivered again later, as after a nack, with ``reason`` as the reason. A prepared or
        in-doubt transaction is aborted only if the broker agrees; otherwise this raises its reason and changes nothing.
        """
        if self._state in ("committing", "preparing"):
            self._refuse()
        self._contents.give_reason(reason)
        async with self._end_lock:
            await self._abort()

    async def call_off(self, reason: str = "") -> None:
        """``abort`` during error handling: waits for an end that is under way, leaves a transaction alone that has
        ended then or is prepared, and logs errors."""
        self._contents.give_reason(reason)
        async with self._end_lock:
            await self._call_off()

    async def _call_off(self) -> None:
        if self._state not in ("open", "in doubt"):
            return
        try:
            await self._abort()
        except GoQueueError as error:
            if not self._is_committed:
                log.warning("a transaction could not be aborted", transaction=self.id, error=str(error))

    async def _flush(self, state: State) -> None:
        """Accept no more operations and wait until everything is stored; after a failure abort and raise why."""
        self._check_sending()
        self._state = state
        try:
            await self._outbox.flush()
            await self._work.finished()
            # Results of this turn of the loop are noted in the next one.
            await asyncio.sleep(0)
        except BaseException:
            self._state = "open"
            raise
        if len(self._contents.incarnations) > 1:
            self._work.fail(errors.TransactionNotFound("the broker was started again while it was open"))
        failure = self._work.failure
        if failure is None:
            return
        self._state = "open"
        await self._call_off()
        if isinstance(failure, errors.ProducerFenced | errors.TransactionNotFound):
            raise await self._session.explain_abort(self.id, failure) from failure
        raise errors.TransactionAborted(
            f"transaction {self.id} was aborted: not everything that belongs to it could be done; the first error: "
            f"{failure}"
        ) from failure

    async def _decide(
        self,
        state: State,
        method: str,
        make_request: Callable[[], pb.TransactionRequest],
        retry_if: type[GoQueueError] | None,
    ) -> Any:
        """Have the broker commit or prepare it. After a failure, error and state say whether it has ended."""
        was_prepared, self._state = self._state == "prepared", state
        try:
            return await self._session.request(method, make_request, self._end_outcome, retry_if)
        except errors.TransactionAborted:
            self._end("aborted")
            raise
        except (errors.TransactionNotFound, errors.ProducerFenced) as error:
            if was_prepared:
                # Another client may have committed or aborted it.
                self._state = "prepared"
                raise
            if self._end_outcome.maybe_done:
                # It may have been carried out, and forgotten since.
                self._end("in doubt")
                raise self._unknown_end(error) from error
            self._end("aborted")
            raise await self._session.explain_abort(self.id, error) from error
        except BaseException as error:
            if was_prepared:
                self._state = "prepared"
            else:
                self._end("in doubt")
            if isinstance(error, GoQueueError) and (error.retriable or self._end_outcome.maybe_done):
                raise self._unknown_end(error) from error
            raise

    async def _abort(self) -> None:
        before = self._state
        if before == "aborted":
            return
        if before not in ("open", "prepared", "in doubt"):
            self._refuse()
        if self._was_never_begun:
            self._end("aborted", is_clean=True)
            return
        self._state = "aborting"
        try:
            await self._outbox.give_up(errors.TransactionAborted(f"transaction {self.id} was aborted"))
            if before != "open":
                await self._check_not_committed()
            await self._session.request_once("AbortTransaction", self._contents.end_request, CallOutcome())
        except errors.TransactionAborted:
            self._end("aborted")
        except BaseException as error:
            if before == "open":
                self._after_failed_abort(error)
                return
            if self._state == "aborting":
                self._state = before
            if before == "in doubt" and isinstance(error, errors.TransactionNotFound):
                raise self._unknown_end(error) from error
            raise
        else:
            self._end("aborted", is_clean=not isinstance(self._work.failure, errors.TransactionNotFound))

    async def _check_not_committed(self) -> None:
        """Check before an abort that it was not committed: about a committed transaction that it has forgotten, the
        broker would say only that nothing more may be done in it. Raises if it has ended or is unknown."""
        request = pb.DescribeTransactionRequest(transaction_id=self.id)
        try:
            await self._session.request_once("DescribeTransaction", lambda: request, CallOutcome())
        except errors.TransactionConflict:
            # It has ended, and not by an abort.
            self._end("committed")
            raise

    def _after_failed_abort(self, error: BaseException) -> None:
        """No commit was requested, so it is aborted sooner or later. Raises errors that the caller has to know."""
        if isinstance(error, errors.TransactionConflict):
            self._end("in doubt")
            raise error
        self._end("aborted")
        if isinstance(error, errors.TransactionNotFound | errors.ProducerFenced):
            # Aborted by a restart of the broker, or by the producer that took over.
            return
        if not isinstance(error, GoQueueError) or not error.retriable:
            raise error
        log.warning("a transaction is left to its timeout", transaction=self.id, error=str(error))

    def _preparing(self) -> pb.TransactionRequest:
        return self._contents.begin_request() if self._is_empty else self._contents.end_request()

    def _unknown_end(self, error: GoQueueError) -> errors.DeliveryTimeout:
        aim = "committed" if self._is_commit_requested else "prepared"
        return errors.DeliveryTimeout(f"it is not known whether transaction {self.id} is {aim}: {error}")

    def _end(self, state: State, *, is_clean: bool = False) -> None:
        is_committed = state == "committed"
        if not (is_committed or is_clean or self._was_prepared):
            # A prepared transaction is known to be stored completely, and the producer may have begun another one.
            self._forget_identity()
        self._state = state
        self._outbox.stop_timers()
        self._on_ended(self, state == "in doubt")
        self._contents.settle_consumers(is_committed=is_committed)
