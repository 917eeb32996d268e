"""Publishers that keep a ledger of what was acknowledged, for brokers that are killed under them."""

from __future__ import annotations

import http.client
import json
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

import numpy as np

from goqueue.wire.batch import FrameRun
from goqueue.wire.frame import encode_frame

FRAMES = "application/octet-stream"
TIMEOUT_S = 30.0
Place = tuple[str, int, int]


class Gone(Exception):
    """The broker went away: whether the last request took effect is not known."""


class Connection:
    """One keep-alive connection; any loss of it is ``Gone``."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def send(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        try:
            self._connection.request(method, path, body, {"Content-Type": kind, "Accept": kind})
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Gone(repr(error)) from error
        assert 200 <= answer.status < 300, f"{method} {path}: {answer.status} {content[:300]!r}"
        return content

    def json(self, method: str, path: str, body: Any = None) -> Any:
        return json.loads(self.send(method, path, None if body is None else json.dumps(body).encode()))

    def close(self) -> None:
        self._connection.close()


def content_of(name: str, size: int) -> str:
    """A text that begins with ``name`` and whose every character follows from it, so that half of it is noticed."""
    filler = blake2b(name.encode(), digest_size=32).hexdigest()
    return (f"{name} " + filler * (size // len(filler) + 1))[: len(name) + 1 + size]


@dataclass
class Ledger:
    """What was sent, and what was acknowledged where."""

    acknowledged: dict[Place, str] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    acks: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def note_sent(self, values: list[str]) -> None:
        with self._changed:
            self.sent.update(values)

    def note_acknowledged(self, found: dict[Place, str]) -> None:
        with self._changed:
            assert not found.keys() & self.acknowledged.keys(), "one place was given out twice"
            self.acknowledged |= found
            self.acks += len(found)
            self._changed.notify_all()

    def wait_for_acks(self, more: int) -> None:
        with self._changed:
            target = self.acks + more
            assert self._changed.wait_for(lambda: self.acks >= target, TIMEOUT_S), "the load stands still"


class Publishers:
    """Threads that publish until the broker is gone."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self._ledger = ledger
        self._seed = seed
        self._numbers: defaultdict[int, int] = defaultdict(int)
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, port: int, writers: list[Callable[[Connection, Callable[[int], list[str]], Random], None]]) -> None:
        for who, write in enumerate(writers):
            thread = threading.Thread(target=self._run, args=(port, who, write), daemon=True)
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), "a publisher hangs"
        self._threads.clear()
        if self.errors:
            raise self.errors[0]

    def _run(self, port: int, who: int, write: Callable[..., None]) -> None:
        rng = Random(f"{self._seed} {who} {self._numbers[who]}")

        def values(count: int) -> list[str]:
            first = self._numbers[who]
            self._numbers[who] += count
            made = [content_of(f"{who}-{number:08d}", rng.randrange(400)) for number in range(first, first + count)]
            self._ledger.note_sent(made)
            return made

        connection = Connection(port)
        try:
            while True:
                write(connection, values, rng)
        except Gone:
            pass
        except BaseException as error:
            self.errors.append(error)
        finally:
            connection.close()


def json_writer(ledger: Ledger, topic: str, most: int, *, keys: int = 0) -> Callable[..., None]:
    """Publishes up to ``most`` messages at once, in JSON."""

    def write(connection: Connection, values: Callable[[int], list[str]], rng: Random) -> None:
        made = values(rng.randint(1, most))
        messages: list[dict[str, str]] = [{"value": value} for value in made]
        if keys:
            for message in messages:
                message["key"] = f"k{rng.randrange(keys)}"
        answer = connection.json("POST", f"/topics/{topic}/messages", {"messages": messages})
        results = answer["results"]
        assert len(results) == len(made)
        ledger.note_acknowledged(
            {(topic, each["partition"], each["offset"]): value for each, value in zip(results, made, strict=True)}
        )

    return write


def frames_writer(ledger: Ledger, topic: str, partition: int, most: int) -> Callable[..., None]:
    """Publishes batches of frames that it encoded itself."""

    def write(connection: Connection, values: Callable[[int], list[str]], rng: Random) -> None:
        made = values(rng.randint(1, most))
        path = f"/topics/{topic}/partitions/{partition}/messages"
        answer = json.loads(connection.send("POST", path, wire_batch([value.encode() for value in made]), FRAMES))
        assert answer["count"] == len(made)
        ledger.note_acknowledged(
            {(topic, partition, offset): value for offset, value in enumerate(made, answer["first_offset"])}
        )

    return write


def wire_batch(values: list[bytes], *, timestamp_ns: int = 1_700_000_000_000_000_000) -> bytes:
    """The envelope of messages with these values."""
    return envelope([encode_frame(b"", value, b"", timestamp_ns) for value in values])


def envelope(frames: list[bytes]) -> bytes:
    lengths = np.array([0, *map(len, frames[:-1])], np.uint32)
    return FrameRun(memoryview(b"".join(frames)), np.cumsum(lengths, dtype=np.uint32)).to_wire()
