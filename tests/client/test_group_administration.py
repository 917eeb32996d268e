from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from goqueue import AsyncClient, DeadLetter, Outgoing, TopicPartition
from goqueue.model.errors import (
    GroupConflict,
    GroupNotFound,
    InvalidRequest,
    InvalidSettings,
    OffsetOutOfRange,
    TopicNotFound,
)
from goqueue.testing import BrokerProcess


async def fill(client: AsyncClient, topic: str, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_many(topic, [b"%d" % number for number in range(count)])


async def letters_of(client: AsyncClient, topic: str, count: int, **wanted: Any) -> list[DeadLetter]:
    """When so many are there."""
    async with asyncio.timeout(30):
        while len(found := [each async for each in client.dead_letters(topic, **wanted)]) < count:
            pass
    return found


async def test_a_group_is_listed_described_changed_and_deleted(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        made = await client.configure_group(group, kind="shared", max_retries=7, idle_expiry_ms=None)
        assert (made.name, made.state, made.members, made.partitions) == (group, "empty", [], [])
        assert made.settings["max_retries"] == "7"
        assert made.settings["idle_expiry_ms"] == "unlimited"
        assert made.overrides == ["idle_expiry_ms", "kind", "max_retries"]
        assert group in await client.list_groups()
        changed = await client.configure_group(group, max_retries=None)
        assert changed.settings["max_retries"] == "topic"
        with pytest.raises(GroupConflict):
            await client.configure_group(group, ordering="key")
        with pytest.raises(InvalidSettings, match="nonsense"):
            await client.configure_group(group, nonsense=1)

        await fill(client, topic, 10)
        async with client.consumer(
            group, topic, client_id="me", instance_id="one", session_timeout_ms=1_000
        ) as consumer:
            await consumer.poll(4)
            found = await client.describe_group(group)
            [member] = found.members
            assert (member.client_id, member.instance_id, member.topics) == ("me", "one", [topic])
            assert member.member_id == consumer.member_id
            assert member.assigned == [TopicPartition(topic, 0)]
            assert found.lag == 10
            assert abs(found.created_at - datetime.now(UTC)) < timedelta(minutes=5)
            with pytest.raises(GroupConflict):
                await client.delete_group(group)
        # With an instance_id it is a member until its session is over.
        async with asyncio.timeout(30):
            while (await client.describe_group(group)).members:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await client.delete_group(group)
        assert group not in await client.list_groups()
        for ask in (client.describe_group(group), client.delete_group(group), client.group_offsets(group)):
            with pytest.raises(GroupNotFound):
                await ask


async def test_a_group_begins_again_where_it_is_told_to(broker: BrokerProcess, wide_topic: str, group: str) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    async with broker.async_client() as client, client.producer() as producer:
        await producer.send_many(
            wide_topic,
            [Outgoing(b"v", partition=each % 4, timestamp=moment + timedelta(seconds=each)) for each in range(40)],
        )
        async with client.consumer(group, wide_topic, mode="stream") as consumer:
            assert (await anext(consumer)).offset == 0

        async def reset(to: Any, partitions: list[int] | None = None) -> list[int]:
            told = await client.reset_offsets(group, wide_topic, to, partitions)
            assert (await client.group_offsets(group, wide_topic)).items() >= told.items()
            return list(told.values())

        assert await reset("latest") == [10, 10, 10, 10]
        assert await reset("earliest") == [0, 0, 0, 0]
        assert await reset(3, [1, 2]) == [3, 3]
        assert await reset(moment + timedelta(seconds=20)) == [5, 5, 5, 5]
        with pytest.raises(OffsetOutOfRange):
            await reset(11)
        with pytest.raises(InvalidRequest, match="partitions is empty"):
            await reset("latest", [])
        async with client.consumer(group, wide_topic) as consumer:
            assert (await anext(consumer)).offset == 5


async def test_a_topic_without_dead_letters_has_none_to_look_at_or_redrive(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client:
        assert [letter async for letter in client.dead_letters(topic)] == []
        assert (await client.redrive(topic)).matched == 0
        with pytest.raises(TopicNotFound):
            await client.redrive("nowhere")


async def test_dead_letters_are_looked_at_and_redriven(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        assert [each async for each in client.dead_letters(topic)] == []
        with pytest.raises(TopicNotFound):
            [each async for each in client.dead_letters("nowhere")]
        await fill(client, topic, 250)
        async with client.consumer(group, topic) as consumer:
            rejected = 0
            while rejected < 250:
                batch = await consumer.poll()
                rejected += len(batch)
                odd = [each for each in batch if each.offset % 2]
                consumer.reject(odd, "odd")
                consumer.reject([each for each in batch if not each.offset % 2], "even")
            # More than fit into one page.
            letters = await letters_of(client, topic, 250)
            assert sorted(each.origin_offset for each in letters) == list(range(250))
            assert {each.group for each in letters} == {group}
            assert {each.deliveries for each in letters} == {1}
            assert not any(each.redriven for each in letters)
            odd_ones = [each async for each in client.dead_letters(topic, error="odd")]
            assert sorted(each.origin_offset for each in odd_ones) == list(range(1, 250, 2))
            assert [each async for each in client.dead_letters(topic, group="another")] == []
            tomorrow = datetime.now(UTC) + timedelta(days=1)
            assert [each async for each in client.dead_letters(topic, since=tomorrow)] == []
            assert len(await letters_of(client, topic, 250, until=tomorrow)) == 250

            would = await client.redrive(topic, error="odd", dry_run=True)
            assert (would.matched, would.redriven, would.by_topic) == (125, 0, {topic: 125})
            did = await client.redrive(topic, letters=letters[:2])
            assert (did.matched, did.redriven) == (2, 2)
            did = await client.redrive(topic, rate=100_000)
            assert (did.matched, did.redriven, did.already) == (248, 248, 2)
            again = []
            while len(again) < 250:
                batch = await consumer.poll()
                again += [each.value for each in batch]
                await consumer.ack(batch)
            assert sorted(again, key=int) == [b"%d" % number for number in range(250)]
            assert (await client.redrive(topic)).already == 250
            with pytest.raises(InvalidRequest, match="letters is empty"):
                await client.redrive(topic, letters=[])


async def test_what_consumers_did_is_counted(broker: BrokerProcess, topic: str, group: str) -> None:
    async with broker.async_client() as client:
        before = await client.reliability_stats()
        await fill(client, topic, 3)
        async with client.consumer(group, topic) as consumer:
            one, two, three = await consumer.poll()
            await asyncio.gather(one.ack(), two.nack(delay=60), three.reject("no"))
        after = await client.reliability_stats()
        assert (after.acks - before.acks, after.nacks - before.nacks, after.rejects - before.rejects) == (1, 1, 1)
