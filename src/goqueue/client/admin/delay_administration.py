"""What can be asked about delayed messages, and changed of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from goqueue.client.admin.delays import DelayedMessage, DelayStats, to_delay_stats, to_delayed, to_reschedule
from goqueue.client.connection.directory import Directory
from goqueue.client.connection.instants import Instant, Span
from goqueue.model.errors import DelayedNotFound, InvalidRequest
from goqueue.wire.proto import goqueue_pb2 as pb

_LISTED_AT_ONCE = 100


class DelayAdministration:
    """The part of a client that looks after delayed messages. One is named by the place where it was stored."""

    _directory: Directory

    async def delayed(self, topic: str) -> AsyncGenerator[DelayedMessage, None]:
        """What waits in a topic, the next due first. What changes meanwhile may be in it or not."""
        after: str | None = ""
        while after is not None:
            page, after = await self._delayed_behind(topic, after)
            for message in page:
                yield message

    async def _delayed_behind(self, topic: str, after: str) -> tuple[list[DelayedMessage], str | None]:
        """One page, and where the next one begins if there is one."""
        found = await self._ask_delays(
            "ListDelayed", pb.ListDelayedRequest(topic=topic, limit=_LISTED_AT_ONCE, after=after)
        )
        page = []
        for each in found.messages:
            if each.message:
                page.append(to_delayed(each))
                continue
            # It was too much for one answer.
            try:
                page.append(await self.get_delayed(topic, each.partition, each.offset))
            except DelayedNotFound:
                continue
        return page, found.next or None

    async def get_delayed(self, topic: str, partition: int, offset: int) -> DelayedMessage:
        """``DelayedNotFound`` if nothing waits there: it was delivered or cancelled, or never delayed."""
        request = _made(lambda: pb.GetDelayedRequest(topic=topic, partition=partition, offset=offset))
        return to_delayed(await self._ask_delays("GetDelayed", request))

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> None:
        """It will never be seen. ``DelayedNotFound`` if nothing waits there (any more).

        If the connection breaks before the answer comes, the request is sent again; when it had been done by then,
        that is told as ``DelayedNotFound`` too, for nobody can tell it from a message that was delivered.
        """
        request = _made(lambda: pb.CancelDelayedRequest(topic=topic, partition=partition, offset=offset))
        await self._directory.any(lambda attempt: attempt.command(attempt.broker.delays.CancelDelayed, request))

    async def reschedule_delayed(
        self, topic: str, partition: int, offset: int, *, delay: Span | None = None, deliver_at: Instant | None = None
    ) -> DelayedMessage:
        """It will be seen at another time: earlier or later, after a ``delay`` from now or at an instant.

        What lies in the past is now. ``DelayedNotFound`` if nothing waits there (any more).
        """
        request = _made(lambda: to_reschedule(topic, partition, offset, delay, deliver_at))
        return to_delayed(
            await self._directory.any(lambda attempt: attempt.command(attempt.broker.delays.RescheduleDelayed, request))
        )

    async def delay_stats(self) -> DelayStats:
        return to_delay_stats(await self._ask_delays("DelayStats", pb.DelayStatsRequest()))

    async def _ask_delays(self, method: str, request: Any) -> Any:
        return await self._directory.any(
            lambda attempt: attempt.question(getattr(attempt.broker.delays, method), request)
        )


def _made(make: Callable[[], Any]) -> Any:
    """A request with numbers that a user gave."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"a partition and an offset are whole numbers from 0 on: {error}") from None
