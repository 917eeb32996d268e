"""The work through redis-py, with hiredis to parse what the server says.

Commands are pipelined on a connection: many are sent before the first answer is read, and the server keeps answers for
as long as nobody reads them. The package's pipeline objects do the same, but cost the client more than half as much
again, and wait for all answers before they send more.

A batch is one unit for the server, which so waits for the disk once for it: left to itself it does so after every
16 KiB that it read. Small values go as one call of a script, which saves the client most of its work; larger ones as a
transaction, because a script copies them once more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis

from bench.peers.work import ACK_EVERY, Durability, Pacer, waits_of

_BATCHES_UNDER_WAY = 4
_READ_AT_ONCE = 1_000
_TAKES_UNDER_WAY = 10
_PATIENCE_S = 240
_GROUP = "workers"
_FIELD = b"v"
_SMALL_BYTES = 400
_ADD_ALL = """
for number = 2, #ARGV do redis.call('XADD', KEYS[1], '*', ARGV[1], ARGV[number]) end
return #ARGV - 1
"""

_Command = tuple[str | bytes | int, ...]
_Entry = tuple[bytes, tuple[bytes, bytes]]
"""The id of a message, and its one field with the value."""


class _Line:
    """A connection on which answers come in the order of the commands."""

    def __init__(self, pool: Any) -> None:
        self._connection = pool.get_connection()

    def send(self, *commands: _Command) -> None:
        self._connection.send_packed_command(self._connection.pack_commands(commands))

    def answer(self) -> Any:
        """The answer to the oldest command that has none; an error is raised."""
        return self._connection.read_response()

    def ask(self, *command: str | bytes | int) -> Any:
        self.send(command)
        return self.answer()


class RedisClient:
    """A topic is a stream of the same name; each message is an entry with one field."""

    def __init__(self, address: str) -> None:
        self._pool = redis.ConnectionPool.from_url(address, protocol=2, socket_timeout=_PATIENCE_S)
        self._line = _Line(self._pool)
        self._add_all: bytes = self._line.ask("SCRIPT", "LOAD", _ADD_ALL)

    def create(self, topic: str) -> None:
        self._line.ask("XGROUP", "CREATE", topic, _GROUP, "0", "MKSTREAM")

    def publish(self, topic: str, batches: Iterator[Sequence[bytes]]) -> None:
        under_way: deque[tuple[bool, int]] = deque()
        for batch in batches:
            small = len(batch[0]) < _SMALL_BYTES
            if small:
                self._line.send(("EVALSHA", self._add_all, 1, topic, _FIELD, *batch))
            else:
                adds: list[_Command] = [("XADD", topic, "*", _FIELD, value) for value in batch]
                self._line.send(("MULTI",), *adds, ("EXEC",))
            under_way.append((small, len(batch)))
            if len(under_way) >= _BATCHES_UNDER_WAY:
                self._read_batch_answer(*under_way.popleft())
        while under_way:
            self._read_batch_answer(*under_way.popleft())

    def _read_batch_answer(self, small: bool, count: int) -> None:
        if small:
            added = self._line.answer()
        else:
            # That it began, and that each was queued; what came of them is the answer to EXEC.
            self._read_answers(1 + count)
            added = sum([isinstance(each, bytes) for each in self._line.answer()])
        if added != count:
            raise RuntimeError(f"{added} of {count} messages were added")

    def _read_answers(self, count: int) -> None:
        for _ in range(count):
            self._line.answer()

    def singles(self, topic: str, value: bytes, seconds: float) -> list[float]:
        return waits_of(lambda: self._line.ask("XADD", topic, "*", _FIELD, value), seconds)

    def consume(self, topic: str, count: int) -> int:
        total = read = 0
        self._line.send(("XRANGE", topic, "-", "+", "COUNT", _READ_AT_ONCE))
        while entries := self._line.answer():
            # The server looks for the next ones while these are counted.
            self._line.send(("XRANGE", topic, b"(" + entries[-1][0], "+", "COUNT", _READ_AT_ONCE))
            total += _length(entries)
            read += len(entries)
        if read != count:
            raise RuntimeError(f"read {read} of {count} messages")
        return total

    def take(self, topic: str, count: int) -> int:
        total = taken = 0
        take: _Command = ("XREADGROUP", "GROUP", _GROUP, "worker", "COUNT", ACK_EVERY, "STREAMS", topic, ">")
        self._line.send(*[take] * _TAKES_UNDER_WAY)
        # What answers are to come: of acks, how many messages they are for; of takes, nothing.
        expected = deque[int | None]([None] * _TAKES_UNDER_WAY)
        while expected:
            acked, answer = expected.popleft(), self._line.answer()
            if acked is not None:
                if answer != acked:
                    raise RuntimeError(f"of {acked} acknowledged messages {answer} were in flight")
            elif answer:
                entries: list[_Entry] = answer[0][1]
                self._line.send(("XACK", topic, _GROUP, *[each for each, _ in entries]), take)
                expected += (len(entries), None)
                total += _length(entries)
                taken += len(entries)
        in_flight = self._line.ask("XPENDING", topic, _GROUP)[0]
        if taken != count or in_flight:
            raise RuntimeError(f"took {taken} of {count} messages, {in_flight} are still in flight")
        return total

    def paced(self, topic: str, pacer: Pacer) -> None:
        with ThreadPoolExecutor(1) as threads:
            # The stream is empty: its beginning is its end, and whoever reads on from there misses nothing.
            watching = threads.submit(_watch, _Line(self._pool), topic, pacer)
            pacer.begin()
            for wait_s, value in pacer.sends():
                if wait_s > 0:
                    time.sleep(wait_s)
                self._line.send(("XADD", topic, "*", _FIELD, value))
            self._read_answers(pacer.count)
            watching.result(_PATIENCE_S)

    def close(self) -> None:
        self._pool.disconnect()


def _watch(line: _Line, topic: str, pacer: Pacer) -> None:
    last: str | bytes = "0"
    while True:
        answer = line.ask("XREAD", "COUNT", _READ_AT_ONCE, "BLOCK", _PATIENCE_S * 500, "STREAMS", topic, last)
        if not answer:
            raise RuntimeError(f"nothing came to {topic} any more")
        entries: list[_Entry] = answer[0][1]
        last = entries[-1][0]
        for _, (_, value) in entries:
            if pacer.arrived(value):
                return


def _length(entries: Sequence[_Entry]) -> int:
    return sum([len(fields[1]) for _, fields in entries])


def connect(address: str, durability: Durability) -> RedisClient:
    return RedisClient(address)
