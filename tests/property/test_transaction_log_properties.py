"""Producers, transactions and delayed messages in one partition's log, whatever happens to it in whatever order.

A model knows what readers must see. Everything that the broker knows of it is derived: from the log, from two files
that may be older than it or gone, and from what compaction and retention have left.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from doubles.disk_only import DiskOnly
from doubles.lane_messages import check_all_lanes
from doubles.messages import START_NS, Ticking, read_run
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from goqueue.broker.partitions.derived_state import DerivedState
from goqueue.broker.partitions.partition_producers import DedupEntry, digest_of
from goqueue.broker.upkeep.compaction import compactable_below
from goqueue.model.message import HIDDEN
from goqueue.model.producer_sequences import WINDOW, SentBatch
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.truncation import truncate_to
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.delayed import due_header, fire
from goqueue.wire.frame import INVISIBLE, Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import DEDUP_ID, PRODUCER, ProducerStamp
from goqueue.wire.producer_frames import Marker, marker_frame, stamp_batch
from goqueue.wire.verify import FrameRules, verify_batch

KEYS = [b"a", b"b", b"c" * 20]
PRODUCERS = [3, 4, 5]
DUE_NS = START_NS + 10**15
RULES = FrameRules(1 << 20, START_NS + 10**18)
IN_TRANSACTION = FrameRules(1 << 20, START_NS + 10**18, in_transaction=True)
Content = list[tuple[bytes, str, int]]
contents = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["value", "value", "delayed", "tombstone"]), st.integers(0, 4)),
    min_size=1,
    max_size=4,
)


@dataclass(slots=True)
class Record:
    key: bytes
    value: bytes
    is_delayed: bool
    transaction: int | None = None
    """By number; none of them is 0."""
    due_ns: int = 0


@dataclass(slots=True)
class Transaction:
    producer_id: int
    is_commit: bool | None = None


class TransactionLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "log"
        self.clock = Ticking()
        self.files = OsFiles()
        self.point: RecoveryPoint | None = None
        self.records: dict[int, Record] = {}
        self.transactions: dict[int, Transaction] = {}
        self.open: dict[int, int] = {}
        self.sent: dict[int, list[SentBatch]] = {each: [] for each in PRODUCERS}
        self.ids: list[DedupEntry] = []
        self.done: dict[int, int] = {}
        """Delayed ones that became visible: as which record."""
        self.serial = 0
        self.gone_below = 0
        """Compaction has worked up to here."""
        self.is_exact = True
        """Whether nothing but the log is needed to know all: stamps go when it is compacted."""

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(segment_bytes=st.sampled_from([300, 900, 4_000]), compacted=st.booleans())
    def begin(self, segment_bytes: int, compacted: bool) -> None:
        self.options = LogOptions(segment_bytes, 200, compacted=compacted)
        self.opened()

    def opened(self) -> None:
        self.log: Log = open_log(OpenFiles(self.files, 20), self.folder, self.options, self.clock, self.point)
        self.derived = DerivedState(self.log, DiskOnly())
        self.producers, self.delays = self.derived.producers, self.derived.delays
        self.producers.recover(self.files, self.point, START_NS)
        self.delays.recover(self.files, self.point)

    # What producers do

    def frame(self, key: bytes, kind: str, priority: int, flags: int = 0, dedup_id: bytes = b"") -> bytes:
        self.serial += 1
        headers: tuple[tuple[str, bytes], ...] = ((DEDUP_ID, dedup_id),) if dedup_id else ()
        value = b"" if kind == "tombstone" else b"%d" % self.serial
        flags |= int(Flag.TOMBSTONE) if kind == "tombstone" else 0
        if kind == "delayed":
            headers, flags = (*headers, due_header(DUE_NS + self.serial)), flags | int(Flag.DELAYED)
        return encode_frame(key, value, encode_headers(headers), START_NS + self.serial, priority, flags)

    def put(self, content: Content, producer_id: int | None, transaction: int | None, dedup: bool = False) -> None:
        flags = int(Flag.TRANSACTIONAL) if transaction else 0
        before = self.serial
        frames = [
            self.frame(key, kind, priority, flags, b"id%d" % (self.serial + 1) if dedup else b"")
            for key, kind, priority in content
        ]
        if producer_id is not None:
            sent = self.sent[producer_id]
            sequence = sent[-1].first_sequence + sent[-1].count if sent else 0
            stamp = ProducerStamp(producer_id, 0, sequence, len(frames))
            assert self.producers.state.find(*stamp) is None
            frames = stamp_batch(frames, stamp)
        joined = join_frames(frames, 0)
        run = FrameRun(memoryview(joined.frames), joined.positions)
        batch = verify_batch(run, IN_TRANSACTION if transaction else RULES)
        first = self.log.append(batch)
        if batch.producer is not None:
            self.producers.stored(batch.producer, first, batch, START_NS, is_open=transaction is not None)
            self.sent[batch.producer.producer_id].append(SentBatch(sequence, len(frames), first))
        for place, (key, kind, _) in enumerate(content):
            number = before + 1 + place
            value = b"" if kind == "tombstone" else b"%d" % number
            self.records[first + place] = Record(key, value, kind == "delayed", transaction, DUE_NS + number)
            if dedup:
                self.ids.append(DedupEntry(digest_of(b"id%d" % number), first + place, START_NS))
                self.producers.has_ids = True
        offsets = np.array([first + at for at, (_, kind, _) in enumerate(content) if kind == "delayed"], np.int64)
        dues = np.array([self.records[each].due_ns for each in offsets.tolist()], np.int64)
        if transaction is not None and producer_id is not None:
            if len(offsets):
                self.delays.hold(producer_id, offsets, dues)
        else:
            self.delays.added(offsets, dues)

    @rule(content=contents, dedup=st.booleans())
    def publish(self, content: Content, dedup: bool) -> None:
        self.put(content, None, None, dedup)

    @rule(content=contents, producer_id=st.sampled_from(PRODUCERS))
    def publish_in_sequence(self, content: Content, producer_id: int) -> None:
        if producer_id not in self.open:
            self.put(content, producer_id, None)

    @rule(content=contents, producer_id=st.sampled_from(PRODUCERS))
    def publish_in_a_transaction(self, content: Content, producer_id: int) -> None:
        if producer_id not in self.open:
            self.open[producer_id] = number = len(self.transactions) + 1
            self.transactions[number] = Transaction(producer_id)
        self.put(content, producer_id, self.open[producer_id])

    @rule(data=st.data(), is_commit=st.booleans())
    @precondition(lambda self: self.open)
    def end(self, data: st.DataObject, is_commit: bool) -> None:
        self.end_one(data.draw(st.sampled_from(sorted(self.open))), is_commit)

    def end_one(self, producer_id: int, is_commit: bool) -> None:
        self.transactions[self.open.pop(producer_id)].is_commit = is_commit
        self.mark(producer_id, is_commit)

    def mark(self, producer_id: int, is_commit: bool) -> None:
        marker = Marker(producer_id, 0, is_commit)
        self.log.append(join_frames([marker_frame(marker, START_NS)], START_NS))
        self.producers.ended(marker)
        self.delays.end_hold(producer_id, is_commit=is_commit)

    @rule(data=st.data())
    def fire(self, data: st.DataObject) -> None:
        waiting = self.waiting()
        if not waiting:
            return
        offset = data.draw(st.sampled_from(sorted(waiting)))
        found = self.log.read_kept(offset, 1, 1)
        assert found is not None
        run = found.load()
        assert run.columns()["offset"].tolist() == [offset]
        fired = fire([run.frames], [offset], START_NS)[0][0]
        at = self.log.append(join_frames([fired], START_NS))
        assert not fired[3] & Flag.TRANSACTIONAL, "what depends on nothing any more is plain"
        self.delays.ended(np.array([offset], np.int64))
        original = self.records[offset]
        self.records[at] = Record(original.key, original.value, False)
        self.done[offset] = at

    # What the broker does by itself

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def sync(self) -> None:
        self.log.synced(self.log.unsynced())

    @rule(which=st.sampled_from(["producers", "delays", "both"]))
    def save(self, which: str) -> None:
        self.sync()
        if which != "delays":
            as_of, payload = self.producers.dump(self.ids)
            write_atomically(self.files, self.producers.path, payload)
            self.producers.saved(as_of, self.producers.changes)
        if which != "producers":
            as_of, payload = self.delays.dump()
            write_atomically(self.files, self.delays.path, payload)
            self.delays.saved(as_of, self.delays.changes)
        self.derived.drop_unneeded()

    @rule()
    def note_point(self) -> None:
        self.sync()
        self.point = self.derived.recovery_point()
        self.derived.point_saved(self.point)

    @rule(tombstones_ms=st.sampled_from([0, 10**9]), stop=st.sampled_from([3, 8, 10**6, 10**6]), prepared=st.booleans())
    @precondition(lambda self: self.options.compacted)
    def compact(self, tombstones_ms: int, stop: int, prepared: bool) -> None:
        if prepared:
            # Else an old transaction that is open mostly leaves nothing to do.
            for producer_id in list(self.open):
                self.end_one(producer_id, is_commit=(self.serial + producer_id) % 2 == 0)
            self.log.roll()
            self.save("producers")
        below = compactable_below(self.log.durable_offset, self.stable_end, self.producers)
        aborted = self.producers.state.aborted
        rules = CompactionRules(below, tombstones_ms, 1_000, self.delays.is_wanted, aborted, self.producers.compacted)
        for number, step in enumerate(compact(self.log, rules)):
            self.gone_below = below
            if number == stop:
                return
            if step is not None:
                step()
        self.producers.state.drop_below(self.log.cleaned_to)
        lanes: dict[int, int] = {}
        for run in self.runs(self.log.end_offset):
            for message, header in zip(decode_run(run)[0], run.columns(), strict=True):
                lanes[message.offset] = HIDDEN if header["flags"] & INVISIBLE else message.priority
                if message.offset < self.log.cleaned_to:
                    assert not header["flags"] & Flag.TRANSACTIONAL
            if int(run.columns()["offset"][-1]) < self.log.cleaned_to:
                assert PRODUCER.encode() not in bytes(run.frames)
        check_all_lanes(self.log, lanes)

    @rule(retention_bytes=st.integers(0, 2_000))
    @precondition(lambda self: not self.options.compacted)
    def retain(self, retention_bytes: int) -> None:
        self.log.start_offset = min(self.log.expired(None, retention_bytes), self.stable_end)
        self.note_point()

    # Starts

    @rule()
    def start_again(self) -> None:
        # Retention may have taken stamps before any file told of them: such a producer is not known any more.
        self.is_exact = self.is_exact and (
            not self.log.start_offset or self.log.segments[0].base <= self.producers.saved_at
        )
        self.opened()
        self.check_everything()

    @rule(which=st.sampled_from(["producers", "delays", "both"]), damaged=st.booleans(), without_point=st.booleans())
    @precondition(lambda self: self.options.compacted)
    def start_without_files(self, which: str, damaged: bool, without_point: bool) -> None:
        if which != "delays":
            self.lose(self.producers.path, damaged)
            self.is_exact = self.is_exact and not self.gone_below
        if which != "producers":
            self.lose(self.delays.path, damaged)
        if without_point:
            self.point = None
        self.opened()
        self.check_everything()

    @rule(damaged=st.booleans())
    @precondition(lambda self: not self.options.compacted)
    def start_without_the_file_of_producers(self, damaged: bool) -> None:
        self.lose(self.producers.path, damaged)
        self.is_exact = self.is_exact and not self.log.start_offset
        self.opened()
        self.check_everything()

    def lose(self, path: Path, damaged: bool) -> None:
        if damaged and path.exists():
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)
        else:
            path.unlink(missing_ok=True)

    @rule(data=st.data())
    @precondition(lambda self: self.options.compacted)
    def lose_the_end_and_start(self, data: st.DataObject) -> None:
        """Whatever is not known to be on the disk may go; of a producer's batch all or nothing."""
        safe = max(self.producers.saved_at, self.delays.saved_at, self.gone_below)
        if self.point is not None:
            safe = max(safe, self.point.base + self.point.count)
        wanted = data.draw(st.integers(safe, self.log.end_offset))
        end = truncate_to(self.log, wanted, self.forget_point)
        assert end <= wanted
        assert not any(
            each.first_offset < end < each.first_offset + each.count for sent in self.sent.values() for each in sent
        )
        self.records = {offset: each for offset, each in self.records.items() if offset < end}
        self.done = {offset: at for offset, at in self.done.items() if at < end}
        self.ids = [each for each in self.ids if each.offset < end]
        for producer_id, sent in self.sent.items():
            self.sent[producer_id] = [each for each in sent if each.first_offset < end]
        self.opened()
        self.take_up()
        self.check_everything()

    def forget_point(self) -> None:
        self.point = None

    def take_up(self) -> None:
        """What was decided is carried out again; a transaction of which nothing is left has not happened."""
        there = {each.transaction for each in self.records.values()}
        self.open = {producer_id: number for producer_id, number in self.open.items() if number in there}
        for producer_id, producer in list(self.producers.state.known.items()):
            if producer.open is not None and producer_id not in self.open:
                last = self.records[producer.open.end - 1].transaction
                assert last is not None
                is_commit = self.transactions[last].is_commit
                assert is_commit is not None
                self.mark(producer_id, is_commit)

    # What must be true

    @property
    def stable_end(self) -> int:
        first_open = self.producers.first_open
        return self.log.end_offset if first_open is None else min(self.log.end_offset, first_open)

    def fate(self, record: Record) -> str:
        if record.transaction is None:
            return "committed"
        is_commit = self.transactions[record.transaction].is_commit
        return "open" if is_commit is None else "committed" if is_commit else "aborted"

    def waiting(self) -> dict[int, int]:
        return {
            offset: each.due_ns
            for offset, each in self.records.items()
            if each.is_delayed and offset not in self.done and self.fate(each) == "committed"
        }

    def runs(self, limit: int) -> Any:
        offset = self.log.start_offset
        while (run := read_run(self.log, offset, 1 << 20, 7, limit)) is not None:
            yield run
            offset = int(run.columns()["offset"][-1]) + 1

    def seen(self) -> dict[int, tuple[bytes, bytes]]:
        found = {}
        for run in self.runs(self.stable_end):
            columns = run.columns()
            hidden = columns["flags"] & np.uint8(INVISIBLE) != 0
            among = self.producers.state.aborted.mask(columns["offset"].astype(np.int64))
            hidden = hidden if among is None else hidden | among
            for message, is_hidden in zip(decode_run(run)[0], hidden.tolist(), strict=True):
                if not is_hidden:
                    found[message.offset] = (message.key or b"", message.value)
        return found

    def check_everything(self) -> None:
        state = self.producers.state
        held: dict[int, dict[int, int]] = {}
        for producer_id, number in self.open.items():
            mine = {offset: each for offset, each in self.records.items() if each.transaction == number}
            records = state.open_of(producer_id)
            assert records is not None
            assert (records.first, records.end) == (min(mine), max(mine) + 1)
            delays = {offset: each.due_ns for offset, each in mine.items() if each.is_delayed}
            if delays:
                held[producer_id] = delays
        assert {each for each, producer in state.known.items() if producer.open is not None} == set(self.open)
        assert state.first_open == min((state.known[each].open.first for each in self.open), default=None)  # type: ignore[union-attr]
        assert dict(zip(*(each.tolist() for each in self.delays.pending.entries()), strict=True)) == self.waiting()
        found = {owner: each.entries() for owner, each in self.delays._held.items()}
        assert {owner: dict(zip(*map(np.ndarray.tolist, each), strict=True)) for owner, each in found.items()} == held
        assert len(self.delays) == len(self.waiting()) + sum(map(len, held.values()))
        if self.is_exact:
            known = {each: producer.batches for each, producer in state.known.items() if producer.batches}
            assert known == {each: sent[-WINDOW:] for each, sent in self.sent.items() if sent}
            ids = {each.digest: each.offset for each in (*self.producers.loaded_ids, *self.producers.found_ids)}
            assert ids == {each.digest: each.offset for each in self.ids}
        else:
            # What the file had told is lost; from here on all that there is is known again.
            for producer_id in PRODUCERS:
                known_one = state.known.get(producer_id)
                self.sent[producer_id] = [] if known_one is None else list(known_one.batches)
            left = {each.digest for each in (*self.producers.loaded_ids, *self.producers.found_ids)}
            self.ids = [each for each in self.ids if each.digest in left]
            self.is_exact = True
        self.producers.has_ids = bool(self.ids)

    @invariant()
    def readers_see_what_was_committed(self) -> None:
        if not hasattr(self, "log"):
            return
        seen = self.seen()
        last: dict[bytes, int] = {}
        for offset, each in sorted(self.records.items()):
            if (
                self.log.start_offset <= offset < self.stable_end
                and not each.is_delayed
                and self.fate(each) == "committed"
            ):
                last[each.key] = offset
                if not self.gone_below:
                    assert offset in seen
        for offset, (key, value) in seen.items():
            record = self.records[offset]
            assert self.fate(record) == "committed"
            assert not record.is_delayed
            assert (record.key, record.value) == (key, value)
        for key, offset in last.items():
            older = [each for each, (of, _) in seen.items() if of == key and each < offset]
            assert offset in seen or (not self.records[offset].value and not older), "a tombstone goes last"

    @invariant()
    def what_is_counted_is_there(self) -> None:
        if hasattr(self, "log"):
            aborted = self.producers.state.aborted
            for first, end in aborted.runs():
                if first >= self.log.start_offset:
                    assert all(self.log.has(offset) for offset in range(first, end)) or self.gone_below

    @invariant()
    def what_waits_can_be_read(self) -> None:
        if hasattr(self, "log"):
            assert all(self.log.has(offset) for offset in self.waiting())


TransactionLog.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestTransactionLog = TransactionLog.TestCase
