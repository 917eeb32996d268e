"""Gathers what users say about messages, and tells the broker in few requests."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from goqueue.client.connection import to_exception
from goqueue.client.leases import MOST_LEASES, Lease, LeaseKeeper
from goqueue.model.errors import ClientClosed, GoQueueError, StaleReceipt
from goqueue.model.logging import get_logger
from goqueue.model.runs import offsets_in
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

Done = asyncio.Future[None] | concurrent.futures.Future[None]
Claim = tuple[Lease, Sequence[int]]
_MOST_UNDER_WAY = 4
"""While so many requests wait for their answers the next one gathers, so requests grow with the load."""
_MOST_MESSAGES = 5_000
"""In one request. Claims are at most so many leases and runs."""


class Order(NamedTuple):
    """What is to be done with messages."""

    verb: pb.Verb.ValueType
    delay_ms: int | None = None
    reason: str = ""


ACK = Order(pb.VERB_ACK)
RELEASE = Order(pb.VERB_RELEASE)


class _Parcel:
    """What one request is going to hold, and who waits for it."""

    __slots__ = ("by_lease", "count", "order", "waiting")

    def __init__(self, order: Order) -> None:
        self.order = order
        self.by_lease: dict[Lease, list[int]] = {}
        self.waiting: list[tuple[Done, Sequence[Claim], GoQueueError | None]] = []
        """With what is wrong already: who settles many hears of it when the others are settled."""
        self.count = 0


class Settler:
    """Calls of one turn of the loop leave together, one request for each verb."""

    def __init__(self, settle: Callable[[pb.SettleRequest], Awaitable[pb.SettleResponse]], keeper: LeaseKeeper) -> None:
        self._settle = settle
        self._keeper = keeper
        self._gathering: dict[Order, _Parcel] = {}
        self._under_way: dict[asyncio.Task[None], _Parcel] = {}
        self._scheduled = False
        self._closed = False

    def put(self, order: Order, claims: Sequence[Claim], done: Done) -> None:
        """Only on the loop. Messages that are settled here belong to nobody from now on, whatever becomes of it."""
        if self._closed:
            self._refuse(done, ClientClosed("the consumer is closed; what it had was given back"))
            return
        parcel = self._gathering.get(order)
        if parcel is None:
            parcel = self._gathering[order] = _Parcel(order)
        keeps = order.verb == pb.VERB_EXTEND
        lost = 0
        for lease, offsets in claims:
            there = offsets
            if not lease.left.issuperset(offsets):
                there = [offset for offset in offsets if offset in lease.left]
                lost += len(offsets) - len(there)
            if not there:
                continue
            parcel.by_lease.setdefault(lease, []).extend(there)
            parcel.count += len(there)
            if not keeps:
                lease.left.difference_update(there)
                if not lease.left:
                    self._keeper.drop(lease)
        problem = StaleReceipt(_lost_text(lost)) if lost else None
        if not parcel.count:
            del self._gathering[order]
            self._refuse(done, problem or StaleReceipt("there is nothing to settle"))
            return
        parcel.waiting.append((done, claims, problem))
        if parcel.count >= _MOST_MESSAGES:
            self._send(self._gathering.pop(order))
        elif not self._scheduled:
            self._schedule()

    def take_out(self, claims: Sequence[Claim]) -> None:
        """Messages that are settled elsewhere: nobody's here from now on. All of them, or this raises."""
        self.check_in_hand(claims)
        for lease, offsets in claims:
            lease.left.difference_update(offsets)
            if not lease.left:
                self._keeper.drop(lease)

    def check_in_hand(self, claims: Sequence[Claim]) -> None:
        """Raises if any of the messages is settled or lost."""
        lost = sum(len(set(offsets) - lease.left) for lease, offsets in claims)
        if lost:
            raise StaleReceipt(_lost_text(lost))

    def put_back(self, claims: Sequence[Claim]) -> None:
        """They were not settled elsewhere after all, and are in hand as before if nobody else has got them."""
        for lease, offsets in claims:
            lease.left.update(offsets)
            self._keeper.add(lease)

    def _schedule(self) -> None:
        if len(self._under_way) < _MOST_UNDER_WAY:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        gathered, self._gathering = self._gathering, {}
        for parcel in gathered.values():
            self._send(parcel)

    def _send(self, parcel: _Parcel) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(parcel))
        self._under_way[task] = parcel
        task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        if self._gathering and not self._scheduled:
            self._schedule()

    async def _deliver(self, parcel: _Parcel) -> None:
        refused: dict[Lease, tuple[set[int], GoQueueError]] = {}
        try:
            for leases in portions(parcel.by_lease):
                await self._ask(parcel, leases, refused)
        except GoQueueError as error:
            self._fail(parcel, error)
            return
        except BaseException:
            self._fail(parcel, ClientClosed("the consumer was closed before the broker had answered"))
            raise
        for done, claims, lost in parcel.waiting:
            self._conclude(done, lost or _problem(claims, refused))

    async def _ask(
        self, parcel: _Parcel, leases: list[Lease], refused: dict[Lease, tuple[set[int], GoQueueError]]
    ) -> None:
        order = parcel.order
        response = await self._settle(
            pb.SettleRequest(
                verb=order.verb,
                delay_ms=order.delay_ms,
                reason=order.reason,
                leases=[lease.claim(parcel.by_lease[lease]) for lease in leases],
            )
        )
        for refusal in response.refusals:
            lease, offsets = leases[refusal.lease], set(offsets_in(list(refusal.runs)))
            lease.lose(offsets)
            refused[lease] = offsets, to_exception(refusal.error)

    def _conclude(self, done: Done, problem: GoQueueError | None) -> None:
        if problem is not None:
            self._refuse(done, problem)
        elif not done.done():
            done.set_result(None)

    def _fail(self, parcel: _Parcel, error: GoQueueError) -> None:
        log.warning("messages not settled", messages=parcel.count, error=str(error))
        for done, _, _ in parcel.waiting:
            _set_exception(done, error)

    def _refuse(self, done: Done, error: GoQueueError) -> None:
        log.warning("message not settled", error=str(error))
        _set_exception(done, error)

    def leases(self) -> set[Lease]:
        """Those that the broker has not answered about."""
        return {lease for parcel in (*self._gathering.values(), *self._under_way.values()) for lease in parcel.by_lease}

    async def flush(self) -> None:
        """Return when everything that was said so far is answered, one way or the other."""
        while self._gathering or self._under_way:
            self._flush()
            await asyncio.wait(set(self._under_way))

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
                log.warning("closed before every message was settled", requests=len(self._under_way))
        finally:
            self._closed = True
            left = set(self._under_way)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


def portions(by_lease: dict[Lease, list[int]]) -> list[list[Lease]]:
    """What one request may hold."""
    portions: list[list[Lease]] = [[]]
    room = _MOST_MESSAGES
    for lease, offsets in by_lease.items():
        if room <= 0 or len(portions[-1]) >= MOST_LEASES:
            portions.append([])
            room = _MOST_MESSAGES
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
        # Seen here, so that one that nobody asked about ends with the warning in the log and nothing else.
        done.exception()


def _lost_text(count: int) -> str:
    what = "the message is" if count == 1 else f"{count} of the messages are"
    return f"{what} settled already, or the lease ran out and others have the message"
