"""Input of ``send_many``, read in chunks that are encoded together."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from goqueue.client.messages.outgoing_message import Outgoing

PENDING_BATCH_BYTES = 512 << 10
"""Size at which frames are enqueued while the rest is being encoded."""
MAX_CHUNK_MESSAGES = 2_000
"""Most messages in a chunk, or enqueued together."""
_UNKNOWN_BYTES = PENDING_BATCH_BYTES // 32
"""Assumed size of a value whose size is unknown before serialization."""

Chunk = Sequence[Any]
_ChunkRequest = concurrent.futures.Future[Chunk | None]


@dataclass(frozen=True, slots=True)
class FailedItem:
    """Stands for a message whose iterator raised this error."""

    error: Exception


def _chunks_of(messages: Iterable[Any]) -> Generator[Chunk, None, None]:
    """An iterator is read no further than one pending batch needs, as far as sizes are known."""
    if isinstance(messages, list | tuple):
        for first in range(0, len(messages), MAX_CHUNK_MESSAGES):
            yield messages[first : first + MAX_CHUNK_MESSAGES]
        return
    chunk: list[Any] = []
    size = 0
    for item in _until_error(messages):
        chunk.append(item)
        size += _size_of(item)
        if size >= PENDING_BATCH_BYTES or len(chunk) >= MAX_CHUNK_MESSAGES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _until_error(messages: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from messages
    except Exception as error:
        yield FailedItem(error)


def _size_of(item: Any) -> int:
    value = item.value if type(item) is Outgoing else item
    return len(value) if isinstance(value, bytes | str | bytearray) else _UNKNOWN_BYTES


class LoopInput:
    """Input that is iterated on the loop."""

    def __init__(self, messages: Iterable[Any]) -> None:
        # A list is copied, so that changes by the caller meanwhile have no effect.
        self._chunks = _chunks_of(tuple(messages) if isinstance(messages, list) else messages)

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration


class ThreadInput:
    """Input that is iterated in the calling thread, which waits for the result, whenever the loop requests a chunk.

    So the iterator may block, and may use the client.
    """

    def __init__(self, messages: Iterable[Any]) -> None:
        self._chunks = _chunks_of(messages)
        self._requests: SimpleQueue[_ChunkRequest | None] = SimpleQueue()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        request: _ChunkRequest = concurrent.futures.Future()
        self._requests.put(request)
        chunk = await asyncio.wrap_future(request)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def serve_until(self, sent: concurrent.futures.Future[Any]) -> None:
        """Serve requests for chunks in the calling thread, until ``sent`` is done."""
        sent.add_done_callback(lambda _: self._requests.put(None))
        try:
            while (request := self._requests.get()) is not None:
                if request.set_running_or_notify_cancel():
                    request.set_result(next(self._chunks, None))
        finally:
            # Close the generator in this thread, not in the one that garbage-collects it.
            self._chunks.close()


SendInput = LoopInput | ThreadInput
