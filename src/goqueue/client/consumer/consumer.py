"""Consumer as a member of a group: receive, settle, commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Self

from goqueue.client.connection.directory import Directory
from goqueue.client.connection.instants import Span
from goqueue.client.consumer.delivery import AsyncReceivedMessage, claims_of
from goqueue.client.consumer.fetch_ahead import FetchAhead
from goqueue.client.consumer.handler_result import to_nack, to_reject, to_seconds
from goqueue.client.consumer.leases import LeaseKeeper
from goqueue.client.consumer.membership import JoinTerms, Membership
from goqueue.client.consumer.offset_commits import OffsetCommits
from goqueue.client.consumer.queue_source import AsyncDeliveryContext, QueueSource, ThreadDeliveryContext
from goqueue.client.consumer.reader import Record
from goqueue.client.consumer.rebalance import OnPartitions, Rebalancer
from goqueue.client.consumer.receive_buffer import ReceiveBuffer, ReceivedBatch
from goqueue.client.consumer.settler import ACK, RELEASE, Claim, Order, Settler
from goqueue.client.consumer.stream_source import Progress, StreamArrivals, StreamBatch, TopicPartition
from goqueue.client.consumer.worker import Handler, Worker, stopping_on_signals
from goqueue.client.messages.serializers import Deserializer
from goqueue.model.errors import ClientClosed, GoQueueError, InvalidRequest
from goqueue.model.logging import get_logger
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)


class AsyncConsumer:
    """Made by ``AsyncClient.consumer``. Joins the group at the start of its context or on first use, and leaves it at
    the end or on ``close``.

    In a group of mode ``queue`` it receives messages that are settled one by one or in bulk. In a ``stream`` it
    receives records in offset order within each partition, and commits offsets.
    """

    def __init__(
        self,
        directory: Directory,
        terms: JoinTerms,
        *,
        deserializer: Deserializer | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        threaded: bool = False,
        on_closed: Callable[[AsyncConsumer], None] = lambda _: None,
    ) -> None:
        self._directory = directory
        self._terms = terms
        self._config = terms.config
        self._threaded = threaded
        self._deserializer = deserializer
        self._membership = Membership(directory, terms, self)
        self._progress = Progress()
        self._keeper = LeaseKeeper(self._membership.settle, terms.config.max_lease_ms / 1_000)
        self._fetching = FetchAhead(
            terms.config.max_in_flight, self._keeper, self._membership.set_window, self._return_messages
        )
        self._buffer = ReceiveBuffer(self._progress, deserializer, self._batch_consumed, self._fetching)
        self._commits = OffsetCommits(
            terms, self._membership, self._buffer, self._progress, lambda each: self._rebalancer.owns(each)
        )
        self._rebalancer = Rebalancer(
            self._buffer, self._progress, on_assigned, on_revoked, self._commits.commit_finished
        )
        self._settler = Settler(self._membership.settle, self._keeper, self._fetching.finished)
        self._queue_source: QueueSource | None = None
        self._is_stream: bool | None = None
        self._arrivals = StreamArrivals()
        self._starting: asyncio.Task[None] | None = None
        self._is_started = False
        self._returns_arrivals = False
        """Whether arriving messages are returned to the group at once."""
        self._is_replacing_stream = False
        """Whether a stream from another position is about to replace this one, whose messages are discarded."""
        self._closing: asyncio.Task[None] | None = None
        self._on_closed = on_closed

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        # At a regular end of the block, the last record has been handled as well.
        await self._close_once(all_finished=kind is None)

    # Start and stop

    async def start(self) -> None:
        """Join the group; return after ``on_assigned`` has returned. Called implicitly on first use.

        After an error, the next call tries to join again.
        """
        if self._closing is not None:
            raise ClientClosed("the consumer is closed")
        if self._starting is None or (self._starting.done() and not self._is_started):
            self._starting = asyncio.create_task(self._start())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        kind = ThreadDeliveryContext if self._threaded else AsyncDeliveryContext
        context = kind(self._settler, self._deserializer, self._terms.group, self._directory)
        self._queue_source = QueueSource(self._keeper, self._settler, context)
        await self._queue_source.learn_visibility(self._directory, self._terms.topics)
        await self._membership.start()
        self._rebalancer.start()
        self._keeper.start()
        if self._is_stream:
            self._commits.start()
        else:
            self._fetching.start(self._buffer)
        await self._rebalancer.up_to_date.wait()
        self._is_started = True

    async def close(self) -> None:
        """Wait for pending acks, commit finished offsets and leave the group; unhandled messages are returned to it.

        With an ``instance_id`` the member stays in the group: a consumer that joins with the same id within the session
        timeout continues.
        """
        await self._close_once(all_finished=False)

    async def _close_once(self, *, all_finished: bool) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(all_finished=all_finished))
        await asyncio.shield(self._closing)

    async def _close(self, *, all_finished: bool) -> None:
        self._buffer.end()
        self._membership.pause()
        await self._fetching.stop()
        timeout_s, in_time = self._config.close_timeout_ms / 1_000, False
        try:
            if self._starting is not None:
                if not self._starting.done():
                    self._starting.cancel()
                await asyncio.gather(self._starting, return_exceptions=True)
            in_time = await self._settler.flush_within(timeout_s)
            # Keep what still arrives until the stream has ended: returned earlier, it might be delivered here again.
            self._returns_arrivals = False
            is_there = not self._is_stream and await self._membership.end_stream() is not None
            if is_there:
                self._return_messages(self._buffer.take_back())
            await self._rebalancer.stop()
            if self._is_stream:
                await self._commits.stop(all_finished=all_finished)
            if self._terms.instance_id and is_there:
                # Until the session ends the broker would deliver these to no other member.
                self._release([(lease, sorted(lease.left)) for lease in self._keeper.open()])
        finally:
            await self._settler.close(timeout_s if in_time else 0)
            await self._keeper.stop()
            await self._membership.leave()
            self._on_closed(self)

    @property
    def group(self) -> str:
        return self._terms.group

    @property
    def member_id(self) -> str:
        """Id of this member in the group; empty before it has joined."""
        return self._membership.member_id

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions assigned to this consumer."""
        return sorted(self._rebalancer.assigned)

    # Receiving

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        for record in self._buffer.records:
            self._buffer.last = record
            return record
        record = await self._next()
        if record is None:
            raise StopAsyncIteration
        return record

    async def _next(self) -> Any:
        """``None`` when the consumer is closed."""
        if self._closing is not None:
            return None
        if not self._is_started:
            await self.start()
        return await self._buffer.next()

    async def poll(self, max_messages: int = 100, timeout: Span | None = None) -> list[Any]:
        """Up to ``max_messages`` messages; waits for the first. Empty at the timeout, or when the consumer stops."""
        if max_messages < 1:
            raise InvalidRequest(f"max_messages is {max_messages}; ask for 1 or more")
        limit_s = None if timeout is None else to_seconds(timeout)
        if self._closing is not None:
            raise ClientClosed("the consumer is closed")
        if not self._is_started:
            await self.start()
        # Yield to other tasks even if messages are always buffered.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(limit_s):
                return await self._buffer.take(max_messages)
        except TimeoutError:
            return []

    async def batches(self, max_messages: int = 100) -> AsyncGenerator[list[Any], None]:
        """``poll`` repeatedly, until the consumer is closed."""
        while self._closing is None and (batch := await self.poll(max_messages)):
            yield batch

    async def run(
        self, handler: Handler, *, concurrency: int = 16, shutdown_timeout: Span = 30.0, signals: bool = True
    ) -> None:
        """Handle messages until SIGTERM or SIGINT, or until ``close``; see ``AsyncClient.worker``."""
        shutdown_timeout_s = to_seconds(shutdown_timeout)
        worker = Worker(handler, concurrency, self._next, self._settle)
        with stopping_on_signals(self.stop_taking) if signals else nullcontext():
            try:
                if not worker.is_async:
                    self._use_threads()
                self._fetching.pace.takers = concurrency
                await self.start()
                if self._is_stream:
                    raise InvalidRequest("a worker handles messages of a queue in any order; iterate over a stream")
                await worker.run(shutdown_timeout_s)
            finally:
                await self.close()

    def _use_threads(self) -> None:
        """Prepare for messages to be settled in other threads."""
        if self._starting is not None and not self._threaded:
            raise InvalidRequest("a handler that is no coroutine function needs a consumer that was not used before")
        self._threaded = True

    def stop_taking(self) -> None:
        """End iteration. Messages not yet handed out are returned to the group at once; others can be settled until
        ``close``."""
        self._buffer.end()
        self._membership.pause()
        if not self._is_stream:
            self._returns_arrivals = True
            self._return_messages(self._buffer.take_back())

    # Settling

    def ack(self, messages: Iterable[AsyncReceivedMessage]) -> asyncio.Future[None]:
        """Ack all of them in one request. If some were lost, the future fails and those messages have ``lost`` set."""
        return self._settle(ACK, messages)

    def nack(
        self, messages: Iterable[AsyncReceivedMessage], delay: Span | None = None, reason: str = ""
    ) -> asyncio.Future[None]:
        """Nack all of them in one request; see ``AsyncReceivedMessage.nack``."""
        return self._settle(to_nack(delay, reason), messages)

    def reject(self, messages: Iterable[AsyncReceivedMessage], reason: str = "") -> asyncio.Future[None]:
        """Reject all of them in one request; see ``AsyncReceivedMessage.reject``."""
        return self._settle(to_reject(reason), messages)

    def _settle(self, order: Order, messages: Iterable[Any]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        claims = claims_of(messages)
        if claims:
            self._settler.put(order, claims, done)
        else:
            done.set_result(None)
        return done

    def _return_messages(self, messages: list[Any]) -> None:
        self._release(claims_of(messages))

    def _release(self, claims: list[Claim]) -> None:
        """Return messages to the group without counting them as handled."""
        if claims:
            self._settler.put(RELEASE, claims, asyncio.get_running_loop().create_future())

    # Committing

    async def commit(self, record: Record | None = None) -> None:
        """Streams only: commit everything handed out so far, or everything up to ``record`` in its partition."""
        self._check_not_queue("its messages are acked, not committed")
        await self._commits.commit(self._commits.positions(record))

    def _positions_for_transaction(self, record: Record | None) -> dict[TopicPartition, int]:
        self._check_not_queue("its messages are acked, not committed")
        return self._commits.positions_for_transaction(record)

    def _check_not_queue(self, instead: str) -> None:
        if self._is_stream is False:
            raise InvalidRequest(f"group {self._terms.group!r} is a queue: {instead}")

    def rewind(self) -> None:
        """Streams only: read again from the committed offsets, so that messages handed out since then come again."""
        self._check_not_queue("what is not acked is delivered again")
        self._read_again(self._rebalancer.assigned | self._rebalancer.revoking)

    def _read_again(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Restart some partitions at their committed offsets.

        This takes a new stream: messages under way in the current one were sent from the old position. All other
        partitions continue where they are.
        """
        if self._closing is not None or not self._is_stream:
            return
        self._buffer.drop(topic_partitions)
        self._progress.forget(topic_partitions)
        self._arrivals.forget(topic_partitions)
        self._is_replacing_stream = True
        self._membership.renew()

    # Callbacks of the membership

    def joined(self, assignment: pb.Assignment, *, anew: bool) -> None:
        """A stream has begun: the first one, or one after a reconnect."""
        self._is_stream = assignment.settings["mode"] == "stream"
        self._is_replacing_stream = False
        if self._queue_source is not None:
            self._queue_source.use_group_settings(assignment.settings, self._terms.topics)
        if anew:
            # Messages of an earlier member that were not handed out are delivered again, to any member.
            self._buffer.drop()
            self._progress.forget(self._arrivals.forget_all())
        else:
            self._buffer.forget_answers()
        # A broker that does not know how much of the last stream arrived begins at the committed offsets.
        self._arrivals.resume()
        self._rebalancer.update(assignment)

    def reassigned(self, assignment: pb.Assignment) -> None:
        """The group's assignment has changed."""
        self._rebalancer.update(assignment)
        self._arrivals.keep_only(self._rebalancer.owns)

    def held(self) -> list[pb.HeldLease]:
        """Open leases, including those being settled: the broker may not have received the settlement."""
        return self._keeper.held(self._settler.leases())

    def take_messages(self, response: pb.PollResponse) -> None:
        """Deliveries have arrived."""
        if self._is_stream:
            self._take_stream_batches(response.deliveries)
        elif self._queue_source is not None:
            for batch in [self._queue_source.open(delivery) for delivery in response.deliveries]:
                if self._returns_arrivals:
                    self._return_messages(list(batch.open(None)))
                else:
                    self._buffer.put(batch)

    def _take_stream_batches(self, deliveries: Sequence[pb.Delivery]) -> None:
        if self._is_replacing_stream:
            return
        last = len(deliveries) - 1
        for number, delivery in enumerate(deliveries):
            batch = StreamBatch(delivery, ends_answer=number == last)
            if self._arrivals.takes(batch):
                self._buffer.put(batch)
            else:
                self._batch_consumed(batch)

    def failed(self, error: GoQueueError) -> None:
        """The membership has ended with a permanent error."""
        self._buffer.fail(error)

    def _batch_consumed(self, batch: ReceivedBatch) -> None:
        if batch.ends_answer:
            self._membership.give_credit(1)
