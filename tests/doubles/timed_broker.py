"""A broker behind a real gRPC port whose clock stands still until a test moves it.

Leases, transactions and delays end when the test says so, however slow the machine is. The client's event loop keeps
its own time.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from behaviour.clock import ManualClock
from behaviour.over_grpc import GrpcHost, config_for

from goqueue import AsyncClient


class TimedBroker:
    def __init__(self, path: Path) -> None:
        self._clock = ManualClock(time.time_ns())
        self._clock.advance_to_tick()
        self._host = GrpcHost(config_for(path), clock=self._clock)

    def async_client(self) -> AsyncClient:
        return AsyncClient(self._host.address)

    def now_ns(self) -> int:
        return self._clock.now_ns()

    async def let_pass(self, milliseconds: int) -> None:
        """So much later for the broker, with everything begun that was due meanwhile."""
        self._clock.advance_ms(milliseconds)
        await asyncio.wrap_future(self._host.thread.submit(self._ring()))

    async def _ring(self) -> None:
        self._host.broker.clockwork.ring()

    def stop(self) -> None:
        self._host.stop()
