"""What compaction learns from, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from doubles.messages import START_NS, OpenLog, batch_of, values_of

from goqueue.model.offset_runs import OffsetRuns
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.log import Log
from goqueue.storage.log.truncation import truncate_to
from goqueue.wire.batch import join_frames
from goqueue.wire.frame import Flag, encode_frame
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_batch


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


def test_what_comes_after_a_cut_is_compacted_although_a_pass_had_been_further(log: Log) -> None:
    """Else its old values would stay for ever, and a start would take what is aborted there for gone."""
    for number in range(4):
        log.append(batch_of([b"%d" % number], keys=[b"k%d" % number]))
    compacted(log, OffsetRuns(()))
    assert log.cleaned_to == 4
    truncate_to(log, 1, lambda: None)
    assert log.cleaned_to == 1
    for value in (b"old", b"new"):
        log.append(batch_of([value], keys=[b"k"]))
    assert compacted(log, OffsetRuns(())) == [b"0", b"new"]


def test_gaps_of_a_segment_that_was_closed_are_no_damage_when_the_file_of_the_next_is_gone(
    reopen: OpenLog, folder: Path
) -> None:
    """A crash may take the name of an empty file; then the one before is the last."""
    log = reopen(segment_bytes=1 << 20)
    log.append(batch_of([b"old", b"other", b"new", b"more"], keys=[b"k", b"l", b"k", b"m"]))
    assert compacted(log, OffsetRuns(())) == [b"other", b"new", b"more"]
    active = log.active.log_path
    log.close()
    active.unlink()
    again = reopen(segment_bytes=1 << 20)
    assert values_of(again) == [b"other", b"new", b"more"]
    assert not [path.name for path in folder.iterdir() if ".damaged-" in path.name]
    assert again.append(batch_of([b"next"], keys=[b"n"])) == 4


def test_a_segment_that_does_not_lie_wholly_below_the_bound_is_left_alone(log: Log) -> None:
    """What lies at the bound or behind it is not settled, and must not supersede anything."""
    log.append(batch_of([b"settled", b"other", b"not yet"], keys=[b"k", b"l", b"k"]))
    log.roll()
    for bound, left in ((2, [b"settled", b"other", b"not yet"]), (3, [b"other", b"not yet"])):
        for step in compact(log, CompactionRules(bound, 10**9, 1_000)):
            if step is not None:
                step()
        assert values_of(log) == left
