"""A consumer that has fetched more than anybody has asked it for, whatever its pace."""

from __future__ import annotations

from doubles.async_tests import until

from goqueue.client.consumer.consumer import AsyncConsumer


async def wants(consumer: AsyncConsumer, messages: int) -> None:
    """So many may be in flight from now on."""
    await consumer._fetching.stop()
    consumer._membership.set_window(messages)


async def fetched(consumer: AsyncConsumer, messages: int) -> None:
    """So many wait in it."""
    await wants(consumer, messages)
    await until(lambda: consumer._buffer.waiting >= messages)
