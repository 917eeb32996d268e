"""Settler: gathers acks, nacks, rejects and extensions into few requests."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from goqueue.client.connection.connection import to_exception
from goqueue.client.connection.tasks import cancel
from goqueue.client.consumer.leases import MAX_LEASES, Lease, LeaseKeeper
from goqueue.model.errors import ClientClosed, GoQueueError, StaleReceipt
from goqueue.model.logging import get_logger
from goqueue.model.runs import offsets_in
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

Done = asyncio.Future[None] | concurrent.futures.Future[None]
Claim = tuple[Lease, Sequence[int]]
_MAX_MESSAGES = 5_000
"""Messages in one request. Claims have at most as many leases and runs."""


class Order(NamedTuple):
    """How messages are to be settled."""

    verb: pb.Verb.ValueType
    delay_ms: int | None = None
    reason: str = ""


ACK = Order(pb.VERB_ACK)
RELEASE = Order(pb.VERB_RELEASE)


class _PendingRequest:
    """The contents of one request, and the futures that wait for it."""

    __slots__ = ("by_lease", "count", "order", "waiting")

    def __init__(self, order: Order) -> None:
        self.order = order
        self.by_lease: dict[Lease, list[int]] = {}
        self.waiting: list[tuple[Done, Sequence[Claim], GoQueueError | None]] = []
        """With the error found so far: a caller that settles many gets it when the others are settled."""
        self.count = 0


class Settler:
    """Calls within one turn of the loop are sent together; each verb has one request in flight."""

    def __init__(
        self,
        settle: Callable[[pb.SettleRequest], Awaitable[pb.SettleResponse]],
        keeper: LeaseKeeper,
        finished: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``finished`` is called with the number of messages settled by their handlers."""
        self._finished = finished
        self._settle = settle
        self._keeper = keeper
        self._gathering: dict[pb.Verb.ValueType, dict[Order, _PendingRequest]] = {}
        """By verb. There may be thousands per verb, since every reason makes a separate order. No entry is empty."""
        self._in_flight: dict[asyncio.Task[None], _PendingRequest] = {}
        self._in_flight_by_verb: Counter[pb.Verb.ValueType] = Counter()
        """Number of requests in flight by verb."""
        self._scheduled = False
        self._closed = False

    def put(self, order: Order, claims: Sequence[Claim], done: Done) -> None:
        """Settle messages. Only on the loop. They leave their leases at once, whatever the result."""
        if self._closed:
            self._refuse(done, ClientClosed("the consumer is closed; what it had was given back"))
            return
        of_verb = self._gathering.setdefault(order.verb, {})
        request = of_verb.get(order)
        if request is None:
            request = of_verb[order] = _PendingRequest(order)
        keeps_lease = order.verb == pb.VERB_EXTEND
        lost = settled = 0
        for lease, offsets in claims:
            still_open = offsets
            if not lease.left.issuperset(offsets):
                still_open = [offset for offset in offsets if offset in lease.left]
                lost += len(offsets) - len(still_open)
            if not still_open:
                continue
            request.by_lease.setdefault(lease, []).extend(still_open)
            request.count += len(still_open)
            settled += len(still_open)
            if not keeps_lease:
                lease.left.difference_update(still_open)
                if not lease.left:
                    self._keeper.drop(lease)
        problem = StaleReceipt(_lost_text(lost)) if lost else None
        if not request.count:
            self._pop(order)
            self._resolve(order, done, problem or StaleReceipt("there is nothing to settle"))
            return
        if not keeps_lease and order.verb != pb.VERB_RELEASE:
            self._finished(settled)
        request.waiting.append((done, claims, problem))
        if request.count >= _MAX_MESSAGES:
            self._send(self._pop(order))
        else:
            self._schedule(order.verb)

    def detach(self, claims: Sequence[Claim]) -> None:
        """Remove messages that are settled elsewhere. Removes all of them or raises."""
        self.check_in_hand(claims)
        for lease, offsets in claims:
            lease.left.difference_update(offsets)
            if not lease.left:
                self._keeper.drop(lease)
        self._finished(sum(len(offsets) for _, offsets in claims))

    def check_in_hand(self, claims: Sequence[Claim]) -> None:
        """Raises if any of the messages is settled or lost."""
        lost = sum(len(set(offsets) - lease.left) for lease, offsets in claims)
        if lost:
            raise StaleReceipt(_lost_text(lost))

    def reattach(self, claims: Sequence[Claim]) -> None:
        """Restore messages that were not settled elsewhere; they are in flight here unless delivered to others."""
        for lease, offsets in claims:
            lease.left.update(offsets)
            self._keeper.add(lease)

    def _pop(self, order: Order) -> _PendingRequest:
        of_verb = self._gathering[order.verb]
        request = of_verb.pop(order)
        if not of_verb:
            del self._gathering[order.verb]
        return request

    def _schedule(self, verb: pb.Verb.ValueType) -> None:
        """Send what is gathered, unless a request of this verb is in flight.

        The next request gathers while one waits for its answer, so requests grow with the load. Two in parallel would
        not finish sooner: the broker answers after its fsync, and one fsync covers all that arrived meanwhile. Verbs
        are separate so that an ack does not wait for a reject, which writes dead letters.
        """
        if not self._scheduled and not self._in_flight_by_verb[verb] and verb in self._gathering:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        self._scheduled = False
        self._send_all([verb for verb in self._gathering if not self._in_flight_by_verb[verb]])

    def _send_all(self, verbs: Iterable[pb.Verb.ValueType]) -> None:
        for verb in verbs:
            for request in self._gathering.pop(verb).values():
                self._send(request)

    def _send(self, request: _PendingRequest) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(request))
        self._in_flight[task] = request
        self._in_flight_by_verb[request.order.verb] += 1
        task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        verb = self._in_flight.pop(task).order.verb
        self._in_flight_by_verb[verb] -= 1
        self._schedule(verb)

    async def _deliver(self, request: _PendingRequest) -> None:
        refused: dict[Lease, tuple[set[int], GoQueueError]] = {}
        try:
            for leases in portions(request.by_lease):
                await self._ask(request, leases, refused)
        except GoQueueError as error:
            self._fail(request, error)
            return
        except BaseException:
            self._fail(request, ClientClosed("the consumer was closed before the broker had answered"))
            raise
        for done, claims, lost in request.waiting:
            self._resolve(request.order, done, lost or _problem(claims, refused))

    async def _ask(
        self, request: _PendingRequest, leases: list[Lease], refused: dict[Lease, tuple[set[int], GoQueueError]]
    ) -> None:
        order = request.order
        response = await self._settle(
            pb.SettleRequest(
                verb=order.verb,
                delay_ms=order.delay_ms,
                reason=order.reason,
                leases=[lease.claim(request.by_lease[lease]) for lease in leases],
            )
        )
        for refusal in response.refusals:
            lease, offsets = leases[refusal.lease], set(offsets_in(list(refusal.runs)))
            if order.verb == pb.VERB_EXTEND:
                # Not those settled here meanwhile: they need no extension, and are not lost.
                offsets &= lease.left | lease.lost
            lease.lose(offsets)
            if not lease.left:
                self._keeper.drop(lease)
            refused[lease] = offsets, to_exception(refusal.error)

    def _resolve(self, order: Order, done: Done, problem: GoQueueError | None) -> None:
        # The message is with the group in either case: its lease may have ended meanwhile.
        is_released_already = order.verb == pb.VERB_RELEASE and isinstance(problem, StaleReceipt)
        if problem is not None and not is_released_already:
            self._refuse(done, problem)
        elif not done.done():
            done.set_result(None)

    def _fail(self, request: _PendingRequest, error: GoQueueError) -> None:
        log.warning("messages not settled", messages=request.count, error=str(error))
        for done, _, _ in request.waiting:
            _set_exception(done, error)

    def _refuse(self, done: Done, error: GoQueueError) -> None:
        log.warning("message not settled", error=str(error))
        _set_exception(done, error)

    def leases(self) -> set[Lease]:
        """Leases in requests that the broker has not answered."""
        gathered = (request for of_verb in self._gathering.values() for request in of_verb.values())
        return {lease for request in (*gathered, *self._in_flight.values()) for lease in request.by_lease}

    async def flush(self) -> None:
        """Return when everything put so far is answered or has failed."""
        while self._gathering or self._in_flight:
            self._send_all(list(self._gathering))
            await asyncio.wait(set(self._in_flight))

    async def flush_within(self, timeout_s: float) -> bool:
        """Whether everything was answered in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            return False
        return True

    async def close(self, timeout_s: float) -> None:
        try:
            if not await self.flush_within(timeout_s):
                log.warning("closed before every message was settled", requests=len(self._in_flight))
        finally:
            self._closed = True
            await cancel(*self._in_flight)


def portions(by_lease: dict[Lease, list[int]]) -> list[list[Lease]]:
    """Leases split into requests of bounded size."""
    portions: list[list[Lease]] = [[]]
    room = _MAX_MESSAGES
    for lease, offsets in by_lease.items():
        if room <= 0 or len(portions[-1]) >= MAX_LEASES:
            portions.append([])
            room = _MAX_MESSAGES
        portions[-1].append(lease)
        room -= len(offsets)
    return portions


def _problem(claims: Sequence[Claim], refused: dict[Lease, tuple[set[int], GoQueueError]]) -> GoQueueError | None:
    if not refused:
        return None
    for lease, offsets in claims:
        found = refused.get(lease)
        if found is not None and not found[0].isdisjoint(offsets):
            return found[1]
    return None


def _set_exception(done: Done, error: GoQueueError) -> None:
    if not done.done():
        done.set_exception(error)
        # Mark the exception as retrieved, so that asyncio does not report it: the warning is in the log.
        done.exception()


def _lost_text(count: int) -> str:
    what = "the message is" if count == 1 else f"{count} of the messages are"
    return f"{what} settled already, or the lease ran out and others have the message"
