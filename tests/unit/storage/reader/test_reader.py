"""Reading a partition's files: what is whole is shown, whatever they look like, and nothing is ever changed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from doubles.messages import START_NS, Ticking, batch_of, stamp_header
from doubles.pinned import Pinned
from doubles.unsynced_files import UnsyncedFiles

from goqueue.model.errors import OffsetOutOfRange, TopicNotFound
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.checkpoint import CheckpointFile
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.truncation import Cut, truncate_to
from goqueue.storage.reader.reader import LogReader, read_runs
from goqueue.wire.batch import join_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import Flag, encode_frame

LOG = ".log"


class Partition:
    """The log of a broker, and its files."""

    def __init__(self, root: Path, segment_bytes: int = 600) -> None:
        self.root = root
        self.folder = root / "logs" / "t~1" / "0"
        self.options = LogOptions(segment_bytes, 150)
        self.log = self.opened()
        self.pending: set[int] = set()

    def opened(self) -> Log:
        point = CheckpointFile(UnsyncedFiles(), self.root / "checkpoint").load().get("logs/t~1/0")
        return open_log(OpenFiles(UnsyncedFiles(), 30), self.folder, self.options, Ticking(), point)

    def publish(self, count: int, *, size: int = 40, keys: int = 0) -> None:
        for _ in range(count):
            at = self.log.end_offset
            key = b"%d" % (at % keys) if keys else b""
            self.log.append(batch_of([b"%04d" % at * (size // 4)], keys=[key], timestamps=[START_NS + at]))

    def save_point(self) -> None:
        self.log.synced(self.log.unsynced())
        pinned = Pinned(self.log, self.pending)
        point = pinned.recovery_point()
        CheckpointFile(UnsyncedFiles(), self.root / "checkpoint").save({"logs/t~1/0": point})
        pinned.point_saved(point)

    def compact(self, *, until_decided: bool = False) -> None:
        for step in compact(self.log, CompactionRules(self.log.end_offset, 0, 1_000)):
            if step is not None:
                step()
            if until_decided and any(self.folder.glob("*.swap")):
                return

    def path(self, number: int, suffix: str) -> Path:
        return sorted(self.folder.glob(f"*{suffix}"))[number]

    def tail(self, data: bytes) -> None:
        with self.path(-1, LOG).open("ab") as file:
            file.write(data)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def read(folder: Path, low: int = 0, high: int = 1 << 40, **options: int) -> list[int]:
    """The offsets of what is there; every message must be the one that was published."""
    found, damaged = read_with_damage(folder, low, high, **options)
    assert not damaged
    return found


def read_with_damage(folder: Path, low: int = 0, high: int = 1 << 40, **options: int) -> tuple[list[int], list[int]]:
    """The same, and the offsets of frames that fail their checksums."""
    found: list[int] = []
    hurt: list[int] = []
    for run in read_runs(folder, low, high, **options):  # type: ignore[arg-type]
        messages, damaged = decode_run(run)
        hurt += run.columns()["offset"][damaged].tolist()
        assert all(each.value == b"%04d" % each.offset * (len(each.value) // 4) for each in messages)
        found += [each.offset for each in messages]
    return found, hurt


def state_of(root: Path) -> Iterator[tuple[str, int, int, str]]:
    for path in sorted(root.rglob("*")):
        stat = path.stat()
        yield (
            str(path.relative_to(root)),
            stat.st_mtime_ns,
            stat.st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )


def test_messages_are_read_from_any_offset_to_any(partition: Partition) -> None:
    partition.publish(40)
    reader = LogReader(partition.folder)
    assert (reader.start_offset, reader.end_offset, reader.stable_end) == (0, 40, 40)
    assert reader.size_bytes == partition.log.size_bytes
    for low, high in [(0, 40), (7, 8), (5, 31), (38, 99), (40, 41), (3, 3)]:
        assert read(partition.folder, low, high) == list(range(low, min(high, 40)))
    assert read(partition.folder, max_bytes=1) == list(range(40))


def test_runs_are_no_larger_than_asked_for(partition: Partition) -> None:
    partition.log.options = LogOptions(1 << 20, 150)
    partition.publish(100)
    sizes = [len(run.frames) for run in read_runs(partition.folder, 0, 100, max_bytes=1_000)]
    assert max(sizes) <= 1_000
    assert min(sizes[:-1]) > 900
    assert sum(sizes) == partition.log.size_bytes


def test_a_refresh_sees_what_is_new(partition: Partition) -> None:
    partition.publish(3)
    reader = LogReader(partition.folder)
    for _ in range(12):
        partition.publish(4)
        reader.refresh()
        assert reader.end_offset == partition.log.end_offset
    assert read(partition.folder, 0, reader.end_offset) == list(range(51))


def test_a_refresh_sees_what_is_gone(partition: Partition) -> None:
    partition.publish(20)
    reader = LogReader(partition.folder)
    truncate_to(partition.log, 5, lambda: None)
    reader.refresh()
    assert reader.end_offset == 5


def test_what_lies_behind_a_cut_that_was_decided_is_not_there(partition: Partition) -> None:
    partition.publish(3)
    partition.log.roll()
    partition.publish(3)
    cut = Cut(3, 3, 0)
    write_atomically(OsFiles(), cut.manifest(partition.folder), msgspec.json.encode(cut))
    assert LogReader(partition.folder).end_offset == 3
    assert read(partition.folder) == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 20, 33, 34, 60, 73])
def test_a_torn_write_is_not_there(partition: Partition, cut: int) -> None:
    partition.publish(3)
    frame = encode_frame(b"", b"torn" * 10, b"", START_NS, offset=3)
    partition.tail(frame[:cut])
    assert LogReader(partition.folder).end_offset == 3
    assert read(partition.folder) == [0, 1, 2]
    assert partition.opened().end_offset == 3


def test_a_whole_message_without_an_index_entry_is_there(partition: Partition) -> None:
    partition.publish(3)
    partition.tail(encode_frame(b"", b"0003", b"", START_NS, offset=3))
    reader = LogReader(partition.folder)
    assert reader.end_offset == 4
    assert read(partition.folder) == [0, 1, 2, 3]
    assert partition.opened().end_offset == 4


def test_one_that_was_torn_without_an_index_entry_is_not_there(partition: Partition) -> None:
    partition.publish(3)
    partition.tail(encode_frame(b"", b"0003", b"", START_NS, offset=3)[:-1] + b"\0")
    assert LogReader(partition.folder).end_offset == 3
    assert partition.opened().end_offset == 3


def test_one_that_was_changed_since_is_told_of_as_a_start_does(partition: Partition) -> None:
    partition.publish(3)
    partition.tail(encode_frame(b"", b"0003", b"", START_NS, offset=3)[:-1] + b"!")
    assert LogReader(partition.folder).end_offset == 4
    assert read_with_damage(partition.folder) == ([0, 1, 2], [3])
    started = partition.opened()
    assert (started.end_offset, [(each.first, each.end) for each in started.lost.open]) == (4, [(3, 4)])
    assert read_with_damage(partition.folder) == ([0, 1, 2], [3])
    started.lost.save(ranges := started.lost.acknowledged(1))
    started.lost.saved(ranges)
    assert read_with_damage(partition.folder) == ([0, 1, 2], [])


def test_a_batch_whose_end_is_missing_is_not_there(partition: Partition) -> None:
    partition.publish(3)
    partition.tail(encode_frame(b"", b"0003", stamp_header(2), START_NS, offset=3))
    assert LogReader(partition.folder).end_offset == 3
    assert read(partition.folder) == [0, 1, 2]
    assert partition.opened().end_offset == 3


def test_an_index_that_tells_of_more_than_the_log_holds_is_not_believed(partition: Partition) -> None:
    partition.publish(8)
    log = partition.path(-1, LOG)
    with log.open("ab") as file:
        file.truncate(log.stat().st_size - 10)
    assert LogReader(partition.folder).end_offset == 7
    assert read(partition.folder) == list(range(7))


def test_zeros_that_a_power_loss_left_are_not_there(partition: Partition) -> None:
    partition.publish(8)
    log = partition.path(-1, LOG)
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.seek(size - 74)
        file.write(bytes(74))
    assert LogReader(partition.folder).end_offset == 7
    assert partition.opened().end_offset == 7


@pytest.mark.parametrize("number", [0, 2, -1])
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "of another", "empty"])
def test_an_index_is_not_needed(partition: Partition, number: int, damage: str) -> None:
    partition.publish(40)
    index = partition.path(number, ".index")
    content = index.read_bytes()
    if damage == "missing":
        index.unlink()
    elif damage == "cut":
        index.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        index.write_bytes(content[:6] + bytes([content[6] ^ 1]) + content[7:])
    elif damage == "of another":
        index.write_bytes(partition.path(1, ".index").read_bytes()[4:])
    else:
        index.write_bytes(b"")
    reader = LogReader(partition.folder)
    assert reader.end_offset == 40
    assert read(partition.folder) == list(range(40))
    assert read(partition.folder, 3, 38) == list(range(3, 38))
    assert [reader.offset_at(START_NS + at) for at in (0, 7, 25, 39, 40)] == [0, 7, 25, 39, 40]


def test_what_lies_around_damage_is_read_where_no_index_tells_of_it(partition: Partition) -> None:
    partition.publish(8)
    partition.path(0, ".index").unlink()
    with partition.path(0, LOG).open("r+b") as file:
        file.seek(2 * 74 + 50)
        file.write(b"!")
    assert read_with_damage(partition.folder) == ([0, 1, 3, 4, 5, 6, 7], [2])
    assert LogReader(partition.folder).end_offset == 8


def test_what_compaction_has_left_is_read(partition: Partition) -> None:
    partition.publish(60, keys=7)
    partition.log.roll()
    partition.compact()
    partition.publish(2)
    reader = LogReader(partition.folder)
    assert (reader.start_offset, reader.end_offset) == (0, 62)
    assert read(partition.folder) == [*range(53, 62)]
    assert read(partition.folder, 54, 59) == [*range(54, 59)]
    assert reader.offset_at(START_NS + 55) == 55


def test_a_swap_that_was_decided_counts_as_carried_out(partition: Partition) -> None:
    partition.publish(60, keys=7)
    partition.log.roll()
    partition.save_point()
    partition.compact(until_decided=True)
    manifests = list(partition.folder.glob("*.swap"))
    assert list(partition.folder.glob("*.log.compacted"))
    before = list(state_of(partition.root))
    assert read(partition.folder) == [*range(53, 60)]
    reader = LogReader(partition.folder)
    assert (reader.start_offset, reader.end_offset) == (0, 60)
    assert list(state_of(partition.root)) == before
    # As a crash may leave it: some of the files have their new names, others not yet.
    made = next(partition.folder.glob("*.log.compacted"))
    made.rename(made.with_suffix(""))
    assert read(partition.folder) == [*range(53, 60)]
    # A manifest that cannot be read is none.
    manifests[0].write_bytes(b"damaged")
    assert read_with_damage(partition.folder, reader.start_offset)[0][-7:] == [*range(53, 60)]


def test_what_retention_has_removed_is_an_error_that_names_the_earliest(partition: Partition) -> None:
    partition.publish(40)
    partition.save_point()
    runs = read_runs(partition.folder, 0, 40, max_bytes=100)
    reader = LogReader(partition.folder)
    first = next(runs)
    partition.log.start_offset = 32
    partition.save_point()
    with pytest.raises(OffsetOutOfRange, match=r"offset \d+ of t~1, partition 0, .* earliest is 32 now"):
        read(partition.folder, 5, 40)
    # What is open stays readable, and then it is noticed.
    assert first.offset_at(0) == 0
    seen = []
    with pytest.raises(OffsetOutOfRange, match="earliest is 32 now"):
        seen.extend(run.offset_at(0) for run in runs)
    assert seen == list(range(1, seen[-1] + 1))
    assert seen[-1] < 32
    reader.refresh()
    assert reader.start_offset == 32
    assert read(partition.folder, 32, 40) == list(range(32, 40))


def test_files_that_are_kept_below_the_start_are_not_read(partition: Partition) -> None:
    partition.publish(40)
    partition.pending.add(0)
    partition.log.start_offset = 32
    partition.save_point()
    assert partition.path(0, LOG).name == f"{0:020d}.log"
    with pytest.raises(OffsetOutOfRange):
        read(partition.folder, 0, 40)


def test_a_compaction_meanwhile_loses_nothing_and_shows_nothing_twice(partition: Partition) -> None:
    partition.publish(60, keys=50)
    partition.log.roll()
    partition.save_point()
    runs = read_runs(partition.folder, 0, 60, max_bytes=100)
    found = [next(runs).offset_at(0) for _ in range(3)]
    assert len(list(partition.folder.glob("*.log"))) > 5
    partition.compact()
    for run in runs:
        found += [each.offset for each in decode_run(run)[0]]
    assert found == sorted(set(found))
    assert set(range(10, 60)) <= set(found), "none of these was superseded"


def test_what_readers_never_see_is_left_out(partition: Partition) -> None:
    flags = [0, Flag.CONTROL, 0, Flag.DELAYED, Flag.DELAYED, 0, 0, Flag.CONTROL]
    frames = [encode_frame(b"", b"%04d" % at, b"", START_NS, flags=int(each)) for at, each in enumerate(flags)]
    partition.log.append(join_frames(frames, START_NS))
    assert read(partition.folder) == [0, 2, 5, 6]
    found = read_runs(partition.folder, 0, 8, aborted=[(2, 6)])
    assert [each.offset for run in found for each in decode_run(run)[0]] == [0, 6]
    found = read_runs(partition.folder, 0, 8, aborted=[(2, 6)], uncommitted=True)
    assert [each.offset for run in found for each in decode_run(run)[0]] == [0, 2, 5, 6]


def test_instants(partition: Partition) -> None:
    partition.publish(40)
    for point in (False, True):
        if point:
            partition.save_point()
            partition.publish(5)
        reader = LogReader(partition.folder)
        for at in range(-1, 47):
            assert reader.offset_at(START_NS + at) == partition.log.offset_at(START_NS + at)


def test_nothing_is_ever_changed(partition: Partition) -> None:
    partition.publish(40)
    partition.save_point()
    partition.publish(9)
    partition.tail(b"GQ torn")
    partition.path(1, ".index").unlink()
    (partition.folder / "producers").write_bytes(b"damaged")
    before = list(state_of(partition.root))
    reader = LogReader(partition.folder)
    assert reader.end_offset == 49
    assert read(partition.folder) == list(range(49))
    reader.refresh()
    assert reader.offset_at(START_NS + 20) == 20
    assert reader.aborted(0, 49) == []
    assert list(state_of(partition.root)) == before


def test_a_partition_that_nothing_was_published_to_is_empty(partition: Partition) -> None:
    reader = LogReader(partition.folder)
    assert (reader.start_offset, reader.end_offset, reader.stable_end, reader.size_bytes) == (0, 0, 0, 0)
    assert reader.offset_at(START_NS) == 0
    assert read(partition.folder) == []
    partition.publish(2)
    reader.refresh()
    assert reader.stable_end == 2


def test_a_topic_that_is_deleted_meanwhile_is_said_to_be_gone(partition: Partition) -> None:
    partition.publish(2)
    reader = LogReader(partition.folder)
    shutil.rmtree(partition.folder)
    with pytest.raises(TopicNotFound, match="deleted"):
        reader.refresh()
    with pytest.raises(TopicNotFound, match="deleted"):
        read(partition.folder)


def test_files_that_never_settle_are_an_error(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    partition.publish(2)
    partition.path(0, ".index").write_bytes(b"")
    monkeypatch.setattr("os.path.samestat", lambda *_: False)
    with pytest.raises(Exception, match="changes faster than it can be read"):
        read(partition.folder)
