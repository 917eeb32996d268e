"""Putting figures together holds nobody up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from behaviour.host import config_for

from goqueue.broker.broker import Broker
from goqueue.broker.groups.membership import Join
from goqueue.broker.metrics import metrics
from goqueue.broker.queues.polling import PollBounds
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.model.config import MetricsConfig
from goqueue.model.publishing import NewMessage

PARTITIONS = 40


class Impatient(TimeSlice):
    """Whose time is always over."""

    rests = 0

    @property
    def is_over(self) -> bool:
        return True

    async def rest(self) -> None:
        Impatient.rests += 1
        await super().rest()


def test_a_scrape_can_give_way_at_every_partition_and_every_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with Broker(tmp_path / "data") as broker:
            await broker.create_topic("t", {"partitions": PARTITIONS})
            await broker.groups.membership.join("g", Join("test", ["t"], {}))
            await broker.metrics.scrape(openmetrics=True)
            assert Impatient.rests == 0
            monkeypatch.setattr(metrics, "TimeSlice", Impatient)
            text = await broker.metrics.scrape(openmetrics=True)
            assert Impatient.rests >= 2 * PARTITIONS
            assert text.count(b"goqueue_group_lag_messages{") == PARTITIONS

    asyncio.run(run())


def test_a_stretch_is_over_when_its_time_is_and_another_begins_after_the_rest() -> None:
    async def run() -> None:
        turns = []
        others = asyncio.create_task(_note(turns))
        short, long = TimeSlice(-1.0), TimeSlice(3_600.0)
        assert short.is_over
        assert not long.is_over
        await short.rest()
        assert turns == ["other"]
        await others

    asyncio.run(run())


async def _note(turns: list[str]) -> None:
    turns.append("other")


def test_a_closed_broker_has_stopped_looking_at_its_loop(tmp_path: Path) -> None:
    async def run() -> None:
        broker = Broker(tmp_path / "data")
        await broker.start()
        running = {task.get_name() for task in asyncio.all_tasks()}
        assert "measure the event loop's delay" in running
        await broker.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_two_brokers_in_one_process_do_not_share_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with capped(tmp_path / "a") as one, capped(tmp_path / "b") as other:
            for broker, count in ((one, 2), (other, 5)):
                await broker.create_topic("t", {"partitions": 1})
                for group in ("first", "second", "third"):
                    member = (await broker.groups.membership.join(group, Join("test", ["t"], {}))).member_id
                    if group == "first":
                        await broker.publish("t", [NewMessage(b"v")] * count)
                    await broker.groups.polling.poll(group, member, PollBounds(count, 1 << 20))
            monkeypatch.setattr(metrics, "TimeSlice", Impatient)
            texts = await asyncio.gather(*(each.metrics.scrape(openmetrics=True) for each in (one, other)))
            for text, count in zip(texts, (2, 5), strict=True):
                figure = b'goqueue_group_in_flight_messages{group="__other",topic="__other"} '
                assert figure + str(2 * count).encode() in text

    asyncio.run(run())


def capped(path: Path) -> Broker:
    return Broker(replace(config_for(path), metrics=replace(MetricsConfig(), max_groups=1)))
