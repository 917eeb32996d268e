"""Cutting a partition back while the broker runs, and with it everything that follows from its log.

What counts is never cut off: everything below the high watermark, which is all that readers and groups have seen. So of
groups, streams, and what was read ahead for them, nothing lies behind a cut.
"""

from __future__ import annotations

import asyncio

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.model.errors import InvalidRequest, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.storage.files.disk_errors import told
from goqueue.storage.log.truncation import (
    PlannedCut,
    Result,
    Work,
    begin_cut,
    cutting_failed,
    finish_cut,
    lowered,
    plan_cut,
)

log = get_logger(__name__)


async def truncate_partition(
    topic: Topic, number: int, offset: int, checkpoints: Checkpoints, stillness: FileFreeze
) -> int:
    """Remove everything from ``offset`` on, and all of a producer's batch that it would split; return the new end. The
    cut is durable when this returns, and the partition goes on from there.

    Whoever waits for what is gone gets an error, and appends are refused meanwhile. Must not be cancelled.
    """
    partition = topic.partition(number)
    # Else what removes or replaces files (compaction, a save of what is derived, a recovery point) would meet it half
    # done, and a backup would have a part of it.
    async with stillness.held():
        _check(partition, offset)
        partition.log.is_being_cut = True
        try:
            end = await _truncate(topic, number, partition, offset, checkpoints)
        finally:
            partition.log.is_being_cut = False
    partition.wake()
    return end


async def _truncate(topic: Topic, number: int, partition: Partition, offset: int, checkpoints: Checkpoints) -> int:
    cut = partition.log
    try:
        planned = await _in_stretches(plan_cut(cut, offset))
        if planned is None:
            return cut.end_offset
        await _lower_point(partition, planned, checkpoints)
    except OSError as error:
        raise told(error, "preparing a cut") from error
    # From here until the log ends there nothing else runs.
    _check(partition, planned.offset)
    before = cut.end_offset
    begin_cut(cut, planned)
    log.warning("a partition is cut back", place=partition.place, from_offset=before, to_offset=planned.offset)
    topic.dedup.cut(number, planned.offset)
    partition.producers.has_ids = topic.dedup.has_any(number)
    try:
        for _ in partition.cut(planned.offset):
            await asyncio.sleep(0)
        await _in_stretches(finish_cut(cut, planned))
    except OSError as error:
        raise cutting_failed(cut, error) from error
    except BaseException:
        cut.fail("a cut did not come to its end")
        raise
    return planned.offset


def _check(partition: Partition, offset: int) -> None:
    if partition.log.failure is not None:
        raise partition.reason(StorageFailed(f"this partition takes no more writes: {partition.log.failure}"))
    if offset < partition.high_watermark:
        raise InvalidRequest(
            f"partition {partition.place} cannot be cut at offset {offset}: everything below "
            f"{partition.high_watermark} counts"
        )


async def _lower_point(partition: Partition, planned: PlannedCut, checkpoints: Checkpoints) -> None:
    point = checkpoints.point(partition.log.folder)
    if point is not None:
        less = lowered(point, partition.log, planned)
        if less is not point:
            await checkpoints.replace(partition.log.folder, less)


async def _in_stretches(work: Work[Result]) -> Result:
    stretch = TimeSlice()
    while True:
        try:
            step = next(work)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        if step is not None:
            await asyncio.to_thread(step)
        elif stretch.is_over:
            await stretch.rest()
