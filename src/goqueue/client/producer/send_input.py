"""What a ``send_many`` is given, in chunks that are looked at together."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

from goqueue.client.messages.outgoing_message import Outgoing

PARCEL_BYTES = 512 << 10
"""Frames of so many bytes leave while the rest is being encoded."""
CHUNK = 2_000
"""At most so many messages are looked at together, or leave together."""
_UNKNOWN_BYTES = PARCEL_BYTES // 32
"""A value whose size nobody knows before it is serialized counts as so many."""

Chunk = Sequence[Any]
_Asked = concurrent.futures.Future[Chunk | None]


class Broken:
    """Instead of a message that could not be had."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _chunks_of(messages: Iterable[Any]) -> Generator[Chunk, None, None]:
    """Of what is yet to be made no more is asked for than a parcel takes, as far as its size can be told."""
    if isinstance(messages, list | tuple):
        for first in range(0, len(messages), CHUNK):
            yield messages[first : first + CHUNK]
        return
    chunk: list[Any] = []
    size = 0
    for given in _as_far_as_it_goes(messages):
        chunk.append(given)
        size += _size_of(given)
        if size >= PARCEL_BYTES or len(chunk) >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _as_far_as_it_goes(messages: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from messages
    except Exception as error:
        yield Broken(error)


def _size_of(given: Any) -> int:
    value = given.value if type(given) is Outgoing else given
    return len(value) if isinstance(value, bytes | str | bytearray) else _UNKNOWN_BYTES


class GivenHere:
    """Messages that are made on the loop itself, as they are asked for."""

    def __init__(self, messages: Iterable[Any]) -> None:
        # A list is copied: whoever changes it meanwhile does not change what is sent.
        self._chunks = _chunks_of(tuple(messages) if isinstance(messages, list) else messages)

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration


class GivenElsewhere:
    """Messages that are made by the thread that waits for them to be sent, when the loop asks for the next ones.

    So whatever makes them may take its time, and may use the client.
    """

    def __init__(self, messages: Iterable[Any]) -> None:
        self._chunks = _chunks_of(messages)
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        asked: _Asked = concurrent.futures.Future()
        self._asked.put(asked)
        chunk = await asyncio.wrap_future(asked)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def make_until(self, sent: concurrent.futures.Future[Any]) -> None:
        """In that thread."""
        sent.add_done_callback(lambda _: self._asked.put(None))
        try:
            while (asked := self._asked.get()) is not None:
                if asked.set_running_or_notify_cancel():
                    asked.set_result(next(self._chunks, None))
        finally:
            # Here, and not wherever it is collected.
            self._chunks.close()


Given = GivenHere | GivenElsewhere
