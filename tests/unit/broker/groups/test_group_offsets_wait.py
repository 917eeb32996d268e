"""Committed offsets are told once they are durable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.model.config import Config, StorageConfig
from goqueue.model.publishing import NewMessage


@on_a_loop
async def test_offsets_that_are_not_durable_are_not_told(tmp_path: Path) -> None:
    async with GroupBench(Config(storage=StorageConfig(path=str(tmp_path)))) as it:
        await it.topic(partitions=1)
        await it.broker.publish("t", [NewMessage(b"a"), NewMessage(b"b")])
        member = await it.join(mode="stream")
        offsets, commits, go_on = it.broker.groups.offsets, it.broker._commits, asyncio.Event()
        carry_out = commits._round

        async def held(planned: Any, waiting: Any) -> None:
            await go_on.wait()
            await carry_out(planned, waiting)

        commits._round = held  # type: ignore[method-assign]
        committing = asyncio.create_task(offsets.commit("g", member, {"t": {0: 2}}))
        asking = asyncio.create_task(offsets.committed("g", None))
        for _ in range(50):
            await asyncio.sleep(0)
        told = committing.done(), asking.done()
        go_on.set()
        await committing
        assert told == (False, False), "a power cut would take back what was told"
        assert await asking == {"t": {0: 2}}
