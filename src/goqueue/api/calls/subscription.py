"""One member on one stream: messages and notices go out, settlements and commits come in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from goqueue.api.calls.conversion import to_error
from goqueue.api.calls.failures import shutting_down
from goqueue.api.calls.group_messages import put_deliveries, settle, settle_failed, to_assignment, to_join, to_offsets
from goqueue.broker.operations import Assignment, Caller, Operations, PollBounds
from goqueue.broker.operations.limits import MAX_SETTLED_AT_ONCE, too_many_polled
from goqueue.model.errors import (
    GoQueueError,
    GroupNotFound,
    InvalidRequest,
    MemberFenced,
    RequestTimeout,
    UnknownMember,
)
from goqueue.wire.proto import goqueue_pb2 as pb

_WAIT_MS = 30_000
_MAX_CREDIT = 10_000
_MOST_WAITING = 64
"""Requests that wait for the disk; then no more is read from the stream."""


class Turn(Protocol):
    """A stream's part of the memory for batches that are written and not read by their clients."""

    def narrowed(self, bounds: PollBounds) -> PollBounds:
        """How much to fetch next."""

    def take(self, size_bytes: int) -> bool:
        """Whether a batch of this size may be written now."""

    async def make_room(self, size_bytes: int) -> None:
        """For a batch that had no room and was given back: return when it is worth fetching once more."""

    async def wait(self, size_bytes: int) -> None:
        """Return when a batch of this size may be written."""

    def done(self) -> None:
        """The batch is written, or its stream is over."""


class MemberStream(Protocol):
    """The two directions of a member's stream. Failures are ``GoQueueError``."""

    caller: Caller
    turn: Turn

    async def read(self) -> pb.SubscribeRequest | None:
        """``None``: the member sends nothing more."""

    async def write(self, response: pb.SubscribeResponse) -> None:
        """Return when there is room for the next one."""

    def unexpected(self, error: Exception) -> GoQueueError:
        """Log a defect; the error that the member is told instead."""


class Subscriptions:
    """The streams of all members, over one transport. A member that comes back has left its old one behind."""

    def __init__(self, operations: Operations, max_wait_join_ms: int, max_batch_bytes: int) -> None:
        self.operations = operations
        self.max_wait_join_ms = max_wait_join_ms
        self.max_batch_bytes = max_batch_bytes
        self.by_member: dict[tuple[str, str], asyncio.Task[Any]] = {}


class Subscription:
    """Three things at once, of which the first that ends is the end: taking requests, pushing messages, telling of
    partitions that come and go."""

    def __init__(self, subscriptions: Subscriptions, stream: MemberStream) -> None:
        self._all = subscriptions
        self._operations = subscriptions.operations
        self._stream = stream
        self._caller = stream.caller
        self._turn = stream.turn
        self._group = self._member = ""
        self._mode = "queue"
        self._writing = asyncio.Lock()
        self._slots = asyncio.Semaphore(_MOST_WAITING)
        self._answering: set[asyncio.Task[None]] = set()
        self._credit = asyncio.Semaphore(0)
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def run(self) -> None:
        others, limit_ms = self._all.by_member, self._all.max_wait_join_ms
        try:
            async with asyncio.timeout(limit_ms / 1_000):
                first = await self._stream.read()
        except TimeoutError:
            raise RequestTimeout(f"no join came within {limit_ms} ms (max_call_ms)") from None
        if first is None:
            return
        if first.WhichOneof("request") != "join":
            raise InvalidRequest("the first request of a subscription must be a join")
        await _end_of(others, (first.join.group, first.join.member_id))
        joined = await self._join(first.join)
        await self._write(pb.SubscribeResponse(assignment=to_assignment(joined)))
        who = (self._group, self._member)
        # Another may have come as the same member meanwhile.
        await _end_of(others, who)
        task = others[who] = asyncio.create_task(self._serve(first.join, joined))
        self._operations.groups.attach(self._caller, *who, 1)
        try:
            await task
        except asyncio.CancelledError:
            if task.cancelled() and others.get(who) is not task:
                raise MemberFenced("the member has subscribed once more; this stream is over") from None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        finally:
            self._operations.groups.attach(self._caller, *who, -1)
            if others.get(who) is task:
                del others[who]
                # Whoever polls by himself from now on asks for what he wants each time.
                self._operations.groups.set_window(self._caller, *who, None)

    async def _join(self, request: pb.JoinRequest) -> Assignment:
        limits = self._operations.config.limits
        if request.max_messages > limits.max_poll_messages:
            raise too_many_polled(request.max_messages, limits)
        if len(request.held) > MAX_SETTLED_AT_ONCE:
            raise InvalidRequest(f"{len(request.held)} leases are held; {MAX_SETTLED_AT_ONCE} are allowed")
        groups = self._operations.groups
        self._group = request.group
        joined: Assignment | None = None
        if request.member_id:
            try:
                held = {(each.topic, each.partition, each.lease) for each in request.held}
                joined = await groups.resume(self._caller, request.group, request.member_id, held)
            except (UnknownMember, GroupNotFound):
                # It was away for too long: it comes as a new one.
                joined = None
        if joined is None:
            joined = await groups.join(self._caller, request.group, to_join(request))
        self._member, self._mode = joined.member_id, joined.settings.mode
        window = request.window if request.HasField("window") else None
        groups.set_window(self._caller, self._group, self._member, window)
        self._give(request.credit)
        return joined

    async def _serve(self, request: pb.JoinRequest, joined: Assignment) -> None:
        taking = asyncio.create_task(self._take())
        going_out = [asyncio.create_task(self._push(request)), asyncio.create_task(self._tell(joined.version))]
        try:
            done, _ = await asyncio.wait([taking, *going_out], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if taking.result():
                async with self._writing:
                    # Not in the middle of an answer; and before they find out that there is no such member any more.
                    await _end(*going_out)
                await self._operations.groups.leave(self._caller, self._group, self._member)
                await self._write(pb.SubscribeResponse(left=pb.LeaveResponse()))
        finally:
            await _end(taking, *going_out, *self._answering)
            self._turn.done()

    async def _write(self, response: pb.SubscribeResponse) -> None:
        async with self._writing:
            await self._stream.write(response)

    # In

    async def _take(self) -> bool:
        """Whether the member wants to leave; else its stream has just ended."""
        while (request := await self._stream.read()) is not None:
            match request.WhichOneof("request"):
                case "settle":
                    await self._answer(self._settle, request.settle)
                case "commit":
                    await self._answer(self._commit, request.commit)
                case "credit":
                    self._give(request.credit.answers)
                case "window":
                    self._operations.groups.set_window(self._caller, self._group, self._member, request.window.messages)
                case "pause" if request.pause.paused:
                    self._flowing.clear()
                case "pause":
                    self._flowing.set()
                case "leave":
                    await self._settled()
                    return True
                case _:
                    raise InvalidRequest("a member settles, commits, gives credit, sets its window, pauses or leaves")
        await self._settled()
        return False

    def _give(self, answers: int) -> None:
        if answers > _MAX_CREDIT:
            raise InvalidRequest(f"credit is {answers}; at most {_MAX_CREDIT} answers at a time are allowed")
        for _ in range(answers):
            self._credit.release()

    async def _answer(self, work: Callable[[Any], Coroutine[Any, Any, None]], request: Any) -> None:
        """Begin in the order of arrival; the answer waits for the disk, and the next request does not."""
        await self._slots.acquire()
        task = asyncio.create_task(work(request))
        self._answering.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._slots.release()

    async def _settled(self) -> None:
        while self._answering:
            await asyncio.wait(set(self._answering))

    async def _settle(self, request: pb.SettleRequest) -> None:
        request.group = self._group
        try:
            response = await settle(self._operations, self._caller, request)
        except GoQueueError as error:
            response = settle_failed(request.correlation_id, error)
        except Exception as error:
            response = settle_failed(request.correlation_id, self._stream.unexpected(error))
        await self._write(pb.SubscribeResponse(settled=response))

    async def _commit(self, request: pb.CommitOffsetsRequest) -> None:
        response = pb.CommitOffsetsResponse(correlation_id=request.correlation_id)
        try:
            await self._operations.offsets.commit(
                self._caller, self._group, self._member, to_offsets(request.offsets), request.generation or None
            )
        except GoQueueError as error:
            response.error.CopyFrom(to_error(error))
        except Exception as error:
            response.error.CopyFrom(to_error(self._stream.unexpected(error)))
        await self._write(pb.SubscribeResponse(committed=response))

    # Out

    async def _push(self, request: pb.JoinRequest) -> None:
        bounds = PollBounds(
            request.max_messages or self._operations.config.limits.max_poll_messages,
            self._all.max_batch_bytes,
            _WAIT_MS,
            request.max_in_flight or None,
        )
        queues = self._operations.queues
        while True:
            await self._flowing.wait()
            if self._mode == "stream":
                await self._credit.acquire()
            elif pause_s := queues.pause_s(self._caller, self._group, self._member, bounds):
                await asyncio.sleep(pause_s)
            found = await queues.poll(self._caller, self._group, self._member, self._turn.narrowed(bounds))
            if found:
                try:
                    size = sum(len(each.run.frames) for each in found)
                    if not self._turn.take(size):
                        if self._mode != "stream":
                            queues.give_back(self._caller, self._group, self._member, found)
                            found = []
                            await self._turn.make_room(size)
                            continue
                        # There is no way back for what a stream has passed.
                        await self._turn.wait(size)
                    response = pb.SubscribeResponse()
                    put_deliveries(response.messages, found)
                    async with self._writing:
                        # A write that has begun may arrive although it is cut short here, so this is not given back:
                        # a member that comes back names what has arrived, and the others' sessions end.
                        found = []
                        await self._stream.write(response)
                except BaseException:
                    queues.give_back(self._caller, self._group, self._member, found)
                    raise
            elif self._operations.is_stopping:
                raise shutting_down()
            elif self._mode == "stream":
                self._credit.release()
            self._turn.done()

    async def _tell(self, seen: int) -> None:
        while True:
            news = await self._operations.groups.next_assignment(self._caller, self._group, self._member, seen)
            seen = news.version
            await self._write(pb.SubscribeResponse(assignment=to_assignment(news)))


async def _end_of(others: dict[tuple[str, str], asyncio.Task[Any]], who: tuple[str, str]) -> None:
    """End a member's other stream. It is out of ``others`` first: by that it knows that it was replaced."""
    while (task := others.pop(who, None)) is not None:
        await _end(task)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
