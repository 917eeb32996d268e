"""Retries: an operation that any broker can serve is tried at each in turn, and a request again after a pause."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from goqueue.client.connection.config import ClientConfig
from goqueue.client.connection.connection import Connection, NotConnected
from goqueue.client.connection.grpc_connection import GrpcConnection
from goqueue.client.connection.native_connection import NativeConnection
from goqueue.client.connection.wrong_port import with_right_port
from goqueue.model import errors
from goqueue.model.addresses import SCHEME
from goqueue.model.errors import GoQueueError

Reply = TypeVar("Reply")
Service = Literal["delays", "groups", "metadata", "schemas", "topics", "transactions"]
_UNCERTAIN_ERRORS = (errors.ClientError, errors.InternalError, errors.RequestTimeout, errors.StorageFailed)
"""Errors after which the broker may have carried out the request; ``NotConnected`` is the exception."""


@dataclass(slots=True)
class Backoff:
    """Doubles from ``first_ms`` to ``most_ms``; each pause is drawn at random from the upper half of that range."""

    first_ms: int
    most_ms: int
    _attempt: int = 0

    def next_s(self, at_least_s: float | None = None) -> float:
        """The next pause in seconds, no shorter than ``at_least_s``, the pause that the broker asked for."""
        pause_ms = min(self.most_ms, self.first_ms << min(self._attempt, 30))
        self._attempt += 1
        return max(at_least_s or 0.0, pause_ms * random.uniform(0.5, 1.0) / 1_000)

    def reset(self) -> None:
        self._attempt = 0


@dataclass(slots=True)
class CallOutcome:
    """All attempts at one request: whether the broker may have carried it out."""

    maybe_done: bool = False
    """Whether an attempt ended without an answer, so that the broker may have carried it out."""

    def ended(self, error: BaseException) -> None:
        is_uncertain = not isinstance(error, GoQueueError) or isinstance(error, _UNCERTAIN_ERRORS)
        self.maybe_done |= is_uncertain and not isinstance(error, NotConnected)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at an operation that any broker can serve. ``maybe_done``: an earlier one may have carried it out."""

    broker: Connection
    timeout_ms: int
    is_last: bool
    maybe_done: bool

    async def query(self, method: Any, request: Any) -> Any:
        """A read-only call. It can be repeated at another broker, so it gets only its share of the time."""
        try:
            return await self.broker.call(method, request, timeout_ms=self.timeout_ms)
        except errors.DeliveryTimeout as error:
            if self.is_last:
                raise
            raise errors.BrokerUnavailable(str(error)) from None

    async def command(self, method: Any, request: Any) -> Any:
        """A call that changes something. It gets the full request timeout: once sent, no other broker is tried."""
        return await self.broker.call(method, request)


class Retrying:
    """Tries the given addresses in turn."""

    def __init__(self, addresses: list[str], config: ClientConfig) -> None:
        self.config = config
        self._addresses = addresses
        self._connections: dict[str, Connection] = {}
        self._last_error: GoQueueError | None = None
        """Why the last broker that was tried did not answer."""
        self._closed = False

    def backoff(self) -> Backoff:
        return Backoff(self.config.retry_backoff_ms, self.config.max_backoff_ms)

    def check_open(self) -> None:
        if self._closed:
            raise errors.ClientClosed("the client is closed")

    def connection(self, address: str) -> Connection:
        self.check_open()
        found = self._connections.get(address)
        if found is None:
            kind = NativeConnection if address.startswith(SCHEME) else GrpcConnection
            found = self._connections[address] = kind(address, self.config)
        return found

    async def any(self, operation: Callable[[Attempt], Awaitable[Reply]]) -> Reply:
        """Run ``operation`` against the first broker that can be reached, with retries until the connect timeout.

        The brokers not yet tried in a round share the remaining time equally, so that a stalled broker leaves time for
        the others.
        """
        loop, backoff = asyncio.get_running_loop(), self.backoff()
        deadline = loop.time() + self.config.connect_timeout_ms / 1_000
        outcome = CallOutcome()
        while True:
            addresses = list(self._addresses)
            for index, address in enumerate(addresses):
                remaining = len(addresses) - index
                share_ms = max(1, int((deadline - loop.time()) * 1_000 / remaining))
                try:
                    attempt = Attempt(self.connection(address), share_ms, remaining == 1, outcome.maybe_done)
                    return await operation(attempt)
                except errors.WrongPort:
                    # A retry does not help, and the broker logs each attempt.
                    raise await with_right_port(address) from None
                except (errors.BrokerUnavailable, errors.ShuttingDown, errors.Overloaded) as error:
                    last = self._last_error = error
                    outcome.ended(error)
                    # The next operation begins with another broker.
                    self._addresses.remove(address)
                    self._addresses.append(address)
            pause_s = backoff.next_s(last.retry_after_s)
            if loop.time() + pause_s > deadline:
                raise last
            await asyncio.sleep(pause_s)

    async def query(self, service: Service, method: str, request: Any) -> Any:
        """A read-only call to any broker."""
        return await self.any(lambda attempt: attempt.query(getattr(getattr(attempt.broker, service), method), request))

    async def command(
        self, service: Service, method: str, request: Any, done_if: type[GoQueueError] | tuple[()] = ()
    ) -> Any:
        """A call to any broker that changes something. ``done_if``: the error that a repetition meets if an earlier
        attempt was carried out; it counts as success then."""

        async def attempted(attempt: Attempt) -> Any:
            try:
                return await attempt.command(getattr(getattr(attempt.broker, service), method), request)
            except done_if:
                if not attempt.maybe_done:
                    raise

        return await self.any(attempted)

    async def retry(
        self, request: Callable[[], Awaitable[Reply]], within_ms: int, retry_if: type[GoQueueError] | None = None
    ) -> Reply:
        """Make a request, again after transient errors and after ``retry_if``, until the time is over."""
        loop, backoff = asyncio.get_running_loop(), self.backoff()
        deadline = loop.time() + within_ms / 1_000
        while True:
            try:
                return await request()
            except GoQueueError as error:
                goes_on = error.retriable or (retry_if is not None and isinstance(error, retry_if))
                pause_s = backoff.next_s(error.retry_after_s)
                if not goes_on or loop.time() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)

    def preferred_broker(self) -> Connection:
        """The broker to try first."""
        return self.connection(self._addresses[0])

    def move_to_end(self, connection: Connection) -> None:
        """Move a broker that failed to the end of the list, so that the next operation begins with another."""
        if self._addresses[0] == connection.address:
            self._addresses.append(self._addresses.pop(0))
