"""Send buffer: bounds the memory of unacknowledged messages, and makes senders wait in order."""

from __future__ import annotations

import asyncio
from collections import deque

from goqueue.model.errors import BufferFull, DeliveryTimeout


class Buffer:
    """Counts bytes. Senders get room in order of arrival; a single message always fits an empty buffer."""

    def __init__(self, size_bytes: int, *, block: bool) -> None:
        self._size_bytes = size_bytes
        self._block = block
        self._turns: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used_bytes = 0

    async def take(self, size: int, deadline: float) -> None:
        """Wait until the bytes fit; raise at the deadline, or at once if not configured to wait."""
        if not self._turns and self._fits(size):
            self.used_bytes += size
            return
        if not self._block:
            raise BufferFull(f"{self.used_bytes} bytes wait for their acknowledgement; buffer_bytes allows no more")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append((size, turn))
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except TimeoutError:
            self._step_back(size, turn)
            raise DeliveryTimeout("there was no room in the buffer within the delivery timeout") from None
        except asyncio.CancelledError:
            self._step_back(size, turn)
            raise

    def give_back(self, size: int) -> None:
        self.used_bytes -= size
        self._admit()

    def _fits(self, size: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size <= self._size_bytes

    def _admit(self) -> None:
        while self._turns:
            size, turn = self._turns[0]
            if turn.done():
                # Its sender has given up and not yet removed itself.
                self._turns.popleft()
            elif self._fits(size):
                self._turns.popleft()
                self.used_bytes += size
                turn.set_result(None)
            else:
                return

    def _step_back(self, size: int, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            # Room was granted at the same moment.
            self.give_back(size)
            return
        turn.cancel()
        self._turns = deque(entry for entry in self._turns if entry[1] is not turn)
        self._admit()
