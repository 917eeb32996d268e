"""How many series there can be: what has none of its own is counted together, and never uncounted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import uvloop

from behaviour.host import config_for
from behaviour.scraped import Scraped
from goqueue.broker.broker import Broker
from goqueue.broker.groups.membership import Join
from goqueue.broker.queues.polling import PollBounds
from goqueue.model.config import MetricsConfig
from goqueue.model.publishing import NewMessage

FRAME_BYTES = 35
"""Of a message with one byte and nothing else."""


@asynccontextmanager
async def capped(path: Path, **caps: int) -> AsyncIterator[Broker]:
    async with Broker(replace(config_for(path), metrics=replace(MetricsConfig(), **caps))) as broker:
        yield broker


async def create(broker: Broker, name: str, partitions: int) -> None:
    await broker.create_topic(name, {"partitions": partitions})


async def publish(broker: Broker, topic: str, values: bytes, partition: int) -> None:
    await broker.publish(topic, [NewMessage(value=bytes([each]), partition=partition) for each in values])


async def take(broker: Broker, group: str, topics: Sequence[str], count: int) -> None:
    member = (await broker.groups.membership.join(group, Join("test", list(topics), {}))).member_id
    found = await broker.groups.polling.poll(group, member, PollBounds(count, 1 << 20))
    assert sum(len(each.run) for each in found) == count


async def scrape(broker: Broker) -> Scraped:
    return Scraped((await broker.metrics.scrape(openmetrics=True)).decode())


def test_beyond_the_cap_topics_are_counted_together(tmp_path: Path) -> None:
    async def run() -> None:
        async with capped(tmp_path, max_topics=2) as broker:
            for name in ("b", "a", "d", "c"):
                await create(broker, name, 2)
                await publish(broker, name, b"xy", 1)
            found = await scrape(broker)
            # The oldest have their own.
            both = 2 * FRAME_BYTES
            assert found.all("published_bytes_total", "topic") == {"b": both, "a": both, "__other": 2 * both}
            assert found.all("messages_published_total", "topic", lane="normal") == {"b": 2, "a": 2, "__other": 4}
            assert found.all("topic_partitions", "topic") == {"b": 2, "a": 2, "__other": 4}
            assert found("partition_end_offset", topic="__other", partition="__other") == 4
            assert found("topics") == 4

            await broker.delete_topic("a")
            await publish(broker, "d", b"z", 0)
            found = await scrape(broker)
            # The next has the place that is free; what has been counted together stays counted.
            sizes = {"b": both, "d": 3 * FRAME_BYTES, "__other": 2 * both}
            assert found.all("published_bytes_total", "topic") == sizes
            assert found.all("topic_partitions", "topic") == {"b": 2, "d": 2, "__other": 2}
            await broker.delete_topic("c")
            found = await scrape(broker)
            assert found.all("published_bytes_total", "topic") == sizes
            assert found.all("topic_partitions", "topic") == {"b": 2, "d": 2}

    uvloop.run(run())


def test_the_same_topics_have_their_own_after_a_restart(tmp_path: Path) -> None:
    async def shown() -> set[str]:
        async with capped(tmp_path, max_topics=2) as broker:
            if not broker.topic_names():
                for name in ("b", "c", "a"):
                    await create(broker, name, 1)
            return set((await scrape(broker)).all("topic_size_bytes", "topic"))

    assert [uvloop.run(shown()) for _ in range(2)] == [{"b", "c", "__other"}] * 2


def test_beyond_the_cap_groups_are_counted_together(tmp_path: Path) -> None:
    async def run() -> None:
        async with capped(tmp_path, max_groups=1, max_topics=1) as broker:
            await create(broker, "t", 2)
            await create(broker, "u", 1)
            await publish(broker, "t", b"xy", 1)
            await publish(broker, "u", b"z", 0)
            for group in ("z", "a", "b"):
                await take(broker, group, ["t", "u"], 3)
            for _ in range(2):
                found = await scrape(broker)
                assert found("groups") == 3
                assert found.all("group_members", "group") == {"z": 1, "__other": 2}
                assert found("messages_delivered_total", group="z", topic="t") == 2
                assert found("messages_delivered_total", group="z", topic="__other") == 1
                assert found("messages_delivered_total", group="__other", topic="__other") == 6
                assert found("group_in_flight_messages", group="__other", topic="__other") == 6
                assert found.all("group_lag_messages", "partition", group="z", topic="t") == {"0": 0, "1": 2}
                assert found("group_lag_messages", group="z", topic="__other", partition="__other") == 1
                assert found("group_lag_messages", group="__other", topic="__other", partition="__other") == 6
                assert found.all("end_to_end_seconds_count", "group") == {"z": 3, "__other": 6}
                assert found.all("lane_delivered_total", "group", lane="normal") == {"z": 3, "__other": 6}

    uvloop.run(run())


def test_beyond_the_cap_partitions_are_counted_by_topic(tmp_path: Path) -> None:
    async def run() -> None:
        async with capped(tmp_path, max_partitions=3) as broker:
            for topic, partitions in (("t", 2), ("u", 3)):
                await create(broker, topic, partitions)
                for number in range(partitions):
                    await publish(broker, topic, b"x", number)
            await take(broker, "g", ["t", "u"], 5)
            for _ in range(2):
                found = await scrape(broker)
                assert found.all("partition_end_offset", "partition", topic="t") == {"0": 1, "1": 1}
                assert found.all("partition_end_offset", "partition", topic="u") == {"0": 1, "__other": 2}
                lags = [found.all("group_lag_messages", "partition", group="g", topic=topic) for topic in ("t", "u")]
                assert [sum(each.values()) for each in lags] == [2, 3]
                assert sum(len(each.keys() - {"__other"}) for each in lags) == 3
            # What is free when a topic is gone is for others.
            await broker.delete_topic("t")
            await create(broker, "v", 2)
            found = await scrape(broker)
            assert found.all("partition_end_offset", "partition", topic="v") == {"0": 0, "1": 0}
            left = found.all("group_lag_messages", "partition", group="g", topic="u")
            assert left == {"0": 1, "1": 1, "2": 1}

    uvloop.run(run())


def test_a_partition_whose_disk_failed_and_damaged_messages_are_counted(tmp_path: Path) -> None:
    async def run() -> None:
        async with capped(tmp_path) as broker:
            await create(broker, "t", 2)
            broker.topic("t").partitions[1].log.fail("as a test wants it")
            broker.topic("t").partitions[0].note_damage([3, 4])
            found = await scrape(broker)
            assert (found("failed_partitions"), found("ready"), found("damaged_messages")) == (1, 0, 2)

    uvloop.run(run())


def test_a_group_shows_times_and_lanes_once_it_has_got_something(tmp_path: Path) -> None:
    """Thousands of groups that only exist must not make a scrape large."""

    async def run() -> None:
        async with capped(tmp_path) as broker:
            await create(broker, "t", 1)
            await broker.groups.membership.join("idle", Join("test", ["t"], {}))
            await publish(broker, "t", b"x", 0)
            await take(broker, "busy", ["t"], 1)
            found = await scrape(broker)
            assert found.all("group_members", "group") == {"idle": 1, "busy": 1}
            assert found.all("group_lag_messages", "group") == {"idle": 1, "busy": 1}
            assert found.all("lane_delivered_total", "lane", group="busy") == {"normal": 1}
            assert found.all("lane_delivered_total", "lane", group="idle") == {}
            assert found.all("end_to_end_seconds_count", "group") == {"busy": 1}
            lines = (await broker.metrics.scrape(openmetrics=False)).decode().splitlines()
            assert sum('group="idle"' in line for line in lines) <= 15

    uvloop.run(run())
