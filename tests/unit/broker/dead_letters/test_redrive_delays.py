"""Dead letters that go back to their topic after a delay."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.broker.dead_letters.redrive import Filter
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import InvalidMessage


async def a_dead_letter(bench: GroupBench) -> str:
    await bench.topic()
    member = await bench.join()
    await bench.publish(b"poison")
    assert await bench.settle("reject", *await bench.poll(member)) == [None]
    await bench.moved()
    return member


async def fired(bench: GroupBench) -> None:
    async with asyncio.timeout(60):
        while bench.broker.delays.stats().pending:  # noqa: ASYNC110
            await asyncio.sleep(0)


def config(path: Path) -> Config:
    return Config(storage=StorageConfig(path=str(path)))


@on_a_loop
async def test_a_redrive_with_a_delay_waits_like_any_delayed_message(tmp_path: Path) -> None:
    async with GroupBench(config(tmp_path)) as bench:
        member = await a_dead_letter(bench)
        report = await bench.broker.groups.dead_letters.redrive("t", Filter(), 10, None, dry_run=False, delay_ms=10_000)
        assert report.redriven == 1
        assert (await bench.broker.delays.page("t", 10)).total == 1
        bench.pass_time(9_990)
        assert await bench.poll(member) == []
        bench.pass_time(10)
        await fired(bench)
        assert [got.value for got in await bench.poll(member, wait_ms=5_000)] == [b"poison"]


@on_a_loop
async def test_what_waits_after_a_redrive_is_not_redriven_twice_over_a_restart(tmp_path: Path) -> None:
    async with GroupBench(config(tmp_path)) as bench:
        await a_dead_letter(bench)
        await bench.broker.groups.dead_letters.redrive("t", Filter(), 10, None, dry_run=False, delay_ms=10_000)
        clock = bench.clock
    async with GroupBench(config(tmp_path), clock) as bench:
        report = await bench.broker.groups.dead_letters.redrive("t", Filter(), 10, None, dry_run=False)
        assert (report.redriven, report.already) == (0, 1)
        bench.pass_time(10_000)
        await fired(bench)
        (member,) = bench.broker.groups.shards.find("g").group.state.members
        assert [got.value for got in await bench.poll(member, wait_ms=5_000)] == [b"poison"]
        assert await bench.poll(member) == []


@on_a_loop
async def test_a_redrive_cannot_be_put_off_for_ever(tmp_path: Path) -> None:
    async with GroupBench(config(tmp_path)) as bench:
        await a_dead_letter(bench)
        with pytest.raises(InvalidMessage, match="2200"):
            await bench.broker.groups.dead_letters.redrive("t", Filter(), 10, None, dry_run=False, delay_ms=1 << 62)
