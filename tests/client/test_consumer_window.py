"""How far a consumer of a queue fetches ahead is what its broker goes by, also when a stream takes the place of one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from doubles.async_tests import until

from goqueue.client.consumer.subscription import Subscription
from goqueue.testing import BrokerProcess


async def test_a_consumer_that_begins_to_wait_while_it_joins_again_is_served(
    broker: BrokerProcess, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined, go = asyncio.Event(), asyncio.Event()
    original: Any = Subscription.join

    async def held(subscription: Subscription, *args: Any) -> None:
        await original(subscription, *args)
        joined.set()
        await go.wait()

    async with (
        broker.async_client() as client,
        client.consumer(group, topic) as consumer,
        client.producer() as producer,
    ):
        monkeypatch.setattr(Subscription, "join", held)
        consumer._membership.renew()
        await joined.wait()
        waiting = asyncio.create_task(anext(consumer))
        await until(lambda: consumer._fetching.pace.window == 1)
        go.set()
        await producer.send_many(topic, [b"job"])
        async with asyncio.timeout(10):
            assert (await waiting).value == b"job"
