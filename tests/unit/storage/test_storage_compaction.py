"""What compaction learns from, and what it leaves alone."""

from __future__ import annotations

import pytest
from doubles.messages import START_NS, OpenLog, batch_of, values_of

from goqueue.model.offset_runs import OffsetRuns
from goqueue.storage.compaction import CompactionRules, compact
from goqueue.storage.log import Log
from goqueue.wire.batch import join_frames
from goqueue.wire.frame import Flag, encode_frame
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.stamped import stamp_batch


@pytest.fixture
def log(reopen: OpenLog) -> Log:
    return reopen(segment_bytes=1 << 20)


def in_a_transaction(log: Log, key: bytes, value: bytes) -> int:
    frames = stamp_batch(
        [encode_frame(key, value, b"", START_NS, flags=int(Flag.TRANSACTIONAL))], ProducerStamp(7, 0, log.end_offset, 1)
    )
    return log.append(join_frames(frames, START_NS))


def compacted(log: Log, aborted: OffsetRuns) -> list[bytes]:
    log.roll()
    for step in compact(log, CompactionRules(log.end_offset, 10**9, 1_000, aborted=aborted)):
        if step is not None:
            step()
    return values_of(log)


def test_rule_8_the_last_committed_value_stays_when_a_later_one_was_aborted(log: Log) -> None:
    log.append(batch_of([b"old"], keys=[b"k"]))
    log.append(batch_of([b"committed"], keys=[b"k"]))
    aborted = in_a_transaction(log, b"k", b"aborted")
    assert compacted(log, OffsetRuns([(aborted, aborted + 1)])) == [b"committed"]


def test_rule_8_what_a_committed_transaction_wrote_supersedes_what_came_before(log: Log) -> None:
    log.append(batch_of([b"old"], keys=[b"k"]))
    in_a_transaction(log, b"k", b"committed")
    assert compacted(log, OffsetRuns(())) == [b"committed"]
