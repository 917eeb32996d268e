"""Send buffer: bounds the memory of unacknowledged messages, and makes senders wait in order."""

from __future__ import annotations

import asyncio
from collections import deque

from goqueue.model.errors import BufferFull, DeliveryTimeout


class SendBuffer:
    """Counts bytes. Senders get room in order of arrival; a single message always fits an empty buffer."""

    def __init__(self, size_bytes: int, *, block: bool) -> None:
        self._size_bytes = size_bytes
        self._block = block
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used_bytes = 0

    async def reserve(self, size: int, deadline: float) -> None:
        """Wait until the bytes fit; raise at the deadline, or at once if not configured to wait."""
        if not self._waiters and self._fits(size):
            self.used_bytes += size
            return
        if not self._block:
            raise BufferFull(f"{self.used_bytes} bytes wait for their acknowledgement; buffer_bytes allows no more")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((size, waiter))
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            self._withdraw(size, waiter)
            raise DeliveryTimeout("there was no room in the buffer within the delivery timeout") from None
        except asyncio.CancelledError:
            self._withdraw(size, waiter)
            raise

    def release(self, size: int) -> None:
        self.used_bytes -= size
        self._admit()

    def _fits(self, size: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size <= self._size_bytes

    def _admit(self) -> None:
        while self._waiters:
            size, waiter = self._waiters[0]
            if waiter.done():
                # Its sender has given up and not yet removed itself.
                self._waiters.popleft()
            elif self._fits(size):
                self._waiters.popleft()
                self.used_bytes += size
                waiter.set_result(None)
            else:
                return

    def _withdraw(self, size: int, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():
            # Room was granted at the same moment.
            self.release(size)
            return
        waiter.cancel()
        self._waiters = deque(entry for entry in self._waiters if entry[1] is not waiter)
        self._admit()
