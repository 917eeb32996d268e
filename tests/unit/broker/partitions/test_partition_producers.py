"""What a start knows of producers, transactions and what these have delayed: from files, from the log, or from both."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
from doubles.disk_only import DiskOnly
from doubles.messages import START_NS, Ticking, read_run
from doubles.power_loss import PowerLossDisk

from goqueue.broker.partitions import partition_producers
from goqueue.broker.partitions.dedup_ids import DedupIds, Room
from goqueue.broker.partitions.derived_state import DerivedState
from goqueue.broker.partitions.partition_producers import DedupEntry, PartitionProducers, digest_of
from goqueue.broker.upkeep.compaction import compactable_below
from goqueue.model.offset_runs import OffsetRuns
from goqueue.model.producer_sequences import Producers, SentBatch
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.producer_replay import ProducersFile
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.truncation import truncate_to
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import DEDUP_ID, ProducerStamp
from goqueue.wire.producer_frames import Marker, marker_frame, stamp_batch
from goqueue.wire.verify import FrameRules, verify_batch

DUE_NS = START_NS + 10**15
DAY_NS = 86_400 * 10**9
FILES = OsFiles()


class Disk:
    """One partition's folder, and who works on it until the next start."""

    def __init__(self, folder: Path, segment_bytes: int = 1 << 24) -> None:
        self.folder = folder
        self.options = LogOptions(segment_bytes, compacted=True)
        self.clock = Ticking()
        self.point: RecoveryPoint | None = None
        self.sequences: dict[int, int] = {}
        self.start()

    def start(self) -> None:
        self.log: Log = open_log(OpenFiles(FILES, 20), self.folder, self.options, self.clock, self.point)
        self.derived = DerivedState(self.log, DiskOnly())
        self.producers, self.delays = self.derived.producers, self.derived.delays
        self.producers.recover(FILES, self.point, self.clock.now_ns)
        self.delays.recover(FILES, self.point)

    @property
    def state(self) -> Producers:
        return self.producers.state

    def plain(self, count: int = 1, dedup_id: bytes = b"") -> int:
        headers = encode_headers(((DEDUP_ID, dedup_id),)) if dedup_id else b""
        self.producers.has_ids = self.producers.has_ids or bool(dedup_id)
        return self.log.append(join_frames([encode_frame(b"", b"v", headers, START_NS)] * count, START_NS))

    def batch(
        self,
        producer_id: int,
        count: int = 1,
        *,
        is_open: bool = True,
        delayed: int = 0,
        size: int = 1,
        key: bytes = b"",
    ) -> int:
        """A producer's batch whose first messages are delayed."""
        flags = int(Flag.TRANSACTIONAL) if is_open else 0
        due = encode_headers((due_header(DUE_NS),))
        frames = [
            encode_frame(
                key,
                b"v" * size,
                due if place < delayed else b"",
                START_NS,
                flags=flags | (int(Flag.DELAYED) if place < delayed else 0),
            )
            for place in range(count)
        ]
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        joined = join_frames(stamp_batch(frames, ProducerStamp(producer_id, 0, sequence, count)), START_NS)
        rules = FrameRules(1 << 24, START_NS, in_transaction=is_open)
        checked = verify_batch(FrameRun(memoryview(joined.frames), joined.positions), rules)
        first = self.log.append(checked)
        assert checked.producer is not None
        self.producers.stored(checked.producer, first, checked, self.clock.now_ns, is_open=is_open)
        if delayed:
            self.delays.hold(producer_id, first + np.arange(delayed), np.full(delayed, DUE_NS))
        return first

    def end(self, producer_id: int, *, is_commit: bool) -> int:
        marker = Marker(producer_id, 0, is_commit)
        at = self.log.append(join_frames([marker_frame(marker, START_NS)], START_NS))
        self.producers.ended(marker)
        self.delays.end_hold(producer_id, is_commit=is_commit)
        return at

    def sync(self) -> None:
        self.log.synced(self.log.unsynced())

    def note_point(self) -> None:
        self.sync()
        self.point = self.derived.recovery_point()
        self.derived.point_saved(self.point)

    def save_producers(self, ids: list[DedupEntry] | None = None) -> None:
        self.sync()
        as_of, payload = self.producers.dump(ids or [])
        write_atomically(FILES, self.producers.path, payload)
        self.producers.saved(as_of, self.producers.changes)

    def save_delays(self) -> None:
        self.sync()
        as_of, payload = self.delays.dump()
        write_atomically(FILES, self.delays.path, payload)
        self.delays.saved(as_of, self.delays.changes)

    def compact(self) -> None:
        first_open = self.producers.first_open
        stable = self.log.end_offset if first_open is None else first_open
        below = compactable_below(self.log.durable_offset, stable, self.producers)
        rules = CompactionRules(
            below, 10**9, 1_000, self.delays.is_wanted, self.state.aborted, self.producers.compacted
        )
        for step in compact(self.log, rules):
            if step is not None:
                step()

    def waiting(self) -> list[int]:
        return self.delays.pending.entries()[0].tolist()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "log")


def known(state: Producers) -> object:
    """Everything but when producers were heard of."""
    of_each = {each: (producer.epoch, producer.batches, producer.open) for each, producer in state.known.items()}
    return of_each, state.aborted, state.aborted_delayed, state.first_open


@pytest.mark.parametrize("scan_bytes", [1, 120, 333, 1 << 20])
def test_what_is_read_is_what_was_known_wherever_a_chunk_ends(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, scan_bytes: int
) -> None:
    for number in range(12):
        producer_id = number % 3
        disk.batch(producer_id, 1 + number % 5, delayed=number % 3)
        disk.plain(number % 2 + 1)
        if number % 4 == 3:
            disk.end(producer_id, is_commit=number % 8 == 3)
        if number == 5:
            disk.batch(9, 3, is_open=False)
    before = known(disk.state)
    assert disk.state.first_open is not None
    assert len(disk.state.aborted)
    assert len(disk.state.aborted_delayed)
    monkeypatch.setattr(partition_producers, "_SCAN_BYTES", scan_bytes)
    disk.start()
    assert known(disk.state) == before


def test_a_batch_larger_than_a_chunk_is_known_whole(disk: Disk) -> None:
    disk.plain()
    disk.batch(1, 5, size=400_000)
    disk.batch(2, 1, size=3 << 20)
    disk.batch(1, 2)
    before = known(disk.state)
    disk.start()
    assert known(disk.state) == before
    assert disk.state.open_of(1) is not None


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("how", [damage, Path.unlink])
def test_without_its_file_a_start_reads_all_and_so_does_the_next(disk: Disk, how: object) -> None:
    """The recovery point is older than the loss, and must not be taken for what the file knew."""
    first = disk.batch(1, 3)
    disk.end(1, is_commit=False)
    disk.batch(2)
    disk.save_producers()
    disk.plain(5)
    disk.note_point()
    before = known(disk.state)
    how(disk.producers.path)  # type: ignore[operator]
    for _ in range(2):
        disk.start()
        assert known(disk.state) == before
        assert first in disk.state.aborted
        assert not disk.producers.path.exists()


def test_a_file_that_is_ahead_of_the_log_is_not_believed(disk: Disk) -> None:
    disk.batch(1, 2)
    cut_at = disk.plain()
    before = known(disk.state)
    disk.batch(2, 4)
    disk.save_producers()
    assert truncate_to(disk.log, cut_at + 3, lambda: None) == cut_at + 1, "rule 8: all of a batch goes"
    for _ in range(2):
        disk.start()
        assert known(disk.state) == before
        # Long enough again for the file to be believed, were it still there.
        disk.plain(9)


def test_a_file_that_was_not_believed_is_not_back_after_a_power_loss() -> None:
    """When the log has grown again, it would no longer know more than the log."""
    disk, folder = PowerLossDisk(), Path("/data/log")
    log = open_log(OpenFiles(disk, 20), folder, LogOptions(), Ticking())
    log.append(join_frames([encode_frame(b"", b"v", b"", START_NS)], START_NS))
    producers = PartitionProducers(log)
    write_atomically(disk, producers.path, msgspec.msgpack.encode(ProducersFile(5, {}, b"", b"")))
    producers.recover(disk, None, START_NS)
    assert producers.saved_at == 0
    for seed in range(20):
        assert not disk.crash(Random(seed)).exists(producers.path), f"seed {seed}"


def test_a_point_from_before_there_were_producers_spares_reading_what_lies_below(disk: Disk) -> None:
    disk.plain(3)
    disk.note_point()
    assert disk.point is not None
    values = [*disk.point.__struct_fields__]
    older = {name: getattr(disk.point, name) for name in values if name != "producers_from"}
    disk.point = RecoveryPoint(**older)
    assert disk.point.producers_from == -1
    disk.batch(1)
    before = known(disk.state)
    disk.start()
    assert known(disk.state) == before
    assert disk.producers.needed_from() == 3


def test_nothing_is_read_from_when_nobody_was_known(disk: Disk) -> None:
    disk.plain(3)
    disk.note_point()
    assert disk.producers.needed_from() == 3
    disk.batch(1, is_open=False)
    disk.save_producers()
    assert disk.producers.needed_from() == 3, "a file may be lost"
    disk.state.forget(disk.clock.now_ns + 1, 0)
    assert disk.producers.needed_from() == 4


def test_compaction_waits_for_the_file_although_everyone_is_forgotten(disk: Disk) -> None:
    """Else the next start would believe a file in which a transaction is open whose end compaction has taken."""
    disk.batch(1, key=b"k")
    disk.save_producers()
    disk.end(1, is_commit=True)
    assert disk.state.forget(disk.clock.now_ns + 1, 0) == 1
    assert disk.producers.is_empty
    disk.log.roll()
    assert disk.producers.settled_below() == 1
    assert disk.producers.holds_up_compaction()
    disk.save_producers()
    assert disk.producers.settled_below() == disk.log.end_offset
    disk.sync()
    disk.compact()
    disk.start()
    assert disk.state.first_open is None
    found = read_run(disk.log, 0, 1 << 20)
    assert found is not None
    assert [message.offset for message in decode_run(found)[0]] == [0]


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("lost", ["nothing", "producers", "delays", "both"])
def test_rule_8_what_a_transaction_delayed_ends_as_decided_when_its_marker_is_compacted_away(
    disk: Disk, is_commit: bool, lost: str
) -> None:
    """The file of delays is from when the transaction was open, and names what was held."""
    first = disk.batch(1, 2, delayed=2, key=b"k")
    disk.save_delays()
    disk.end(1, is_commit=is_commit)
    disk.log.roll()
    disk.plain()
    disk.save_producers()
    disk.compact()
    assert disk.log.has(first) == is_commit
    # A later one of the same producer: what the file names is not its.
    held = disk.batch(1, 1, delayed=1)
    for name, path in (("producers", disk.producers.path), ("delays", disk.delays.path)):
        if lost in (name, "both"):
            path.unlink()
    disk.start()
    assert disk.waiting() == ([first, first + 1] if is_commit else [])
    assert disk.delays.due(held) == DUE_NS
    assert len(disk.delays) == len(disk.waiting()) + 1
    disk.end(1, is_commit=True)
    assert disk.waiting() == ([first, first + 1, held] if is_commit else [held])


@pytest.mark.parametrize("saved_after", range(7))
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_file_of_delays_from_any_moment_leads_to_the_same(disk: Disk, saved_after: int, is_commit: bool) -> None:
    steps = [
        lambda: disk.batch(1, 2, delayed=1),
        lambda: disk.batch(2, 2, delayed=2),
        lambda: disk.batch(1, 1, delayed=1),
        lambda: disk.end(1, is_commit=is_commit),
        lambda: disk.batch(1, 1, delayed=1),
        lambda: disk.end(2, is_commit=not is_commit),
    ]
    for number, step in enumerate(steps):
        if number == saved_after:
            disk.save_delays()
        if number == saved_after // 2:
            disk.save_producers()
        step()
    waiting, count = disk.waiting(), len(disk.delays)
    assert waiting == ([0, 4] if is_commit else [2, 3])
    for _ in range(2):
        disk.start()
        assert disk.waiting() == waiting
        assert len(disk.delays) == count == len(waiting) + 1
        assert disk.delays.due(6) == DUE_NS


def test_what_seems_open_below_the_start_has_ended(disk: Disk) -> None:
    """Retention stops at what is open. So the marker that the file does not know of was there, and is gone."""
    disk.batch(1, 2)
    disk.save_producers()
    disk.end(1, is_commit=True)
    disk.log.roll()
    later = disk.batch(1, 2)
    disk.log.start_offset = 3
    disk.note_point()
    assert disk.log.segments[0].base == 3
    disk.start()
    records = disk.state.open_of(1)
    assert records is not None
    assert disk.state.first_open == records.first == later


def test_a_marker_stays_while_records_that_it_tells_of_do_until_the_file_knows(disk: Disk) -> None:
    first = disk.batch(1, 1, delayed=1)
    disk.batch(2, 1, delayed=1)
    disk.log.roll()
    disk.end(1, is_commit=False)
    disk.end(2, is_commit=True)
    disk.log.roll()
    end = disk.plain()
    disk.save_delays()
    disk.log.start_offset = end
    disk.note_point()
    assert [segment.base for segment in disk.log.segments] == [0, 2, end], "its end is not known elsewhere"
    assert disk.producers.holds_up_files()
    disk.save_producers()
    assert not disk.producers.holds_up_files()
    disk.derived.drop_unneeded()
    assert [segment.base for segment in disk.log.segments] == [0, end]
    disk.delays.path.unlink()
    disk.start()
    assert disk.waiting() == [first + 1]


def test_what_is_open_is_no_part_of_a_transaction_whose_marker_is_gone(disk: Disk) -> None:
    waits = disk.batch(1, 1, delayed=1)
    disk.log.roll()
    disk.end(1, is_commit=True)
    disk.log.roll()
    later = disk.batch(1, 2)
    disk.save_delays()
    disk.save_producers()
    disk.log.start_offset = later
    disk.note_point()
    assert [segment.base for segment in disk.log.segments] == [waits, later]
    disk.producers.path.unlink()
    disk.start()
    records = disk.state.open_of(1)
    assert records is not None
    assert (records.first, records.end, disk.state.first_open) == (later, later + 2, later)
    assert disk.waiting() == [waits]


def test_a_reader_that_got_records_before_they_were_compacted_away_still_knows_what_was_aborted(disk: Disk) -> None:
    disk.batch(1, 3, key=b"k")
    disk.end(1, is_commit=False)
    disk.log.roll()
    disk.plain()
    disk.save_producers()
    at_that_time = disk.state.aborted
    disk.compact()
    assert len(disk.state.aborted) == 0, "what is not there is not counted"
    assert at_that_time.runs() == [(0, 3)]


def test_compaction_does_not_make_damage_look_whole(disk: Disk) -> None:
    disk.batch(1, 3, key=b"k", size=50)
    disk.end(1, is_commit=True)
    disk.batch(2, 1, is_open=False, key=b"x", size=50)
    disk.log.roll()
    disk.plain()
    disk.save_producers()
    path = disk.log.segments[0].log_path
    content = path.read_bytes()
    at = content.rindex(b"v" * 50)
    path.write_bytes(content[:at] + b"w" + content[at + 1 :])
    disk.compact()
    found = read_run(disk.log, 0, 1 << 20)
    assert found is not None
    messages, damaged = decode_run(found)
    assert [message.offset for message in messages] == [2]
    assert len(damaged) == 1


# Dedup ids


def test_dedup_ids_are_found_behind_the_file_with_the_time_at_which_they_came_at_the_latest(disk: Disk) -> None:
    disk.plain(dedup_id=b"old")
    disk.log.roll()
    disk.clock.now_ns += 2 * DAY_NS
    disk.plain(dedup_id=b"a")
    appended_ns = disk.log.active.times.last_append_ns
    disk.note_point()
    disk.clock.now_ns += 1_000_000
    disk.start()
    [found] = disk.producers.found_ids
    assert (found.digest, found.offset) == (digest_of(b"a"), 1), "no topic remembers for two days"
    assert found.at_ns <= appended_ns
    disk.save_producers(disk.producers.found_ids)
    disk.plain(dedup_id=b"b")
    disk.start()
    assert [each.digest for each in disk.producers.loaded_ids] == [digest_of(b"a")]
    assert [each.digest for each in disk.producers.found_ids] == [digest_of(b"b")]


def entry(dedup_id: bytes, offset: int, at_ns: int) -> DedupEntry:
    return DedupEntry(digest_of(dedup_id), offset, at_ns)


def test_of_two_messages_with_one_id_the_later_counts_after_a_start() -> None:
    """It was stored because the first one was forgotten by then."""
    room = Room(100)
    ids = DedupIds(room)
    ids.restore(0, [entry(b"x", 1, 10), entry(b"y", 2, 10)], [entry(b"x", 7, 50)], 60)
    ids.restore(1, [entry(b"y", 3, 40), entry(b"x", 4, 20)], [], 60)
    found = [ids.find(each, 30) for each in (b"x", b"y")]
    assert [None if each is None else tuple(each) for each in found] == [(0, 7), (1, 3)]
    assert room.used == len(ids) == 2
    ids.expire(100)
    assert room.used == len(ids) == 0
    assert not ids.has_any(0)


def test_ids_from_a_clock_that_was_ahead_do_not_outlive_those_that_follow() -> None:
    ids = DedupIds(Room(100))
    ids.restore(0, [entry(b"x", 1, 10**6)], [entry(b"y", 2, 50)], 60)
    ids.add(b"z", 0, 3, 70)
    ids.expire(65)
    assert [each.offset for each in ids.of(0)] == [3]


# Costs


def test_ten_thousand_open_transactions_cost_nothing_for_each_other() -> None:
    state, count = Producers(), 10_000
    began = time.process_time()
    for number in range(count):
        state.stored(number, 0, SentBatch(0, 1, number), 0)
        state.opened(number, number, number + 1, [number, number + 1])
        state.forget(0, 1)
    assert (state.open_delays().owners(np.arange(count, dtype=np.int64)) == np.arange(count)).all()
    for number in range(count):
        assert state.first_open == number
        state.ended(number, 0, is_commit=number % 2 == 0)
    assert time.process_time() - began < 2
    assert state.first_open is None


def test_a_hundred_thousand_aborted_runs_cost_a_reader_nothing() -> None:
    runs = OffsetRuns()
    for number in range(100_000):
        runs.add(3 * number, 3 * number + 1)
    asked = np.arange(150_000, 151_000, dtype=np.int64)
    began = time.process_time()
    for _ in range(1_000):
        mask = runs.mask(asked)
        assert mask is not None
        assert runs.end_of(150_000) == 150_001
    assert time.process_time() - began < 1
    assert mask.sum() == 334
