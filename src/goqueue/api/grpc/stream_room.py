"""Batches that are written to streams and not read yet by their clients: bounded in bytes over all streams."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import TypeVar

from goqueue.api.grpc.errors import Context
from goqueue.api.grpc.unread import CutOff, Waiting
from goqueue.broker.operations import Bounds, PollBounds

AnyBounds = TypeVar("AnyBounds", Bounds, PollBounds)

_PATIENCE = 60
"""Sweeps in which a connection may take none of its batches while streams wait for room. A consumer that is slow for
a while is nothing unusual."""


class StreamRoom:
    """A stream has one batch on its way at a time, but there are many streams, and a single message may be large.

    Small batches, of at most a stream's equal share of the bound, always have room and are not counted. So every stream
    goes on while others are not read; and only messages that are larger than the share wait for their turn.
    """

    def __init__(self, max_bytes: int, max_streams: int, cut_off: CutOff) -> None:
        self._max_bytes = max_bytes
        self.share_bytes = max(1 << 10, max_bytes // max_streams)
        self._waiting = Waiting(cut_off)
        self._queue: deque[tuple[int, Turn, asyncio.Future[None]]] = deque()

    @property
    def size_bytes(self) -> int:
        return self._waiting.size_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether a batch of this size may be written now. The only one may be of any size."""
        return not self._queue and self._fits(size_bytes)

    def _fits(self, size_bytes: int) -> bool:
        return not self._waiting.size_bytes or self._waiting.size_bytes + size_bytes <= self._max_bytes

    def hold(self, turn: Turn, size_bytes: int) -> None:
        self._waiting.add(turn, turn.context, size_bytes)

    def let_go(self, turn: Turn) -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
            self._admit()

    async def queue_up(self, turn: Turn, size_bytes: int) -> None:
        """Return when the turn holds so many bytes: first come, first served."""
        entry = (size_bytes, turn, asyncio.get_running_loop().create_future())
        self._queue.append(entry)
        self._admit()
        try:
            await entry[2]
        except asyncio.CancelledError:
            if entry in self._queue:
                self._queue.remove(entry)
            self.let_go(turn)
            self._admit()
            raise

    def _admit(self) -> None:
        while self._queue and self._fits(self._queue[0][0]):
            size_bytes, turn, admitted = self._queue.popleft()
            if not admitted.done():
                self.hold(turn, size_bytes)
                admitted.set_result(None)

    def sweep(self) -> None:
        """Called about once a second: cut off the clients that keep others waiting by not reading."""
        if self._queue:
            self._waiting.sweep(lambda _: _PATIENCE)
        else:
            self._waiting.forget_silence()


class Turn:
    """One stream's part: ask how much to read, then for room to write it, and let go when it is written."""

    def __init__(self, room: StreamRoom, context: Context) -> None:
        self._room = room
        self.context = context
        self._held_bytes = 0
        self._is_small = False

    def narrowed(self, bounds: AnyBounds) -> AnyBounds:
        """How much to read next (a single message may have more). Who holds room for it does not wait for messages."""
        if self._held_bytes:
            return replace(bounds, max_bytes=min(bounds.max_bytes, self._held_bytes), wait_ms=0)
        if self._is_small or not self._room.has_room(bounds.max_bytes):
            return replace(bounds, max_bytes=min(bounds.max_bytes, self._room.share_bytes))
        return bounds

    def take(self, size_bytes: int) -> bool:
        """Whether a batch of this size may be written now."""
        if size_bytes <= max(self._held_bytes, self._room.share_bytes):
            return True
        self.let_go()
        if not self._room.has_room(size_bytes):
            return False
        self._hold(size_bytes)
        return True

    def _hold(self, size_bytes: int) -> None:
        self._room.hold(self, size_bytes)
        self._held_bytes = size_bytes

    async def make_room(self, size_bytes: int) -> None:
        """For a batch that had no room and was dropped: return when it is worth reading once more.

        The next one is small. If that, too, has no room, it is one large message, and this waits for its turn.
        """
        if self._is_small:
            await self.wait(size_bytes)
        self._is_small = True

    async def wait(self, size_bytes: int) -> None:
        """Return when a batch of this size may be written."""
        await self._room.queue_up(self, size_bytes)
        self._held_bytes = size_bytes

    def let_go(self) -> None:
        self._room.let_go(self)
        self._held_bytes = 0

    def done(self) -> None:
        """The batch is written, or its stream is over."""
        self.let_go()
        self._is_small = False
