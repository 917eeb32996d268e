"""What is measured, and what a client of any system has to be able to do for it."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bench.workload import BATCH_MESSAGES

ACK_EVERY = 100
"""Queue consumers take up to so many at a time, and acknowledge each of them."""

_TIMER_S = 0.001
_DUE = struct.Struct("<d")
_DIFFERENT_VALUES = 8 * BATCH_MESSAGES
_SEED = 7


class Durability(StrEnum):
    """When a system says that it has a message. Figures are compared within one of these, never across."""

    FSYNC = "fsync"
    """When it is on the disk."""
    PAGE_CACHE = "page cache"
    """When the operating system has it; the disk follows when the system's default says so."""


class Work(StrEnum):
    """One thing to do. Each is done with messages of every size."""

    PUBLISH = "batched publish"
    SINGLE = "single awaited publish"
    BACKLOG = "backlog consumption"
    LATENCY = "end-to-end latency"
    QUEUE = "queue round trip"
    DELAY = "delayed delivery"


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of each. Rates are of messages a second."""

    publish_s: float = 2.0
    single_s: float = 1.5
    queue_messages: int = 100_000
    paced_rate: int = 1_000
    paced_s: float = 3.0
    delayed_messages: int = 500
    delay_ms: int = 1_000


class Pacer:
    """Messages that are due at a steady pace, and when they arrived.

    Each carries the instant that it was due at, not the one that it was sent at: a system that holds up its sender
    is not spared the wait of those that had to stand in line (coordinated omission).
    """

    def __init__(self, count: int, rate: float, size: int, *, delay_ms: int = 0) -> None:
        self.count = count
        self.delay_ms = delay_ms
        self.waits_ms: list[float] = []
        self._between_s = 1 / rate
        self._filling = bytes(size - _DUE.size)
        self._begun = time.time()

    def begin(self) -> None:
        """From here on messages are due."""
        self._begun = time.time()

    def sends(self) -> Iterator[tuple[float, bytes]]:
        """How many seconds to wait before the next (0 or less: it is late already), and its value."""
        for number in range(self.count):
            due = self._begun + number * self._between_s
            yield due - time.time(), _DUE.pack(due + self.delay_ms / 1_000) + self._filling

    async def sleep(self, wait_s: float) -> None:
        """Sleep on an event loop, whose own timers count whole milliseconds, as exactly as a thread would."""
        until = time.perf_counter() + wait_s
        if wait_s > _TIMER_S:
            await asyncio.sleep(wait_s - _TIMER_S)
        while time.perf_counter() < until:  # noqa: ASYNC110
            await asyncio.sleep(0)

    def arrived(self, value: bytes) -> bool:
        """Note a message; true when all of them are here."""
        self.waits_ms.append((time.time() - _DUE.unpack_from(value)[0]) * 1_000)
        return len(self.waits_ms) >= self.count


class PeerClient(Protocol):
    """A system's own client, used as its documentation says to use it for speed.

    Every method raises if anything that was handed over got lost or refused. ``close`` is called at the end.
    """

    def create(self, topic: str) -> None:
        """Make what ``topic`` needs to be published to, consumed as a log and as a queue; ready when it returns."""

    def publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        """Publish all batches, as many under way as is good for this system; every message is acknowledged when it
        returns. The iterator ends when the time is up."""

    def singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        """One message at a time, each acknowledged before the next: how many milliseconds each took."""

    def consume(self, topic: str, count: int) -> int:
        """Read ``count`` messages from the beginning of ``topic`` as a log; the sum of the lengths of their values."""

    def take(self, topic: str, count: int) -> int:
        """Take ``count`` messages as a worker of a queue, acknowledge each, return when every acknowledgement has
        taken effect; the sum of the lengths of their values."""

    def paced(self, topic: str, pacer: Pacer) -> None:
        """Consume ``topic`` from its end; once that stands, ``pacer.begin()``, send what the pacer says when it says
        so (with its delay, if it has one) without waiting for acknowledgements, tell it what arrives, and return when
        everything has arrived."""

    def close(self) -> None:
        """Let go of connections."""


def waits_of(send: Callable[[], object], seconds: float) -> list[float]:
    """Send again and again, each time when the one before is acknowledged: how many milliseconds each took."""
    waits: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        send()
        waits.append((time.perf_counter() - began) * 1_000)
    return waits


async def awaited_waits_of(send: Callable[[], Awaitable[object]], seconds: float) -> list[float]:
    """The same on an event loop."""
    waits: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        await send()
        waits.append((time.perf_counter() - began) * 1_000)
    return waits


def values(size: int) -> list[list[bytes]]:
    """A few batches of values that differ."""
    chance = random.Random(_SEED)
    made = [chance.randbytes(size) for _ in range(_DIFFERENT_VALUES)]
    return [made[start : start + BATCH_MESSAGES] for start in range(0, len(made), BATCH_MESSAGES)]


class Supply:
    """Batches until the time is up or enough are given, and how many messages that was."""

    def __init__(self, batches: Sequence[Sequence[bytes]], *, seconds: float | None = None, messages: int = 0) -> None:
        self._batches = batches
        self._seconds = seconds
        self._messages = messages
        self.given = 0

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        until = None if self._seconds is None else time.perf_counter() + self._seconds
        number = 0
        while (time.perf_counter() < until) if until is not None else (self.given < self._messages):
            batch = self._batches[number % len(self._batches)]
            self.given += len(batch)
            number += 1
            yield batch
