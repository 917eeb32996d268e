"""A pool of workers shares what there is to do, however little it is."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from doubles.async_tests import until
from fetched import fetched

from goqueue import AsyncClient, Outgoing
from goqueue.model.errors import GroupConflict
from goqueue.testing import BrokerProcess

JOBS = 40
WORKERS = 4


async def fill(client: AsyncClient, topic: str, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_many(topic, [b"%d" % number for number in range(count)])


async def work_in_step(workers: list[Any], jobs: int) -> list[int]:
    """How many each has handled, if each waits with every job until all the others have one as well."""
    everybody_has_one = asyncio.Barrier(len(workers))
    counts = [0] * len(workers)

    async def work(number: int) -> None:
        for _ in range(jobs // len(workers)):
            message = await anext(workers[number])
            await everybody_has_one.wait()
            counts[number] += 1
            await message.ack()

    async with asyncio.timeout(60):
        await asyncio.gather(*map(work, range(len(workers))))
    return counts


async def test_four_consumers_share_forty_jobs_of_one_partition(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client, AsyncExitStack() as stack:
        await fill(client, topic, JOBS)
        consumers = [await stack.enter_async_context(client.consumer(group, topic)) for _ in range(WORKERS)]
        # Each of them gets a job while the others sit on theirs: nobody has hoarded any.
        assert await work_in_step(consumers, JOBS) == [JOBS // WORKERS] * WORKERS


async def test_workers_share_what_lies_there_when_they_come(broker: BrokerProcess, topic: str, group: str) -> None:
    everybody_has_one = threading.Barrier(WORKERS, timeout=60)
    handled: list[list[bytes]] = [[] for _ in range(WORKERS)]
    async with broker.async_client() as client:
        await fill(client, topic, JOBS)

        def handler(number: int) -> Any:
            def handle(message: Any) -> None:
                everybody_has_one.wait()
                handled[number].append(message.value)

            return handle

        running = [
            asyncio.create_task(client.worker(handler(number), group=group, topics=topic, concurrency=1, signals=False))
            for number in range(WORKERS)
        ]
        await until(lambda: sum(map(len, handled)) == JOBS, within_s=60)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert [len(each) for each in handled] == [JOBS // WORKERS] * WORKERS
        assert len({value for each in handled for value in each}) == JOBS


async def test_who_has_fetched_much_and_becomes_slow_gives_it_back(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, JOBS)
        async with client.consumer(group, topic) as slow, client.consumer(group, topic) as other:
            await fetched(slow, JOBS)
            slow._fetching.start(slow._buffer)
            first = await anext(slow)
            found: list[Any] = []
            async with asyncio.timeout(60):
                while len(found) < JOBS - 2:
                    found += await other.poll()
            # Giving back is no delivery.
            assert {each.deliveries for each in found} == {1}
            [second] = await slow.poll()
            await slow.ack([first, second])
            await other.ack(found)


async def test_a_quick_consumer_fetches_ahead(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 20_000)
        async with client.consumer(group, topic) as consumer:
            async with asyncio.timeout(60):
                for _ in range(20_000):
                    message = await anext(consumer)
                    message.ack()
                    if consumer._fetching.pace.window >= 100:
                        break
            assert consumer._fetching.pace.window >= 100


async def test_a_consumer_makes_a_shared_group_and_joins_one_of_another_kind_as_it_is(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        async with client.consumer(group, topic):
            assert (await client.describe_group(group)).settings["kind"] == "shared"
        await client.configure_group(f"{group}-range", kind="range")
        async with client.consumer(f"{group}-range", topic):
            assert (await client.describe_group(f"{group}-range")).settings["kind"] == "range"
            with pytest.raises(GroupConflict, match="only while it has no members; it has 1"):
                await client.consumer(f"{group}-range", topic, kind="shared").start()
        # Nobody is there any more.
        async with client.consumer(f"{group}-range", topic, kind="shared"):
            assert (await client.describe_group(f"{group}-range")).settings["kind"] == "shared"
        async with client.consumer(f"{group}-stream", topic, mode="stream"):
            assert (await client.describe_group(f"{group}-stream")).settings["kind"] == "range"


async def test_polling_without_waiting_gives_something_the_next_time(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async with broker.async_client() as client:
        await fill(client, topic, 10)
        async with client.consumer(group, topic) as consumer:
            found: list[Any] = []
            async with asyncio.timeout(60):
                while len(found) < 10:
                    found += await consumer.poll(10, timeout=0)
            await consumer.ack(found)


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize(("count", "shares"), [(40, [10] * 4), (2_400, [600] * 4), (5, [5]), (18, [8, 8, 2])])
async def test_messages_without_a_key_are_spread_over_the_partitions(
    broker: BrokerProcess, wide_topic: str, count: int, shares: list[int], *, is_plain: bool
) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        values = [b"%d" % number for number in range(count)]
        given = values if is_plain else [Outgoing(value, headers={"h": b"1"}) for value in values]
        sent = await producer.send_many(wide_topic, given)
        assert sorted(Counter(each.partition for each in sent).values(), reverse=True) == shares
        assert len({(each.partition, each.offset) for each in sent}) == count


async def test_members_with_partitions_of_their_own_all_get_some_of_one_send_many(
    broker: BrokerProcess, wide_topic: str, group: str
) -> None:
    async with broker.async_client() as client, AsyncExitStack() as stack:
        consumers = [
            await stack.enter_async_context(client.consumer(group, wide_topic, kind="range")) for _ in range(WORKERS)
        ]
        await fill(client, wide_topic, JOBS)
        assert await work_in_step(consumers, JOBS) == [JOBS // WORKERS] * WORKERS
