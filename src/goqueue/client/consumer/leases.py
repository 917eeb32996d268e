"""Leases of messages delivered to this consumer, and their extension."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from weakref import WeakSet

from goqueue.client.connection.tasks import cancel
from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.model.runs import Runs, offsets_in, to_runs
from goqueue.wire.proto import goqueue_pb2 as pb

log = get_logger(__name__)

_EXTEND_DIVISOR = 3
"""A lease is extended after this fraction of its time, so that two attempts may fail before it expires."""
_MIN_PAUSE_S = 0.01
_SAME_RATIO, _MIN_RATIO = 0.7, 0.1
_MAX_HELD_LEASES = 10_000
"""Most leases that a broker lets a member name when it rejoins."""
MAX_LEASES = 90
"""Leases in one request: each covers up to 1,024 offsets, gaps included, and a broker takes 100,000 at a time."""


class Lease:
    """The messages of one delivery. ``left`` are the offsets that are neither settled nor lost."""

    __slots__ = (
        "__weakref__",
        "_offsets",
        "count",
        "left",
        "lost",
        "number",
        "partition",
        "renewed_at",
        "taken_at",
        "token",
        "topic",
        "user_deadlines",
        "visibility_s",
    )

    def __init__(self, delivery: pb.Delivery, offsets: Iterable[int], visibility_s: float, now: float) -> None:
        self.topic = delivery.topic
        self.partition = delivery.partition
        self.number = delivery.lease
        self.count = delivery.deliveries
        self.token = delivery.token
        self._offsets = sorted(offsets)
        self.left = set(self._offsets)
        self.lost: set[int] = set()
        self.visibility_s = visibility_s
        self.taken_at = self.renewed_at = now
        self.user_deadlines: dict[int, float] = {}
        """Deadlines of messages that the user has extended; an automatic extension must not shorten them."""

    def claim(self, offsets: Iterable[int]) -> pb.LeaseClaim:
        return pb.LeaseClaim(
            topic=self.topic,
            partition=self.partition,
            lease=self.number,
            deliveries=self.count,
            token=self.token,
            runs=self._runs(offsets),
        )

    def _runs(self, offsets: Iterable[int]) -> Runs:
        """Offsets in any order, with repeats. A lease of several lanes has gaps, whose offsets are not part of it."""
        chosen = sorted(set(offsets))
        first = bisect_left(self._offsets, chosen[0])
        if self._offsets[first : first + len(chosen)] == chosen:
            return [chosen[0], chosen[-1] + 1]
        return to_runs(chosen)

    def lose(self, offsets: set[int]) -> None:
        """Mark offsets that the broker no longer counts as this consumer's."""
        self.left -= offsets
        self.lost |= offsets

    def due_at(self) -> float:
        return self.renewed_at + self.visibility_s / _EXTEND_DIVISOR


def granted_s(known_s: float, until_ns: int, now_ns: int) -> float:
    """Visibility timeout of a delivery: the topic's known one, or less if it was changed since.

    The broker's clock may differ from the local one, so the difference of the two is only used as an estimate.
    """
    reported_s = (until_ns - now_ns) / 1e9
    if reported_s >= known_s * _SAME_RATIO:
        return known_s
    return max(float(f"{reported_s:.1g}"), known_s * _MIN_RATIO)


class LeaseKeeper:
    """Extends leases before they expire, in as few requests as possible, while their messages are in flight."""

    def __init__(self, settle: Callable[[pb.SettleRequest], Awaitable[pb.SettleResponse]], max_lease_s: float) -> None:
        self._settle = settle
        self._max_lease_s = max_lease_s
        self._leases: set[Lease] = set()
        self._abandoned: WeakSet[Lease] = WeakSet()
        """Leases that are no longer extended and still have messages in flight."""
        self._has_leases = asyncio.Event()
        self._shortest_s = float("inf")
        self._extending: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: Lease) -> None:
        self._leases.add(lease)
        if lease.visibility_s < self._shortest_s:
            self._shortest_s = lease.visibility_s
        self._has_leases.set()

    def drop(self, lease: Lease) -> None:
        self._leases.discard(lease)
        self._abandoned.discard(lease)

    def open(self) -> set[Lease]:
        """Leases with messages that are neither settled nor lost, as far as known here."""
        return {lease for lease in (*self._leases, *self._abandoned) if lease.left}

    @property
    def messages(self) -> int:
        """Number of messages that are neither settled nor lost."""
        return sum(len(lease.left) for lease in self.open())

    def held(self, settling: set[Lease]) -> list[pb.HeldLease]:
        """Open leases, and those being settled (the broker may not know of it), as a member names them to rejoin."""
        leases = sorted(self.open() | settling, key=lambda each: each.taken_at)
        for lease in leases[_MAX_HELD_LEASES:]:
            # Too many to name them all. The youngest are given up, since the fewest of those are being handled.
            lease.lose(set(lease.left))
            self.drop(lease)
        held = dict.fromkeys((each.topic, each.partition, each.number) for each in leases[:_MAX_HELD_LEASES])
        return [pb.HeldLease(topic=topic, partition=partition, lease=lease) for topic, partition, lease in held]

    def start(self) -> None:
        if self._max_lease_s > 0:
            self._extending = asyncio.create_task(self._extend_periodically())

    async def stop(self) -> None:
        await cancel(self._extending)
        self._leases.clear()
        self._abandoned.clear()

    async def _extend_periodically(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._leases:
                self._has_leases.clear()
                await self._has_leases.wait()
            next_at = min(lease.due_at() for lease in self._leases)
            # A lease added meanwhile is due no sooner than this.
            soon = min(next_at - loop.time(), self._shortest_s / _EXTEND_DIVISOR)
            await asyncio.sleep(max(_MIN_PAUSE_S, soon))
            await self._extend_due(loop.time())

    async def _extend_due(self, now: float) -> None:
        """Extend the leases that are due, and with them those that soon will be."""
        by_time: dict[float, list[Lease]] = {}
        for lease in list(self._leases):
            slack_s = lease.visibility_s / _EXTEND_DIVISOR / 2
            if lease.due_at() - slack_s > now:
                continue
            if now - lease.taken_at > self._max_lease_s:
                log.warning(
                    "a message is not extended any more; others will get it",
                    topic=lease.topic, partition=lease.partition, offset=min(lease.left), held_s=now - lease.taken_at,
                )  # fmt: skip
                self._leases.discard(lease)
                self._abandoned.add(lease)
                continue
            by_time.setdefault(lease.visibility_s, []).append(lease)
        for visibility_s, leases in by_time.items():
            for at in range(0, len(leases), MAX_LEASES):
                await self._extend(leases[at : at + MAX_LEASES], visibility_s)

    async def _extend(self, leases: list[Lease], visibility_s: float) -> None:
        now = asyncio.get_running_loop().time()
        horizon = now + visibility_s
        chosen: list[tuple[Lease, set[int]]] = []
        for lease in leases:
            offsets = (
                {each for each in lease.left if lease.user_deadlines.get(each, 0.0) < horizon}
                if lease.user_deadlines
                else lease.left
            )
            lease.renewed_at = now
            if offsets:
                chosen.append((lease, set(offsets)))
        if not chosen:
            return
        request = pb.SettleRequest(
            verb=pb.VERB_EXTEND,
            delay_ms=int(visibility_s * 1_000),
            leases=[lease.claim(offsets) for lease, offsets in chosen],
        )
        try:
            response = await self._settle(request)
        except GoQueueError as error:
            log.warning("leases could not be extended", leases=len(chosen), error=str(error))
            return
        for refusal in response.refusals:
            lease = chosen[refusal.lease][0]
            # Messages settled meanwhile are refused as well; they are no longer in ``left``.
            lease.lose(set(offsets_in(list(refusal.runs))) & lease.left)
            if not lease.left:
                self._leases.discard(lease)
