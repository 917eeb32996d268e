"""Administration of delayed messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from goqueue.client.admin.delays import DelayedMessage, DelayStats, to_delay_stats, to_delayed, to_reschedule
from goqueue.client.connection.directory import Directory
from goqueue.client.connection.instants import Instant, Span
from goqueue.model.errors import DelayedNotFound, InvalidRequest
from goqueue.wire.proto import goqueue_pb2 as pb

_MESSAGES_PER_PAGE = 100


class DelayAdministration:
    """Methods of the client for delayed messages, which are identified by the offset at which they were stored."""

    _directory: Directory

    async def delayed(self, topic: str) -> AsyncGenerator[DelayedMessage, None]:
        """Pending delayed messages of a topic, the next due first. Changes during the listing may or may not be
        included."""
        after: str | None = ""
        while after is not None:
            page, after = await self._delayed_page(topic, after)
            for message in page:
                yield message

    async def _delayed_page(self, topic: str, after: str) -> tuple[list[DelayedMessage], str | None]:
        """One page, and where the next one begins, if there is one."""
        found = await self._query_delays(
            "ListDelayed", pb.ListDelayedRequest(topic=topic, limit=_MESSAGES_PER_PAGE, after=after)
        )
        page = []
        for each in found.messages:
            if each.message:
                page.append(to_delayed(each))
                continue
            # Left out of the response because it would have been too large.
            try:
                page.append(await self.get_delayed(topic, each.partition, each.offset))
            except DelayedNotFound:
                continue
        return page, found.next or None

    async def get_delayed(self, topic: str, partition: int, offset: int) -> DelayedMessage:
        """One pending message. ``DelayedNotFound`` if it was delivered, cancelled or never delayed."""
        request = _build_request(lambda: pb.GetDelayedRequest(topic=topic, partition=partition, offset=offset))
        return to_delayed(await self._query_delays("GetDelayed", request))

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> None:
        """Cancel a delayed message: it is never delivered. ``DelayedNotFound`` if none is pending there.

        If the connection breaks before the answer, the request is sent again. If the first one had been carried out,
        this also raises ``DelayedNotFound``: a cancelled message cannot be told from a delivered one.
        """
        request = _build_request(lambda: pb.CancelDelayedRequest(topic=topic, partition=partition, offset=offset))
        await self._directory.any(lambda attempt: attempt.command(attempt.broker.delays.CancelDelayed, request))

    async def reschedule_delayed(
        self, topic: str, partition: int, offset: int, *, delay: Span | None = None, deliver_at: Instant | None = None
    ) -> DelayedMessage:
        """Change the delivery time, earlier or later: a ``delay`` from now, or an instant.

        A time in the past means now. ``DelayedNotFound`` if none is pending there.
        """
        request = _build_request(lambda: to_reschedule(topic, partition, offset, delay, deliver_at))
        return to_delayed(
            await self._directory.any(lambda attempt: attempt.command(attempt.broker.delays.RescheduleDelayed, request))
        )

    async def delay_stats(self) -> DelayStats:
        """Counters of delayed messages of all topics."""
        return to_delay_stats(await self._query_delays("DelayStats", pb.DelayStatsRequest()))

    async def _query_delays(self, method: str, request: Any) -> Any:
        return await self._directory.any(lambda attempt: attempt.query(getattr(attempt.broker.delays, method), request))


def _build_request(make: Callable[[], Any]) -> Any:
    """Build a request from numbers given by the user."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"a partition and an offset are whole numbers from 0 on: {error}") from None
