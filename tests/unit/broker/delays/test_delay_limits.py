"""As many delayed messages as the broker allows, and no more; others are none the worse for it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop

from goqueue.model.config import Config, LimitsConfig, StorageConfig
from goqueue.model.errors import TooManyDelayed
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_frame, encode_headers


@on_a_loop
async def test_beyond_the_limit_only_delayed_messages_are_refused_and_only_those_beyond_it(tmp_path: Path) -> None:
    config = Config(storage=StorageConfig(path=str(tmp_path)), limits=LimitsConfig(max_delayed=3))
    async with GroupBench(config) as it:
        await it.topic()
        later = NewMessage(b"later", delay_ms=3_600_000)
        outcomes = await it.broker.publish("t", [later, NewMessage(b"now"), later, later, later, NewMessage(b"now")])
        assert [isinstance(each, Published) for each in outcomes] == [True, True, True, True, False, True]
        assert isinstance(outcomes[4], TooManyDelayed) and not outcomes[4].retriable
        await it.broker.delays.cancel("t", 0, 0)
        assert isinstance((await it.broker.publish("t", [later]))[0], Published)


@pytest.mark.parametrize("seed", range(4))
@on_a_loop
async def test_the_limit_holds_whatever_came_and_went_in_which_partition(tmp_path: Path, seed: int) -> None:
    """What waits is not counted each time; nobody may notice."""
    chance, most = Random(seed), 5
    config = Config(storage=StorageConfig(path=str(tmp_path)), limits=LimitsConfig(max_delayed=most))
    waits: list[tuple[int, int]] = []
    async with GroupBench(config) as it:
        await it.topic(partitions=3)
        for _ in range(60):
            if waits and chance.random() < 0.45:
                await it.broker.delays.cancel("t", *waits.pop(chance.randrange(len(waits))))
                continue
            message = NewMessage(b"later", delay_ms=3_600_000, partition=chance.randrange(3))
            [outcome] = await it.broker.publish("t", [message])
            assert isinstance(outcome, Published) == (len(waits) < most)
            if isinstance(outcome, Published):
                waits.append((outcome.partition, outcome.offset))
            assert it.broker.delays.pending == len(waits)


@on_a_loop
async def test_a_batch_of_frames_beyond_the_limit_is_refused_whole(tmp_path: Path) -> None:
    config = Config(storage=StorageConfig(path=str(tmp_path)), limits=LimitsConfig(max_delayed=1))
    async with GroupBench(config) as it:
        await it.topic()
        headers = encode_headers((due_header(3_600 * 10**9, relative=True),))
        frame = encode_frame(b"", b"v", headers, it.clock.now_ns(), flags=int(Flag.DELAYED))
        batch = join_frames([frame, frame], it.clock.now_ns())
        with pytest.raises(TooManyDelayed, match=r"limits\.max_delayed is 1"):
            await it.broker.publish_frames("t", 0, FrameRun(memoryview(batch.frames), batch.positions))
        assert it.broker.delays.stats().pending == 0 and it.broker.topic("t").partitions[0].log.end_offset == 0
