"""Administration of delayed messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

from goqueue.client.admin.delays import DelayedMessage, DelayStats, to_delayed, to_reschedule
from goqueue.client.connection.directory import Directory, items_of
from goqueue.client.connection.instants import Instant, Span
from goqueue.client.connection.structs import struct_of
from goqueue.model.errors import DelayedNotFound, InvalidRequest
from goqueue.wire.proto import goqueue_pb2 as pb

_MESSAGES_PER_PAGE = 100


class DelayAdministration:
    """Methods of the client for delayed messages, which are identified by the offset at which they were stored."""

    _directory: Directory

    def delayed(self, topic: str) -> AsyncGenerator[DelayedMessage, None]:
        """Pending delayed messages of a topic, the next due first. Changes during the listing may or may not be
        included."""
        return items_of(self._delayed_pages(topic))

    async def _delayed_pages(self, topic: str) -> AsyncGenerator[list[DelayedMessage], None]:
        request = pb.ListDelayedRequest(topic=topic, limit=_MESSAGES_PER_PAGE)
        is_last = False
        while not is_last:
            found = await self._directory.query("delays", "ListDelayed", request)
            page = []
            for each in found.messages:
                if each.message:
                    page.append(to_delayed(each))
                    continue
                # Left out of the response because it would have been too large.
                with suppress(DelayedNotFound):
                    page.append(await self.get_delayed(topic, each.partition, each.offset))
            yield page
            request.after, is_last = found.next, not found.next

    async def get_delayed(self, topic: str, partition: int, offset: int) -> DelayedMessage:
        """One pending message. ``DelayedNotFound`` if it was delivered, cancelled or never delayed."""
        request = _build_request(lambda: pb.GetDelayedRequest(topic=topic, partition=partition, offset=offset))
        return to_delayed(await self._directory.query("delays", "GetDelayed", request))

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> None:
        """Cancel a delayed message: it is never delivered. ``DelayedNotFound`` if none is pending there.

        If the connection breaks before the answer, the request is sent again. If the first one had been carried out,
        this also raises ``DelayedNotFound``: a cancelled message cannot be told from a delivered one.
        """
        request = _build_request(lambda: pb.CancelDelayedRequest(topic=topic, partition=partition, offset=offset))
        await self._directory.command("delays", "CancelDelayed", request)

    async def reschedule_delayed(
        self, topic: str, partition: int, offset: int, *, delay: Span | None = None, deliver_at: Instant | None = None
    ) -> DelayedMessage:
        """Change the delivery time, earlier or later: a ``delay`` from now, or an instant.

        A time in the past means now. ``DelayedNotFound`` if none is pending there.
        """
        request = _build_request(lambda: to_reschedule(topic, partition, offset, delay, deliver_at))
        return to_delayed(await self._directory.command("delays", "RescheduleDelayed", request))

    async def delay_stats(self) -> DelayStats:
        """Counters of delayed messages of all topics."""
        return struct_of(DelayStats, await self._directory.query("delays", "DelayStats", pb.DelayStatsRequest()))


def _build_request(make: Callable[[], Any]) -> Any:
    """Build a request from numbers given by the user."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"a partition and an offset are whole numbers from 0 on: {error}") from None
