"""One end of a simulated connection: an asyncio transport."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from errno import ETIMEDOUT
from functools import partial
from random import Random
from typing import Any, NamedTuple

from goqueue.simulation.network.ways import Pipe
from goqueue.simulation.processes import Process, process_of

_HIGH_BYTES = 64 << 10
_WINDOWS = (1_000, 16 << 10, 64 << 10)
GIVE_UP_S = 900.0
"""A connection ends if what was sent is not confirmed for so long, as on a Linux host."""


class Address(NamedTuple):
    host: str
    port: int


class Endpoint(asyncio.Transport):
    """What is written goes into a buffer, and from there as far as the other side's window allows to the wire. It is
    confirmed, which makes room in the window, when the other side's protocol has got it.

    A connection ends for each side by itself: this side may be gone while the other has heard nothing of that.
    """

    peer: Endpoint

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        own: Address,
        context: Context,
        pipe: Pipe,
        on_end: Callable[[Endpoint], object],
    ) -> None:
        """``pipe`` leads to the other side; what concerns the protocol is done in ``context``."""
        super().__init__()
        self._loop = loop
        self._random = random
        self.own = own
        self._context = context
        self.process: Process | None = process_of(context)
        self._pipe = pipe
        self._on_end = on_end
        self._window = random.choice(_WINDOWS)
        self._protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self._buffer = bytearray()
        self._high, self._low = _HIGH_BYTES, _HIGH_BYTES // 4
        self._is_writing_paused = False
        self._unconfirmed = 0
        self._giving_up: asyncio.TimerHandle | None = None
        self._received: deque[bytes | None] = deque()
        """What has arrived and was not handed over; ``None`` is the end."""
        self._is_reading_paused = False
        self._ends_writing = False
        self._has_ended_writing = False
        self._is_closing = False
        self.is_gone = False
        """Whether nothing is known of the connection here any more."""

    def connect(self, peer: Endpoint, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
        self.peer, self._protocol = peer, self._context.run(factory)
        self._call(partial(self._protocol.connection_made, self))
        return self._protocol

    # What a protocol asks for

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": tuple(self.own), "peername": tuple(self.peer.own)}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_reading_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._call(self._hand_over)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), and that at least 0")
        self._high, self._low = high, low
        self._pause_or_resume()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._ends_writing:
            raise RuntimeError("write_eof() was called: nothing more can be written")
        if not self._is_closing:
            self._buffer += data
            self._flush()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_closing:
            self._ends_writing = True
            self._flush()

    def close(self) -> None:
        """What was written is sent first."""
        if not self._is_closing:
            self._is_closing = self._ends_writing = True
            self._flush()

    def abort(self) -> None:
        if not self.is_gone:
            self._pipe.send(self.peer.reset)
            self.lose(None)

    # Sending

    def _flush(self) -> None:
        while self._buffer and self._unconfirmed < self._window:
            size = min(len(self._buffer), self._window - self._unconfirmed)
            if size > 1 and self._random.random() < 0.2:
                size = self._random.randrange(1, size)
            data = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._unconfirmed += size
            self._pipe.send(partial(self.peer.receive, data))
        if self._giving_up is None:
            self._watch()
        self._pause_or_resume()
        if self._ends_writing and not self._buffer:
            self._end_writing()

    def _end_writing(self) -> None:
        if self._is_closing and any(self._received):
            # As a system does if something arrived that nothing has read.
            self._pipe.send(self.peer.reset)
        elif not self._has_ended_writing:
            self._has_ended_writing = True
            self._pipe.send(partial(self.peer.receive, None))
        if self._is_closing:
            self.lose(None)

    def _pause_or_resume(self) -> None:
        size = len(self._buffer)
        if size > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()
        elif size <= self._low and self._is_writing_paused:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def _confirmed(self, size: int) -> None:
        """The other side's protocol has got so much."""
        if not self.is_gone:
            self._unconfirmed -= size
            self._stop_watching()
            if self.process is None or not self.process.is_dead:
                # What it has in its buffer is the process's, what is on the wire is not.
                self._context.run(self._flush)

    def _stop_watching(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _watch(self) -> None:
        if self._unconfirmed:
            problem = TimeoutError(ETIMEDOUT, "Connection timed out")
            self._giving_up = self._loop.call_later(GIVE_UP_S, self.lose, problem, context=Context())

    # Receiving

    def receive(self, data: bytes | None) -> None:
        """Something has arrived from the other side; ``None``: that was all."""
        if self.is_gone:
            if data is not None:
                # Nothing is known of such a connection here.
                self._pipe.send(self.peer.reset)
            return
        self._received.append(data)
        self._call(self._hand_over)

    def _hand_over(self) -> None:
        while self._received and self.is_reading():
            data = self._received.popleft()
            if not isinstance(self._protocol, asyncio.Protocol):
                raise TypeError(f"{self._protocol!r} is no asyncio.Protocol, and others are not simulated")
            if data is None:
                if not self._protocol.eof_received():
                    self.close()
                continue
            self._pipe.send(partial(self.peer._confirmed, len(data)))
            self._protocol.data_received(data)

    # The end

    def reset(self) -> None:
        """The other side knows nothing of this connection any more."""
        self.lose(ConnectionResetError("Connection reset by peer"))

    def lose(self, problem: Exception | None) -> None:
        """This side lets go of the connection, and says so to its protocol."""
        if not self.is_gone:
            self._forget()
            self._call(partial(self._protocol.connection_lost, problem))

    def end_with_process(self) -> None:
        """The process was killed: its system tells the other side."""
        if not self.is_gone:
            self._forget()
            has_unread = self._random.random() < 0.5
            self._pipe.send(self.peer.reset if has_unread else partial(self.peer.receive, None))

    def end_with_host(self) -> None:
        """The machine has no power: the other side hears nothing."""
        self._forget()

    def _forget(self) -> None:
        self.is_gone = self._is_closing = True
        self._buffer.clear()
        self._received.clear()
        self._stop_watching()
        self._on_end(self)

    def _call(self, callback: Callable[[], object]) -> None:
        """In the process that this end belongs to, if that still runs."""
        self._loop.call_soon(self._guarded, callback, context=self._context)

    def _guarded(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": "a protocol failed", "exception": error, "transport": self, "protocol": self._protocol}
            )
            if not self.is_gone:
                self._pipe.send(self.peer.reset)
                self.lose(error)
