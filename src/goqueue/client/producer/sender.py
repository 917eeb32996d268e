"""Sending methods shared by producers and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Unpack

from goqueue.client.messages.outgoing_message import Outgoing, SendOptions, Sent
from goqueue.client.producer.outbox import Outbox
from goqueue.client.producer.send_input import LoopInput, SendInput
from goqueue.client.producer.send_many import send_many


class AsyncSender:
    """A producer, or a transaction of one."""

    _outbox: Outbox

    def _check_sending(self) -> None:
        """Raises if nothing can be sent here, or not now."""

    async def send(self, topic: str, value: Any, **options: Unpack[SendOptions]) -> asyncio.Future[Sent]:
        """Send a message; the future's result is the position at which it is stored. ``options`` are the fields of
        ``Outgoing`` beside the value. Waits while the buffer is full,
        and before the first message of a topic until its number of partitions is known.

        With ``delay`` or ``deliver_at`` the message stays invisible until then, and can be cancelled by its position.
        With a ``dedup_id`` that the topic has received within its ``dedup_window_ms`` it is not stored again: the
        result is the position of the first message, with ``is_duplicate`` set.
        """
        self._check_sending()
        return await self._send(topic, Outgoing(value, **options))

    async def _send(self, topic: str, message: Outgoing) -> asyncio.Future[Sent]:
        return await self._outbox.send(topic, message)

    async def send_many(self, topic: str, messages: Iterable[Any]) -> list[Sent]:
        """Send values or ``Outgoing`` messages, and wait until all are stored; results are in the same order.

        If some fail, the others are still delivered; when all are settled, ``NotAllStored`` reports the outcome of
        each. If all failed for one reason, that error is raised instead.
        """
        return await self._send_input(topic, LoopInput(messages))

    async def _send_input(self, topic: str, messages: SendInput) -> list[Sent]:
        self._check_sending()
        return await send_many(self._outbox, topic, messages)
