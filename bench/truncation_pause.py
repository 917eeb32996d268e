"""How long the loop is held while a full segment is cut back, of which nothing counts yet: at its start, in its middle,
near its end. Its messages are of ten thousand producers, in all lanes, some in transactions, some delayed."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from asyncio.events import Handle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import Measured, note, rounded, scratch_folder
from goqueue.broker.partitions.dedup_ids import DedupIds, Room
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.partitions.truncation import truncate_partition
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.coordination.catalog import TopicRecord
from goqueue.model.ids import TopicId
from goqueue.model.topic_settings import TopicSettings
from goqueue.storage.files.checkpoint import CheckpointFile
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import Marker, stamp_batch
from goqueue.wire.verify import FrameRules, verify_batch

NAME = "truncation_pause_ms"
_MS = 1_000
_CUTS = {"start": 0.0, "middle": 0.5, "end": 0.99}
_RUNS = 3
_PRODUCERS = 10_000
_BATCH = 8
_VALUE = b"v" * 90
_LANES = 5
_SEED = 7


class _Unacknowledged(GroupCommit):
    """Nothing counts."""

    def end(self, log: object) -> int:
        return 0


class _Unheard:
    """No events and no timers."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_args, **_named: None


@dataclass(frozen=True, slots=True)
class _Held:
    """The longest that one callback held the loop, in processor time of its thread and by the clock."""

    cpu_ms: float
    wall_ms: float
    took_ms: float
    messages: int


def measure() -> Measured:
    found: list[dict[str, _Held]] = []
    for _ in range(_RUNS):
        of_run: dict[str, _Held] = {}
        for where, share in _CUTS.items():
            with scratch_folder() as folder:
                of_run[where] = asyncio.run(_cut(folder, share))
        found.append(of_run)
        note(f"{NAME}: {of_run}")
    details = {
        "segment_bytes": TopicSettings().segment_bytes,
        "messages": max(each.messages for of_run in found for each in of_run.values()),
        "producers": _PRODUCERS,
        "by_place_ms": [{where: each.cpu_ms for where, each in of_run.items()} for of_run in found],
        "with_waits_ms": [{where: each.wall_ms for where, each in of_run.items()} for of_run in found],
        "cut_took_ms": [{where: each.took_ms for where, each in of_run.items()} for of_run in found],
    }
    return Measured([max(each.cpu_ms for each in of_run.values()) for of_run in found], details)


async def _cut(folder: Path, share: float) -> _Held:
    files, stillness = OsFiles(), FileFreeze()
    commits = _Unacknowledged(files, folder)
    checkpoints = Checkpoints(files, folder, CheckpointFile(files, folder / "checkpoint"), commits, stillness)
    settings = TopicSettings()
    options = LogOptions(settings.segment_bytes)
    log = open_log(OpenFiles(files, 400), folder / "logs" / "t" / "0", options, time.time_ns)
    unheard: Any = _Unheard()
    partition = Partition(log, commits, "always", "t/0", unheard, unheard)
    topic = Topic(TopicRecord(TopicId("0" * 32), "t", 1, 0), settings, [partition], DedupIds(Room(1)))
    _fill(partition, settings.segment_bytes)
    messages = log.end_offset
    # As polls have it: the lanes of what was written last are in memory.
    partition.next_visible(0)
    began = time.perf_counter()
    with _watched() as longest:
        end = await truncate_partition(topic, 0, int(messages * share), checkpoints, stillness)
    took_s = time.perf_counter() - began
    assert end == log.end_offset <= int(messages * share)
    await commits.close()
    return _Held(rounded(longest[0] * _MS), rounded(longest[1] * _MS), rounded(took_s * _MS), messages)


def _fill(partition: Partition, size: int) -> None:
    chance = random.Random(_SEED)
    now_ns = time.time_ns()
    later = encode_headers((due_header(now_ns + 10**15),))
    plain = [encode_frame(b"key", _VALUE, b"", now_ns, lane) for lane in range(_LANES)]
    held = [encode_frame(b"key", _VALUE, b"", now_ns, lane, int(Flag.TRANSACTIONAL)) for lane in range(_LANES)]
    delayed = encode_frame(b"key", _VALUE, later, now_ns, 2, int(Flag.DELAYED))
    sequences = dict.fromkeys(range(1, _PRODUCERS + 1), 0)
    for number in itertools.count():
        if partition.log.size_bytes > size - (64 << 10):
            return
        producer_id = chance.randint(1, _PRODUCERS)
        in_transaction = number % 4 == 0
        frames = chance.choices(held if in_transaction else plain, k=_BATCH)
        if not in_transaction:
            frames[-1] = delayed
        stamp = ProducerStamp(producer_id, 0, sequences[producer_id], _BATCH)
        sequences[producer_id] += _BATCH
        joined = join_frames(stamp_batch(frames, stamp), now_ns)
        rules = FrameRules(1 << 20, now_ns + 10**12, in_transaction=in_transaction)
        batch = verify_batch(FrameRun(memoryview(joined.frames), joined.positions), rules)
        partition.append(batch, in_transaction=in_transaction)
        if in_transaction:
            partition.append_marker(Marker(producer_id, 0, number % 8 == 0))


@contextmanager
def _watched() -> Iterator[list[float]]:
    kind: Any = Handle
    run, longest = kind._run, [0.0, 0.0]

    def watched(handle: Any) -> None:
        began_s, began = time.thread_time(), time.perf_counter()
        run(handle)
        longest[0] = max(longest[0], time.thread_time() - began_s)
        longest[1] = max(longest[1], time.perf_counter() - began)

    kind._run = watched
    try:
        yield longest
    finally:
        kind._run = run
