"""A log does what a list of messages does, whatever happens to it in whatever order."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from doubles.messages import START_NS, Ticking, batch_of, read_all
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from goqueue.model.message import Message
from goqueue.storage.checkpoint import RecoveryPoint
from goqueue.storage.compaction import CompactionRules, compact
from goqueue.storage.files import OsFiles
from goqueue.storage.log import Log, LogOptions
from goqueue.storage.open_files import OpenFiles
from goqueue.storage.recovery import open_log
from goqueue.wire.batch import decode_run

KEYS = [b"a", b"b", b"c", b"d" * 20]
messages = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 120), st.integers(0, 50)), min_size=1, max_size=5)


class LogMachine(RuleBasedStateMachine):
    """``model`` holds what must be served, by offset; ``end`` is the next offset."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.clock = Ticking()
        self.model: dict[int, Message] = {}
        self.start = self.end = 0
        self.batches: list[tuple[int, int]] = []
        self.point: RecoveryPoint | None = None
        self.serial = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(segment_bytes=st.sampled_from([300, 700, 2_000]), files=st.sampled_from([3, 6, 90]))
    def begin(self, segment_bytes: int, files: int) -> None:
        self.options = LogOptions(segment_bytes, 200)
        self.files = files
        self.log = self.opened()

    def opened(self) -> Log:
        return open_log(OpenFiles(OsFiles(), self.files), self.root, self.options, self.clock, self.point)

    @rule(content=messages, stamped=st.booleans())
    def append(self, content: list[tuple[bytes, int, int]], stamped: bool) -> None:
        values = []
        for _, size, _ in content:
            self.serial += 1
            values.append(b"%d" % self.serial * size if size > 10 else b"")
        batch = batch_of(
            values,
            keys=[key for key, _, _ in content],
            timestamps=[START_NS + at for _, _, at in content],
            stamped=stamped,
        )
        first = self.log.append(batch)
        assert first == self.end
        if stamped:
            self.batches.append((first, first + len(content)))
        run = self.log.read(first, 1 << 20)
        assert run is not None
        found, damaged = decode_run(run)
        assert not damaged
        assert [(message.key, message.value, message.timestamp_ns - START_NS) for message in found] == [
            (key, value, at) for (key, _, at), value in zip(content, values, strict=True)
        ]
        self.model |= {message.offset: message for message in found}
        self.end += len(content)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        max_bytes = data.draw(st.integers(0, 1_000))
        max_messages = data.draw(st.integers(0, 6))
        limit = data.draw(st.none() | st.integers(0, self.end + 2))
        run = self.log.read(offset, max_bytes, max_messages, limit)
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
        wanted = data.draw(st.integers(self.start, self.end))
        target = min([first for first, until in self.batches if first < wanted < until], default=wanted)
        target = max(target, self.start)
        got = self.log.truncate_to(wanted, self.forget)
        # Compaction may have taken the message that tells of the batch.
        assert got == target or (got == wanted and target not in self.model)
        self.model = {offset: message for offset, message in self.model.items() if offset < got}
        self.batches = [(first, until) for first, until in self.batches if until <= got]
        self.end = got

    def forget(self) -> None:
        self.point = None

    @rule(retention_bytes=st.integers(0, 3_000))
    def retain(self, retention_bytes: int) -> None:
        self.start = self.log.start_offset = self.log.expired(None, retention_bytes)
        self.point = self.log.recovery_point()
        self.log.drop_below_start(self.log.start_offset)
        self.model = {offset: message for offset, message in self.model.items() if offset >= self.start}

    @rule(max_keys=st.sampled_from([1, 2, 1_000]), tombstones_ms=st.sampled_from([0, 10**9]), stop=st.integers(0, 40))
    def compact(self, max_keys: int, tombstones_ms: int, stop: int) -> None:
        newest = {message.key: offset for offset, message in sorted(self.model.items())}
        steps = compact(self.log, CompactionRules(self.end, tombstones_ms, max_keys))
        for number, step in enumerate(steps):
            if number == stop:
                break
            if step is not None:
                step()
        left = {message.offset for message in read_all(self.log)}
        for offset in set(self.model) - left:
            message = self.model.pop(offset)
            assert offset < newest[message.key] or (message.tombstone and tombstones_ms == 0)
            older = [each for each in left if each < offset and self.model[each].key == message.key]
            assert not (message.tombstone and older), "what was deleted came back"
        assert left <= set(self.model)

    @rule()
    def note_point(self) -> None:
        self.point = self.log.recovery_point()

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
