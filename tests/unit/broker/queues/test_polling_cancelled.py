"""A poll that is cancelled has taken nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.model.config import Config, StorageConfig


@on_a_loop
async def test_what_a_cancelled_poll_was_about_to_answer_is_anyones_at_once_and_does_not_count(tmp_path: Path) -> None:
    async with GroupBench(Config(storage=StorageConfig(path=str(tmp_path)))) as it:
        await it.topic(partitions=2)
        member = await it.join(kind="shared")
        await it.publish(b"a", b"b")
        group = it.broker.groups.shards.find("g")
        for _ in range(6):
            polling = asyncio.create_task(it.poll(member))
            while not group.in_flight(member):  # noqa: ASYNC110
                await asyncio.sleep(0)
            # Decided, and waiting for the disk.
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            assert not group.in_flight(member)
        assert [(each.value, each.count) for each in await it.poll(member)] == [(b"a", 1), (b"b", 1)]
