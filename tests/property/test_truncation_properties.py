"""A partition that was cut back while it was at work knows what one knows that is opened anew from its files."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from doubles.lane_messages import check_all_lanes
from doubles.messages import START_NS, Ticking, read_all
from doubles.no_listeners import NoListeners

from goqueue.broker.partitions.dedup_ids import DedupIds, Room
from goqueue.broker.partitions.derived_state import DerivedState
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.partitions.truncation import truncate_partition
from goqueue.broker.runtime.checkpoints import Checkpoints
from goqueue.broker.runtime.file_freeze import FileFreeze
from goqueue.coordination.catalog import TopicRecord
from goqueue.model.errors import InvalidRequest
from goqueue.model.ids import TopicId
from goqueue.model.message import HIDDEN
from goqueue.model.topic_settings import TopicSettings
from goqueue.storage.files.checkpoint import CheckpointFile, RecoveryPoint
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.wire.batch import CheckedBatch, FrameRun, join_frames
from goqueue.wire.delayed import due_header, fire
from goqueue.wire.frame import INVISIBLE, Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import DEDUP_ID, ProducerStamp
from goqueue.wire.producer_frames import Marker, stamp_batch
from goqueue.wire.verify import FrameRules, verify_batch

LATER_NS = START_NS + 10**15
RULES = FrameRules(1 << 20, START_NS + 10**18)
IN_TRANSACTION = FrameRules(1 << 20, START_NS + 10**18, in_transaction=True)
PRODUCERS = [3, 4, 5]
STEPS = 60


class Acknowledging:
    """Durability that goes as far as a test says."""

    def __init__(self) -> None:
        self.at = 0

    def reached(self, log: Log, offset: int) -> asyncio.Future[None]:
        self.at = max(self.at, offset)
        log.synced(log.unsynced())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def sync(self, logs: object) -> None:
        pass

    def end(self, log: Log) -> int:
        return self.at

    def follow(self, log: Log, on_move: Callable[[], None]) -> None:
        pass

    def unfollow(self, log: Log) -> None:
        pass


class Timers(NoListeners):
    """Remembers what was set; a stale entry is told by its due time, as the wheel's are."""

    def __init__(self) -> None:
        self.entries: set[tuple[int, int]] = set()

    def set_due(self, partition: object, offsets: Any, dues: Any) -> None:
        self.entries |= set(zip(offsets.tolist(), dues.tolist(), strict=True))

    added = set_due


class Life:
    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = Random(seed)
        self.root = folder
        self.place = folder / "logs" / "t" / "0"
        self.clock = Ticking()
        self.files = OsFiles()
        self.options = LogOptions(self.rng.choice([700, 3_000, 1 << 20]), 200)
        self.durability, self.stillness, self.timers = Acknowledging(), FileFreeze(), Timers()
        log = open_log(OpenFiles(self.files, 40, self.rng.choice([0, 1 << 20])), self.place, self.options, self.clock)
        self.partition = Partition(log, self.durability, "always", "t/0", self.timers, self.timers)
        self.checkpoints = Checkpoints(
            self.files,
            folder,
            CheckpointFile(self.files, folder / "checkpoint"),
            self.durability,  # type: ignore[arg-type]
            self.stillness,
        )
        record = TopicRecord(TopicId("0" * 32), "t", 1, START_NS)
        self.topic = Topic(record, TopicSettings(), [self.partition], DedupIds(Room(10**6)))
        self.serial = 0
        self.cuts = 0

    # What is appended

    def frames(self, kinds: list[str], flags: int = 0) -> list[bytes]:
        made = []
        for kind in kinds:
            self.serial += 1
            headers = (due_header(LATER_NS + self.serial),) if kind == "delayed" else ()
            if kind == "known":
                headers = ((DEDUP_ID, b"id%d" % self.serial),)
            of_kind = flags | (int(Flag.DELAYED) if kind == "delayed" else 0)
            value = b"%d" % self.serial * self.rng.choice([1, 1, 40])
            made.append(
                encode_frame(
                    b"k", value, encode_headers(headers), START_NS + self.serial, self.rng.randrange(5), of_kind
                )
            )
        return made

    def kinds(self) -> list[str]:
        return [self.rng.choice(["plain", "plain", "delayed"]) for _ in range(self.rng.randint(1, 4))]

    def publish(self) -> None:
        self.partition.append(checked(self.frames(self.kinds())))

    def publish_once(self) -> None:
        count = self.rng.randint(1, 3)
        first_id = self.serial + 1
        first = self.partition.append(checked(self.frames(["known"] * count)))
        self.partition.producers.stored_ids(first)
        for place in range(count):
            self.topic.dedup.add(b"id%d" % (first_id + place), 0, first + place, self.clock())

    def publish_in_sequence(self) -> None:
        producer_id = self.rng.choice(PRODUCERS)
        state = self.partition.producers.state
        known, is_open = state.known.get(producer_id), state.open_of(producer_id) is not None
        epoch = 0 if known is None else known.epoch + (not is_open and self.rng.random() < 0.1)
        in_transaction = is_open or self.rng.random() < 0.5
        frames = self.frames(self.kinds(), int(Flag.TRANSACTIONAL) if in_transaction else 0)
        stamp = ProducerStamp(producer_id, epoch, state.next_sequence(producer_id, epoch), len(frames))
        assert state.find(*stamp) is None
        batch = checked(stamp_batch(frames, stamp), IN_TRANSACTION if in_transaction else RULES)
        self.partition.append(batch, in_transaction=in_transaction)

    def end_transaction(self) -> None:
        known = self.partition.producers.state.known
        opened = [each for each, producer in known.items() if producer.open is not None]
        if opened:
            producer_id = self.rng.choice(opened)
            marker = Marker(producer_id, known[producer_id].epoch, self.rng.random() < 0.5)
            self.partition.append_marker(marker)

    def waiting(self) -> list[int]:
        offsets: list[int] = self.partition.delays.pending.entries()[0].tolist()
        return offsets

    def fire(self) -> None:
        waiting = self.waiting()
        chosen = self.rng.sample(waiting, min(len(waiting), self.rng.randint(1, 4)))
        if chosen:
            originals = [self.partition.log.read_kept(offset, 1, 1).load().frames for offset in chosen]  # type: ignore[union-attr]
            copies = fire(originals, chosen, START_NS)[0]
            dues = self.partition.delays.pending.dues_of(np.array(chosen)).tolist()
            self.timers.entries -= set(zip(chosen, dues, strict=True))
            self.partition.append_fired(join_frames(copies, START_NS), chosen, START_NS)

    def cancel(self) -> None:
        if waiting := self.waiting():
            self.partition.append_cancel(self.rng.choice(waiting))

    def reschedule(self) -> None:
        if waiting := self.waiting():
            self.serial += 1
            self.partition.append_reschedule(self.rng.choice(waiting), LATER_NS * 2 + self.serial)

    # What happens to it

    def roll(self) -> None:
        self.partition.log.roll()

    def acknowledge(self) -> None:
        self.durability.reached(self.partition.log, self.partition.log.end_offset)

    async def save(self) -> None:
        await self.partition.derived.save_producers(self.topic.dedup.of(0))
        await self.partition.derived.save_delays()

    async def note_point(self) -> None:
        """It may tell of more than what counts."""
        await self.checkpoints.save([self.partition.derived])

    async def truncate(self) -> None:
        low, high = self.partition.high_watermark, self.partition.log.end_offset
        if low:
            with pytest.raises(InvalidRequest, match="counts"):
                await self.cut(self.rng.randrange(low))
        end = await self.cut(self.rng.randint(low, high))
        assert low <= end <= high
        assert end == self.partition.log.end_offset
        self.cuts += 1
        self.check(None)
        self.check(self.checkpoints.point(self.place))

    async def cut(self, offset: int) -> int:
        return await truncate_partition(self.topic, 0, offset, self.checkpoints, self.stillness)

    # What must be true

    def check(self, point: RecoveryPoint | None) -> None:
        copied = self.root / "copied"
        shutil.copytree(self.place, copied, dirs_exist_ok=True)
        try:
            log = open_log(OpenFiles(self.files, 40), copied, self.options, self.clock, point)
            anew = DerivedState(log, Acknowledging())
            anew.producers.recover(self.files, point, self.clock())
            anew.delays.recover(self.files, point)
            dedup = DedupIds(Room(10**6))
            dedup.restore(0, anew.producers.loaded_ids, anew.producers.found_ids, self.clock())
            assert log.missing is None
            assert not log.lost.ranges
            assert told_of(self.partition.log) == told_of(log)
            assert told_of_derived(self.partition.derived) == told_of_derived(anew)
            assert ids(self.topic.dedup) == ids(dedup)
            assert self.partition.producers.has_ids == anew.producers.has_ids
        finally:
            shutil.rmtree(copied)
        offsets, dues = self.partition.delays.pending.entries()
        assert set(zip(offsets.tolist(), dues.tolist(), strict=True)) <= self.timers.entries, "each has its timer"
        check_all_lanes(self.partition.log, lanes_in(self.partition.log))


def checked(frames: list[bytes], rules: FrameRules = RULES) -> CheckedBatch:
    joined = join_frames(frames, 0)
    return verify_batch(FrameRun(memoryview(joined.frames), joined.positions), rules)


def told_of(log: Log) -> object:
    found = [(each.offset, each.value, each.timestamp_ns) for each in read_all(log)]
    times = [log.offset_at(timestamp_ns) for timestamp_ns in range(START_NS, START_NS + 200, 7)]
    return log.end_offset, found, times


def lanes_in(log: Log) -> dict[int, int]:
    found: dict[int, int] = {}
    at = log.start_offset
    while (located := log.locate(at, 1 << 20)) is not None:
        for header in located.load().columns():
            found[int(header["offset"])] = HIDDEN if header["flags"] & INVISIBLE else int(header["priority"])
        at = located.next_offset
    return found


def told_of_derived(derived: DerivedState) -> object:
    state, delays = derived.producers.state, derived.delays
    known = {each: (producer.epoch, producer.batches, producer.open) for each, producer in state.known.items()}
    held = {owner: [each.tolist() for each in pending.entries()] for owner, pending in delays._held.items()}
    pending = [each.tolist() for each in delays.pending.entries()]
    return known, state.aborted.runs(), state.aborted_delayed.runs(), state.first_open, pending, held, len(delays)


def ids(dedup: DedupIds) -> dict[bytes, int]:
    return {each.digest: each.offset for each in dedup.of(0)}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_derived_after_a_cut_is_what_a_replay_makes_of_the_log(tmp_path: Path, seed: int) -> None:
    async def live() -> int:
        life = Life(tmp_path, seed)
        steps: dict[Callable[[], Any], int] = {
            life.publish: 10,
            life.publish_once: 4,
            life.publish_in_sequence: 14,
            life.end_transaction: 6,
            life.fire: 5,
            life.cancel: 2,
            life.reschedule: 4,
            life.roll: 2,
            life.acknowledge: 3,
            life.save: 1,
            life.note_point: 2,
            life.truncate: 6,
        }
        for step in life.rng.choices(list(steps), list(steps.values()), k=STEPS):
            outcome = step()
            if asyncio.iscoroutine(outcome):
                await outcome
        await life.truncate()
        return life.cuts

    assert asyncio.run(live()) >= 1
