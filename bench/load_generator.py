"""Publishes over HTTP as fast as a broker answers, from a process of its own.

``python -m bench.load_generator '{"host": …}'`` prints one JSON object. Each connection has one request under way at a
time. Answers are read with as little work as will do: this process shares the machine with the broker it measures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import quantiles
from typing import cast

import msgspec
import uvloop

from bench.http_response import ResponseReader
from bench.workload import text_values

_DIFFERENT_BODIES = 8
_DRAIN_TIMEOUT_S = 30.0


class Load(msgspec.Struct, frozen=True):
    """How much to send, and for how long."""

    connections: int
    warm_up_s: float
    rounds: int
    round_s: float
    parse_every: int
    """One answer in this many is decoded whole; of the others, status and number of results are checked."""


class Job(msgspec.Struct, frozen=True):
    """What to publish."""

    host: str
    port: int
    path: str
    messages_per_request: int
    load: Load


class Round(msgspec.Struct, frozen=True):
    """What one round of load came to."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float


class Outcome(msgspec.Struct, frozen=True):
    """The rounds, and how many messages the broker acknowledged in all, warm-up included."""

    rounds: list[Round]
    acknowledged: int
    parsed: int
    cpu_share: float
    """How busy this process was. Near 1, it is the generator that was measured, not the broker."""


class _Result(msgspec.Struct, frozen=True):
    partition: int
    offset: int


class _Answer(msgspec.Struct, frozen=True):
    results: list[_Result]


class Checker:
    """Says of every answer whether it acknowledges the messages that were sent."""

    def __init__(self, expected: int, parse_every: int) -> None:
        self.expected = expected
        self._parse_every = parse_every
        self._decode = msgspec.json.Decoder(_Answer).decode
        self.answers = 0
        self.parsed = 0

    def check(self, status: bytes, body: bytes) -> None:
        if status != b"200" or body.count(b'"offset":') != self.expected or b'"error"' in body:
            raise RuntimeError(f"answer {self.answers} with status {status!r} is not as expected: {body[:300]!r}")
        if self.answers % self._parse_every == 0:
            self.parsed += 1
            results = self._decode(body).results
            if len(results) != self.expected or min(each.offset for each in results) < 0:
                raise RuntimeError(f"answer {self.answers} does not tell where each message is: {body[:300]!r}")
        self.answers += 1


class _Connection(asyncio.Protocol):
    """Sends the next request when the answer to the last one is there, while ``until`` lies ahead."""

    def __init__(self, requests: list[bytes], checker: Checker) -> None:
        self._requests = requests
        self._checker = checker
        self._reader = ResponseReader()
        self._write: Callable[[bytes], None] = _not_connected
        self._next = 0
        self._sent_at = 0.0
        self._until = 0.0
        self._idle: asyncio.Future[None] | None = None
        self.latencies_s: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not descend from asyncio's.
        self._write = cast(asyncio.WriteTransport, transport).write

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("the broker closed the connection"))

    def run(self, until: float) -> asyncio.Future[None]:
        """Keep sending until then; done when the last answer is in."""
        self._until = until
        self._idle = asyncio.get_running_loop().create_future()
        self._send()
        return self._idle

    def _send(self) -> None:
        request = self._requests[self._next]
        self._next = (self._next + 1) % len(self._requests)
        self._sent_at = time.perf_counter()
        self._write(request)

    def data_received(self, data: bytes) -> None:
        try:
            answer = self._reader.feed(data)
            if answer is None:
                return
            now = time.perf_counter()
            self.latencies_s.append(now - self._sent_at)
            self._checker.check(*answer)
        except Exception as error:
            self._fail(error)
            return
        if now < self._until:
            self._send()
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_exception(error)


def _not_connected(_: bytes) -> None:
    raise ConnectionError("there is no connection")


def http_requests(job: Job) -> list[bytes]:
    """Whole requests, headers included, made once."""
    found = []
    values = text_values(_DIFFERENT_BODIES * job.messages_per_request)
    for number in range(_DIFFERENT_BODIES):
        chosen = values[number * job.messages_per_request :][: job.messages_per_request]
        body = json.dumps({"messages": [{"value": value} for value in chosen]}, separators=(",", ":")).encode()
        head = (
            f"POST {job.path} HTTP/1.1\r\nHost: {job.host}:{job.port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        found.append(head.encode() + body)
    return found


async def publish(job: Job) -> Outcome:
    checker = Checker(job.messages_per_request, job.load.parse_every)
    return await generate(job.host, job.port, http_requests(job), checker, job.load)


async def generate(host: str, port: int, requests: list[bytes], checker: Checker, load: Load) -> Outcome:
    loop = asyncio.get_running_loop()
    connections = []
    for number in range(load.connections):
        turned = requests[number % len(requests) :] + requests[: number % len(requests)]
        _, connection = await loop.create_connection(partial(_Connection, turned, checker), host, port)
        connections.append(connection)
    gc.freeze()
    gc.disable()
    await _round(connections, load.warm_up_s)
    started, cpu = time.perf_counter(), time.process_time()
    rounds = [await _round(connections, load.round_s) for _ in range(load.rounds)]
    cpu_share = (time.process_time() - cpu) / (time.perf_counter() - started)
    return Outcome(rounds, checker.answers * checker.expected, checker.parsed, cpu_share)


async def _round(connections: list[_Connection], seconds: float) -> Round:
    for connection in connections:
        connection.latencies_s.clear()
    started = time.perf_counter()
    async with asyncio.timeout(seconds + _DRAIN_TIMEOUT_S):
        await asyncio.gather(*(connection.run(started + seconds) for connection in connections))
    elapsed = time.perf_counter() - started
    latencies_ms = [latency * 1_000 for connection in connections for latency in connection.latencies_s]
    cuts = quantiles(latencies_ms, n=100)
    return Round(len(latencies_ms), elapsed, cuts[49], cuts[98], max(latencies_ms))


if __name__ == "__main__":
    print(msgspec.json.encode(uvloop.run(publish(msgspec.json.decode(sys.argv[1], type=Job)))).decode())
