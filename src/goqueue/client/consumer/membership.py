"""Group membership that survives broken connections and restarts of the broker."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from goqueue.client.connection.config import ConsumerConfig
from goqueue.client.connection.connection import Connection, to_exception
from goqueue.client.connection.directory import Directory
from goqueue.client.connection.tasks import cancel
from goqueue.client.consumer.subscription import Request, Subscription
from goqueue.model import errors
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

_PAUSE = pb.SubscribeRequest(pause=pb.Pause(paused=True))


@dataclass(frozen=True, slots=True)
class JoinTerms:
    """Parameters of a consumer's join request."""

    group: str
    topics: Sequence[str]
    settings: Mapping[str, str]
    instance_id: str
    config: ConsumerConfig
    initial_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings used only if the group is created."""

    def request(self, member_id: str, held: Iterable[pb.HeldLease], window: int = 0) -> pb.JoinRequest:
        config = self.config
        return pb.JoinRequest(
            group=self.group,
            client_id=config.client_id or f"{socket.gethostname()[:100]}-{os.getpid()}",
            topics=self.topics,
            settings=self.settings,
            session_timeout_ms=config.session_timeout_ms,
            instance_id=self.instance_id,
            member_id=member_id,
            held=held,
            max_in_flight=config.max_in_flight,
            credit=config.prefetch_batches,
            initial_settings=self.initial_settings,
            window=window,
        )


class MembershipListener(Protocol):
    """The consumer of a membership, called on its events. Calls must not block."""

    def take_messages(self, response: pb.PollResponse) -> None: ...

    def joined(self, assignment: pb.Assignment, *, anew: bool) -> None:
        """A stream has begun. ``anew``: with another member id than before, or for the first time."""

    def reassigned(self, assignment: pb.Assignment) -> None: ...

    def held(self) -> Iterable[pb.HeldLease]:
        """Leases that have arrived. Others that the broker has sent become available to all members."""

    def failed(self, error: GoQueueError) -> None:
        """The membership has failed: nothing more will arrive."""


class Membership:
    """Keeps one subscription open; when it breaks, callers wait for the next one."""

    def __init__(self, directory: Directory, terms: JoinTerms, listener: MembershipListener) -> None:
        self._directory = directory
        self._terms = terms
        self._listener = listener
        self.member_id = ""
        self.generation = 0
        """The group's generation, as last received."""
        self._subscription: Subscription | None = None
        self._available = asyncio.Event()
        self._failure: GoQueueError | None = None
        self._subscribing: asyncio.Task[None] | None = None
        self._is_paused = False
        self._window = 0
        self._unary_broker: Connection | None = None
        """The broker whose stream was ended; requests go to it as unary calls from then on."""
        self._request_timeout_s = directory.config.request_timeout_ms / 1_000
        self._close_timeout_s = terms.config.close_timeout_ms / 1_000

    @property
    def is_connected(self) -> bool:
        return self._subscription is not None and not self._subscription.ended.done()

    async def start(self) -> None:
        """Join; give up after the client's connect timeout."""
        await self._directory.retry(self._subscribe, self._directory.config.connect_timeout_ms)
        self._subscribing = asyncio.create_task(self._stay_subscribed())

    async def _subscribe(self) -> None:
        connection = self._directory.preferred_broker()
        try:
            subscription = Subscription(connection, self._take_messages, self._take_assignment)
            held, window = self._listener.held() if self.member_id else (), self._window
            await subscription.join(self._terms.request(self.member_id, held, window), self._request_timeout_s)
        except GoQueueError:
            self._directory.move_to_end(connection)
            raise
        if self._is_paused:
            subscription.send(_PAUSE)
        self._subscription = subscription
        if self._window != window:
            # The window changed during the join, and would not be sent again.
            self.set_window(self._window)
        self._available.set()

    def _take_messages(self, response: pb.PollResponse) -> None:
        self._listener.take_messages(response)

    def _take_assignment(self, assignment: pb.Assignment, first: bool) -> None:
        self.generation = assignment.generation
        if first:
            anew = assignment.member_id != self.member_id
            self.member_id = assignment.member_id
            self._listener.joined(assignment, anew=anew)
        else:
            self._listener.reassigned(assignment)

    async def _stay_subscribed(self) -> None:
        """Subscribe again whenever the stream breaks, until a permanent error."""
        backoff = self._directory.backoff()
        try:
            while True:
                error = await self._wait_for_end()
                if isinstance(error, errors.UnknownMember):
                    # The session has expired: rejoin as a new member.
                    self.member_id = ""
                elif isinstance(error, errors.MemberFenced):
                    # Fenced by an older stream of this same member that the broker processed late, or by another
                    # process; in the latter case the broker repeats the error.
                    pass
                elif not error.retriable:
                    raise error
                pause_s = backoff.next_s(error.retry_after_s)
                log.debug("subscribing again", group=self._terms.group, error=str(error), pause_s=pause_s)
                await asyncio.sleep(pause_s)
                try:
                    await self._subscribe()
                    backoff.reset()
                except GoQueueError as problem:
                    if not problem.retriable and not isinstance(problem, errors.UnknownMember):
                        raise
        except GoQueueError as error:
            self._fail(error)
        except Exception as error:
            log.exception("a consumer cannot go on", group=self._terms.group)
            self._fail(errors.ClientError(f"the consumer cannot go on: {error}"))

    async def _wait_for_end(self) -> GoQueueError:
        subscription = self._subscription
        if subscription is None:
            return errors.BrokerUnavailable("not subscribed")
        error = await asyncio.shield(subscription.ended)
        self._available.clear()
        self._subscription = None
        await subscription.end()
        return error

    def _fail(self, error: GoQueueError) -> None:
        self._failure = error
        # Wake callers that wait for the next subscription, so that they see the failure.
        self._available.set()
        self._listener.failed(error)

    # Requests

    def pause(self) -> None:
        """Stop deliveries in this stream and in later ones. Messages under way may still arrive."""
        self._is_paused = True
        if self._subscription is not None:
            self._subscription.send(_PAUSE)

    def renew(self) -> None:
        """Begin another stream as the same member."""
        if self._subscription is not None:
            self._subscription.connection.note_cut_short()
            self._subscription.abandon()

    def set_window(self, messages: int) -> None:
        """Queues only: set how many messages may be in flight, in this stream and in later ones."""
        self._window = messages
        if self._subscription is not None:
            self._subscription.send(pb.SubscribeRequest(window=pb.Window(messages=messages)))

    def give_credit(self, answers: int) -> None:
        """Allow more deliveries. Skipped while disconnected: a new stream begins with its own credit."""
        if self._subscription is not None:
            self._subscription.send(pb.SubscribeRequest(credit=pb.Credit(answers=answers)))

    async def settle(self, request: pb.SettleRequest) -> pb.SettleResponse:
        """Settle messages, with retries after a broken connection.

        A stale receipt of a repeated nack, reject or release means that the first attempt was carried out, so it is no
        failure. A repeated ack or extension is answered with success by the broker itself.
        """
        request.group = self._terms.group
        response, repeated = await self._request("Settle", request)
        if response.HasField("error"):
            raise to_exception(response.error)
        if repeated and request.verb in (pb.VERB_NACK, pb.VERB_REJECT, pb.VERB_RELEASE):
            refused = [each for each in response.refusals if each.error.code != errors.StaleReceipt.code]
            response = pb.SettleResponse(refusals=refused)
        return response  # type: ignore[no-any-return]

    async def commit(self, request: pb.CommitOffsetsRequest) -> None:
        response, _ = await self._request("CommitOffsets", request)
        if response.HasField("error"):
            raise to_exception(response.error)

    async def _request(self, method: str, request: Request) -> tuple[Any, bool]:
        """The response, and whether the request was sent more than once."""
        repeated = False
        try:
            async with asyncio.timeout(self._terms.config.settle_timeout_ms / 1_000):
                while True:
                    await self._available.wait()
                    if self._failure is not None:
                        raise self._failure
                    if (broker := self._unary_broker) is not None:
                        return await broker.call(getattr(broker.groups, method), request), repeated
                    subscription = self._subscription
                    if subscription is None:
                        raise errors.ClientClosed("the consumer is closed")
                    try:
                        return await subscription.request(request, self._request_timeout_s), repeated
                    except (errors.BrokerUnavailable, errors.ShuttingDown, errors.DeliveryTimeout, errors.MemberFenced):
                        repeated = True
                        # Until ``_stay_subscribed`` has noticed the break, the broken stream is the current one.
                        await asyncio.sleep(0)
        except TimeoutError:
            raise errors.DeliveryTimeout(
                f"the broker did not answer within {self._terms.config.settle_timeout_ms} ms (settle_timeout_ms)"
            ) from None

    # Leaving

    async def end_stream(self) -> Connection | None:
        """End deliveries; settlements are unary calls from then on. Return the broker if it can be reached.

        While a stream is open, messages returned to the group might be delivered here again.
        """
        await cancel(self._subscribing)
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not subscription.ended.done():
            self._unary_broker = subscription.connection
            if await subscription.finish(self._close_timeout_s):
                await self._report_arrived_leases(subscription.connection)
            else:
                # The broker is stalled, so unary calls would not get through either.
                self._unary_broker = None
        self._available.set()
        return self._unary_broker

    async def _report_arrived_leases(self, broker: Connection) -> None:
        """Tell the broker which leases have arrived, so that deliveries lost at the end of the stream do not count as
        attempts.

        A member that rejoins names its leases; with no room for a message, none is sent to it.
        """
        request = self._terms.request(self.member_id, self._listener.held())
        if not request.held:
            return
        # For brokers without support for windows.
        request.max_in_flight = 1
        try:
            subscription = Subscription(broker, self._take_messages, self._take_assignment)
            await subscription.join(request, self._close_timeout_s)
            await subscription.finish(self._close_timeout_s)
        except GoQueueError as error:
            log.debug("what was under way counts as delivered", group=self._terms.group, error=str(error))

    async def leave(self) -> None:
        """Leave the group; unsettled messages are returned to it. A member with an ``instance_id`` stays until its
        session timeout, since it is expected to rejoin."""
        broker = await self.end_stream()
        if broker is not None and not self._terms.instance_id:
            await self._send_leave(broker)
        elif broker is None and self._subscribing is not None and self._failure is None:
            log.warning(
                "left without a word: the broker is away, and keeps this member's partitions until its session ends",
                group=self._terms.group,
                member_id=self.member_id,
            )
        self._unary_broker = None
        self._failure = self._failure or errors.ClientClosed("the consumer is closed")
        self._available.set()

    async def _send_leave(self, broker: Connection) -> None:
        request = pb.LeaveRequest(group=self._terms.group, member_id=self.member_id)
        try:
            await broker.call(broker.groups.Leave, request, timeout_ms=self._terms.config.close_timeout_ms)
        except (errors.UnknownMember, errors.MemberFenced, errors.GroupNotFound):
            # The member is already gone.
            return
        except GoQueueError as error:
            log.warning("left without a word", group=self._terms.group, error=str(error))
