"""A log does what a list of messages does, whatever happens to it in whatever order."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from doubles.lane_messages import check_all_lanes, check_lanes
from doubles.messages import START_NS, Ticking, read_all, read_run, stamp_header
from doubles.pinned import Pinned
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from goqueue.model.message import HIDDEN, Message, Priority
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.truncation import truncate_to
from goqueue.wire.batch import join_frames
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import Flag, encode_frame

KEYS = [b"a", b"b", b"c", b"d" * 20]
LANES = [2, 2, 2, 2, 0, 1, 3, 4, HIDDEN]
messages = st.lists(
    st.tuples(st.sampled_from(KEYS), st.integers(0, 120), st.integers(0, 50), st.sampled_from(LANES)),
    min_size=1,
    max_size=5,
)
Content = list[tuple[bytes, int, int, int]]


class LogMachine(RuleBasedStateMachine):
    """``model`` holds what must be served, by offset; ``end`` is the next offset.

    Hidden messages are delayed; those in ``pending`` must stay, even when the log's start moves past them.

    ``batches`` are those of producers, which a cut takes whole. What compaction leaves of one is plain (rule 8): a cut
    may split that. Those in ``looked_at`` met a pass that was dropped, of which a start may or may not finish a swap.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.clock = Ticking()
        self.model: dict[int, Message] = {}
        self.lanes: dict[int, int] = {}
        self.pending: set[int] = set()
        self.start = self.end = 0
        self.batches: list[tuple[int, int]] = []
        self.looked_at: set[int] = set()
        self.point: RecoveryPoint | None = None
        self.serial = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(
        segment_bytes=st.sampled_from([300, 700, 2_000]),
        files=st.sampled_from([3, 6, 90]),
        lane_bytes=st.sampled_from([0, 1_500, 1 << 20]),
    )
    def begin(self, segment_bytes: int, files: int, lane_bytes: int) -> None:
        self.options = LogOptions(segment_bytes, 200)
        self.files = files
        self.lane_bytes = lane_bytes
        self.log = self.opened()

    def opened(self) -> Log:
        files = OpenFiles(OsFiles(), self.files, self.lane_bytes)
        return open_log(files, self.root, self.options, self.clock, self.point)

    def pinned(self) -> Pinned:
        return Pinned(self.log, self.pending)

    def make_plain(self, low: int, high: int) -> None:
        self.batches = [(first, until) for first, until in self.batches if not low <= first < high]

    @rule(content=messages, stamped=st.booleans(), normal=st.booleans())
    def append(self, content: Content, stamped: bool, normal: bool) -> None:
        values, frames = [], []
        for place, (key, size, at, lane) in enumerate(content):
            lane = Priority.NORMAL if normal else lane
            self.serial += 1
            values.append(b"%d" % self.serial * size if size > 10 else b"")
            flags = Flag(0) if values[-1] else Flag.TOMBSTONE
            priority = lane
            if lane == HIDDEN:
                flags, priority = flags | Flag.DELAYED, Priority.HIGH
                self.pending.add(self.end + place)
            headers = stamp_header(len(content)) if stamped and place == 0 else b""
            frames.append(encode_frame(key, values[-1], headers, START_NS + at, priority, flags))
            self.lanes[self.end + place] = lane
        first = self.log.append(join_frames(frames, START_NS + max(at for _, _, at, _ in content)))
        assert first == self.end
        if stamped:
            self.batches.append((first, first + len(content)))
        run = read_run(self.log, first, 1 << 20)
        assert run is not None
        found, damaged = decode_run(run)
        assert not damaged
        assert [(message.key, message.value, message.timestamp_ns - START_NS) for message in found] == [
            (key, value, at) for (key, _, at, _), value in zip(content, values, strict=True)
        ]
        self.model |= {message.offset: message for message in found}
        self.end += len(content)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        max_bytes = data.draw(st.integers(0, 1_000))
        max_messages = data.draw(st.integers(0, 6))
        limit = data.draw(st.none() | st.integers(0, self.end + 2))
        run = read_run(self.log, offset, max_bytes, max_messages, limit)
        wanted = [each for each in sorted(self.model) if each >= offset and (limit is None or each < limit)]
        if run is None:
            assert not wanted
            return
        found, damaged = decode_run(run)
        assert not damaged
        assert [message.offset for message in found] == wanted[: len(found)]
        assert all(self.model[message.offset] == message for message in found)
        assert len(found) == 1 or (len(run.frames) <= max_bytes and len(found) <= max_messages)

    @rule(at=st.integers(-1, 52))
    def look_up(self, at: int) -> None:
        later = [offset for offset, message in sorted(self.model.items()) if message.timestamp_ns >= START_NS + at]
        assert self.log.offset_at(START_NS + at) == (later[0] if later else self.end)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.cut(data.draw(st.integers(self.start, self.end)))

    def cut(self, wanted: int) -> None:
        target = min([first for first, until in self.batches if first < wanted < until], default=wanted)
        target = max(target, self.start)
        got = truncate_to(self.log, wanted, self.forget)
        assert got == target or (got == wanted and target in self.looked_at)
        self.model = {offset: message for offset, message in self.model.items() if offset < got}
        self.batches = [(first, until) for first, until in self.batches if until <= got]
        self.looked_at = {first for first in self.looked_at if first < got}
        self.end = got
        self.pending = {offset for offset in self.pending if offset < got}
        if self.log.segments[0].base < self.start:
            # Without a point a start takes what is kept below the log's start for its beginning.
            self.point = self.pinned().recovery_point()

    def forget(self) -> None:
        self.point = None

    @rule(retention_bytes=st.integers(0, 3_000))
    def retain(self, retention_bytes: int) -> None:
        self.start = self.log.start_offset = self.log.expired(None, retention_bytes)
        self.point = self.pinned().recovery_point()
        self.pinned().drop_below_start(self.log.start_offset)
        self.model = {offset: message for offset, message in self.model.items() if offset >= self.start}
        for segment in self.log.segments:
            assert segment.below > self.start or self.pinned().holds(segment)

    @rule(data=st.data())
    @precondition(lambda self: self.pending)
    def settle(self, data: st.DataObject) -> None:
        self.pending.discard(data.draw(st.sampled_from(sorted(self.pending))))

    @rule(max_keys=st.sampled_from([1, 2, 1_000]), tombstones_ms=st.sampled_from([0, 10**9]), stop=st.integers(0, 40))
    def compact(self, max_keys: int, tombstones_ms: int, stop: int) -> None:
        newest = {message.key: offset for offset, message in sorted(self.model.items()) if self.lanes[offset] != HIDDEN}
        self.looked_at |= {first for first, _ in self.batches if first < self.log.active.base}
        rules = CompactionRules(
            self.end, tombstones_ms, max_keys, self.pending.__contains__, on_replaced=self.make_plain
        )
        steps = compact(self.log, rules)
        for number, step in enumerate(steps):
            if number == stop:
                break
            if step is not None:
                step()
        left = {message.offset for message in read_all(self.log)}
        for offset in set(self.model) - left:
            message = self.model.pop(offset)
            if self.lanes[offset] == HIDDEN:
                assert offset not in self.pending
                continue
            assert offset < newest[message.key] or (message.tombstone and tombstones_ms == 0)
            older = [
                each
                for each in left
                if each < offset and self.model[each].key == message.key and self.lanes[each] != HIDDEN
            ]
            assert not (message.tombstone and older), "what was deleted came back"
        assert left <= set(self.model)

    @rule()
    def note_point(self) -> None:
        self.point = self.pinned().recovery_point()

    @rule()
    def reopen(self) -> None:
        self.log = self.opened()
        assert self.log.start_offset <= self.start or self.point is None
        self.start = self.log.start_offset

    @rule()
    @precondition(lambda self: self.start == 0)
    def reopen_without_a_point(self) -> None:
        self.point = None
        self.log = self.opened()
        self.start = self.log.start_offset

    @rule(data=st.data(), suffix=st.sampled_from([".lanes", ".lanes", ".index", ".timeindex"]))
    def damage_an_index_and_reopen(self, data: st.DataObject, suffix: str) -> None:
        paths = sorted(self.root.glob(f"*{suffix}"))
        if not paths:
            return
        path = data.draw(st.sampled_from(paths))
        content = bytearray(path.read_bytes())
        how = data.draw(st.sampled_from(["flip", "cut", "remove"]))
        if how == "remove" or not content:
            path.unlink()
        elif how == "cut":
            path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        else:
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            path.write_bytes(content)
        self.reopen()

    @rule(data=st.data())
    def ask_for_lanes(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        limit = data.draw(st.integers(0, self.end + 2))
        check_lanes(
            self.log, self.served_lanes(), offset, limit, data.draw(st.integers(0, 1_000)), data.draw(st.integers(0, 6))
        )

    def served_lanes(self) -> dict[int, int]:
        return {offset: self.lanes[offset] for offset in self.model}

    @invariant()
    def lanes_lead_to_everything(self) -> None:
        if hasattr(self, "log") and self.serial % 3 == 1:
            check_all_lanes(self.log, self.served_lanes())
            assert self.log.open_files.lane_bytes <= self.lane_bytes

    @invariant()
    def what_is_pending_can_be_read(self) -> None:
        for offset in self.pending:
            found = self.log.read_kept(offset, 1)
            assert found is not None
            assert found.load().columns()["offset"].tolist() == [offset]
            assert self.log.has(offset)

    @invariant()
    def bounds_are_known(self) -> None:
        if hasattr(self, "log"):
            assert self.log.end_offset == self.end
            assert self.log.durable_offset <= self.end

    @invariant()
    def the_log_serves_the_model(self) -> None:
        if hasattr(self, "log") and self.serial % 3 == 0:
            assert {message.offset: message for message in read_all(self.log)} == self.model


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogAgainstAList = LogMachine.TestCase


def test_rule_8_a_cut_may_split_what_compaction_left_of_a_producers_batch() -> None:
    machine = LogMachine()
    try:
        machine.begin(segment_bytes=300, files=3, lane_bytes=0)
        machine.append([(b"a", 0, 0, Priority.NORMAL), (b"b", 0, 0, Priority.NORMAL)], stamped=True, normal=True)
        machine.roll()
        machine.compact(max_keys=1_000, tombstones_ms=10**9, stop=40)
        assert not machine.batches
        machine.cut(1)
        assert machine.end == 1
        machine.the_log_serves_the_model()
        machine.bounds_are_known()
    finally:
        machine.teardown()
