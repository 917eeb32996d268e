"""Being a member of a group, across broken connections and restarts of the broker."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from goqueue.client.connection.config import ConsumerConfig
from goqueue.client.connection.connection import Connection, to_exception
from goqueue.client.connection.directory import Directory
from goqueue.client.consumer.subscription import Subscription
from goqueue.model.errors import (
    BrokerUnavailable,
    ClientClosed,
    ClientError,
    DeliveryTimeout,
    GoQueueError,
    GroupNotFound,
    MemberFenced,
    ShuttingDown,
    StaleReceipt,
    UnknownMember,
)
from goqueue.model.logging import get_logger
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

_PAUSE = pb.SubscribeRequest(pause=pb.Pause(paused=True))


@dataclass(frozen=True, slots=True)
class JoinTerms:
    """What a consumer asks for when it joins."""

    group: str
    topics: Sequence[str]
    settings: Mapping[str, str]
    instance_id: str
    config: ConsumerConfig
    initial_settings: Mapping[str, str] = field(default_factory=dict)
    """Of a group that is not there yet."""

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


class Host(Protocol):
    """Whose membership it is. Nothing here may wait."""

    def take_messages(self, response: pb.PollResponse) -> None: ...

    def joined(self, assignment: pb.Assignment, *, anew: bool) -> None:
        """A stream has begun. ``anew``: as another member than before, or for the first time."""

    def reassigned(self, assignment: pb.Assignment) -> None: ...

    def held(self) -> Iterable[pb.HeldLease]:
        """What has arrived: all else that the broker has sent was lost on the way, and is to be anyone's again."""

    def failed(self, error: GoQueueError) -> None:
        """It is over: nothing more will come."""


class Membership:
    """Keeps one subscription open; whoever asks for something waits for the next one when it breaks."""

    def __init__(self, directory: Directory, terms: JoinTerms, host: Host) -> None:
        self._directory = directory
        self._terms = terms
        self._host = host
        self._member_id = ""
        self.generation = 0
        """Of the group, as this member was told last."""
        self._subscription: Subscription | None = None
        self._available = asyncio.Event()
        self._failure: GoQueueError | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_paused = False
        self._window = 0
        self._parted_from: Connection | None = None
        """Whose stream was ended here, and who is asked call by call since."""
        self._request_s = directory.config.request_timeout_ms / 1_000
        self._close_s = terms.config.close_timeout_ms / 1_000

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def is_connected(self) -> bool:
        return self._subscription is not None and not self._subscription.ended.done()

    async def start(self) -> None:
        """Join; give up when the client's connect timeout is over."""
        loop = asyncio.get_running_loop()
        backoff = self._directory.backoff()
        deadline = loop.time() + self._directory.config.connect_timeout_ms / 1_000
        while True:
            try:
                await self._subscribe()
                break
            except GoQueueError as error:
                pause_s = backoff.next_s(error.retry_after_s)
                if not error.retriable or loop.time() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)
        self._keeping = asyncio.create_task(self._keep())

    async def _subscribe(self) -> None:
        connection = self._directory.first()
        try:
            subscription = Subscription(connection, self)
            held, window = self._host.held() if self._member_id else (), self._window
            await subscription.join(self._terms.request(self._member_id, held, window), self._request_s)
        except GoQueueError:
            self._directory.pass_over(connection)
            raise
        if self._is_paused:
            subscription.tell(_PAUSE)
        self._subscription = subscription
        if self._window != window:
            # Somebody has begun to wait meanwhile, and nobody would tell of him later.
            self.set_window(self._window)
        self._available.set()

    def take_messages(self, response: pb.PollResponse) -> None:
        self._host.take_messages(response)

    def take_assignment(self, assignment: pb.Assignment, *, first: bool) -> None:
        self.generation = assignment.generation
        if first:
            anew = assignment.member_id != self._member_id
            self._member_id = assignment.member_id
            self._host.joined(assignment, anew=anew)
        else:
            self._host.reassigned(assignment)

    async def _keep(self) -> None:
        """Subscribe again whenever the stream breaks, until that is of no use."""
        backoff = self._directory.backoff()
        try:
            while True:
                error = await self._ended()
                if isinstance(error, UnknownMember):
                    # Silent for too long: it comes as a new member.
                    self._member_id = ""
                elif isinstance(error, MemberFenced):
                    # By an older stream of this very member that the broker took up late, or by another process: then
                    # it says so again.
                    pass
                elif not error.retriable:
                    raise error
                pause_s = backoff.next_s(error.retry_after_s)
                log.debug("subscribing again", group=self._terms.group, error=str(error), pause_s=pause_s)
                await asyncio.sleep(pause_s)
                try:
                    await self._subscribe()
                    backoff.reset()
                except GoQueueError as failure:
                    if not failure.retriable and not isinstance(failure, UnknownMember):
                        raise
        except GoQueueError as error:
            self._fail(error)
        except Exception as error:
            log.exception("a consumer cannot go on", group=self._terms.group)
            self._fail(ClientError(f"the consumer cannot go on: {error}"))

    async def _ended(self) -> GoQueueError:
        subscription = self._subscription
        if subscription is None:
            return BrokerUnavailable("not subscribed")
        error = await asyncio.shield(subscription.ended)
        self._available.clear()
        self._subscription = None
        await subscription.end()
        return error

    def _fail(self, error: GoQueueError) -> None:
        self._failure = error
        # Whoever waits for the next subscription is to see that there is none.
        self._available.set()
        self._host.failed(error)

    # Asking

    def pause(self) -> None:
        """Be sent nothing more, in this stream and in those that follow. What is under way may still come."""
        self._is_paused = True
        if self._subscription is not None:
            self._subscription.tell(_PAUSE)

    def renew(self) -> None:
        """Begin another stream as the same member."""
        if self._subscription is not None:
            self._subscription.connection.was_cut_short()
            self._subscription.abandon()

    def set_window(self, messages: int) -> None:
        """Of a queue: how many messages may be in flight, in this stream and in those that follow."""
        self._window = messages
        if self._subscription is not None:
            self._subscription.tell(pb.SubscribeRequest(window=pb.Window(messages=messages)))

    def give_credit(self, answers: int) -> None:
        """After a break this is not needed: a new stream begins with credit of its own."""
        if self._subscription is not None:
            self._subscription.tell(pb.SubscribeRequest(credit=pb.Credit(answers=answers)))

    async def settle(self, request: pb.SettleRequest) -> pb.SettleResponse:
        """Asked again after a broken connection. What was carried out unseen by then counts as done.

        Of a repeated ack or extension the broker says so itself.
        """
        request.group = self._terms.group
        response, repeated = await self._ask(
            lambda stream: stream.settle(request, self._request_s),
            lambda broker: broker.call(broker.groups.Settle, request),
        )
        if response.HasField("error"):
            raise to_exception(response.error)
        if repeated and request.verb in (pb.VERB_NACK, pb.VERB_REJECT, pb.VERB_RELEASE):
            refused = [each for each in response.refusals if each.error.code != StaleReceipt.code]
            response = pb.SettleResponse(refusals=refused)
        return response  # type: ignore[no-any-return]

    async def commit(self, request: pb.CommitOffsetsRequest) -> None:
        response, _ = await self._ask(
            lambda stream: stream.commit(request, self._request_s),
            lambda broker: broker.call(broker.groups.CommitOffsets, request),
        )
        if response.HasField("error"):
            raise to_exception(response.error)

    async def _ask(
        self, ask: Callable[[Subscription], Awaitable[Any]], call: Callable[[Connection], Awaitable[Any]]
    ) -> tuple[Any, bool]:
        repeated = False
        try:
            async with asyncio.timeout(self._terms.config.settle_timeout_ms / 1_000):
                while True:
                    await self._available.wait()
                    if self._failure is not None:
                        raise self._failure
                    if self._parted_from is not None:
                        return await call(self._parted_from), repeated
                    subscription = self._subscription
                    if subscription is None:
                        raise ClientClosed("the consumer is closed")
                    try:
                        return await ask(subscription), repeated
                    except (BrokerUnavailable, ShuttingDown, DeliveryTimeout, MemberFenced):
                        repeated = True
                        # Until the keeper has seen it as well, the broken stream is still the one at hand.
                        await asyncio.sleep(0)
        except TimeoutError:
            raise DeliveryTimeout(
                f"the broker did not answer within {self._terms.config.settle_timeout_ms} ms (settle_timeout_ms)"
            ) from None

    # Going

    async def end_stream(self) -> bool:
        """Nothing comes from now on; what is still to be settled is settled call by call. Whether the broker is there.

        While a stream is open, whatever is given back may be sent here once more.
        """
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not subscription.ended.done():
            self._parted_from = subscription.connection
            if await subscription.finish(self._close_s):
                await self._disown_what_was_under_way(subscription.connection)
            else:
                # It is stalled, and would not hear anything else either.
                self._parted_from = None
        self._available.set()
        return self._parted_from is not None

    async def _disown_what_was_under_way(self, broker: Connection) -> None:
        """What the broker was about to send when the stream ended has arrived nowhere, and is not to count as a try.

        Whoever comes back names what has arrived. Without room for any message nothing is sent.
        """
        request = self._terms.request(self._member_id, self._host.held())
        if not request.held:
            return
        # For a broker that knows of no window.
        request.max_in_flight = 1
        try:
            subscription = Subscription(broker, self)
            await subscription.join(request, self._close_s)
            await subscription.finish(self._close_s)
        except GoQueueError as error:
            log.debug("what was under way counts as delivered", group=self._terms.group, error=str(error))

    async def leave(self) -> None:
        """What the member has in hand is given back. One with an ``instance_id`` is expected to come back, and stays a
        member until its session is over."""
        is_there = await self.end_stream()
        if is_there and not self._terms.instance_id:
            await self._say_goodbye()
        elif not is_there and self._keeping is not None and self._failure is None:
            log.warning(
                "left without a word: the broker is away, and keeps this member's partitions until its session ends",
                group=self._terms.group,
                member_id=self._member_id,
            )
        self._parted_from = None
        self._failure = self._failure or ClientClosed("the consumer is closed")
        self._available.set()

    async def _say_goodbye(self) -> None:
        broker = self._parted_from
        if broker is None:
            return
        request = pb.LeaveRequest(group=self._terms.group, member_id=self._member_id)
        try:
            await broker.call(broker.groups.Leave, request, timeout_ms=self._terms.config.close_timeout_ms)
        except (UnknownMember, MemberFenced, GroupNotFound):
            # It is gone already.
            return
        except GoQueueError as error:
            log.warning("left without a word", group=self._terms.group, error=str(error))
