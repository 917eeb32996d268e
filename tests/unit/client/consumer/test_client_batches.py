from __future__ import annotations

import tracemalloc

import pytest
import zstandard

from goqueue.client.consumer.reader import Batch
from goqueue.model.errors import CorruptData
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.frame import Flag, encode_frame

MIB = 1 << 20


def batch_of(frames: list[bytes]) -> Batch:
    joined = join_frames(frames, 0)
    joined.stamp(0)
    return Batch("t", 0, FrameRun(memoryview(joined.frames), joined.positions), len(frames))


def test_values_are_unpacked_one_at_a_time() -> None:
    packed = zstandard.compress(bytes(8 * MIB))
    batch = batch_of([encode_frame(b"", packed, b"", 1, flags=Flag.COMPRESSED)] * 20)
    tracemalloc.start()
    try:
        assert sum(len(record.value) for record in batch.records()) == 160 * MIB
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 40 * MIB


def test_a_damaged_message_is_named_after_everything_before_it_was_given() -> None:
    whole, damaged = encode_frame(b"", b"whole", b"", 1), bytearray(encode_frame(b"", b"hurt", b"", 1))
    damaged[-1] ^= 1
    batch = batch_of([whole, whole, bytes(damaged), whole])
    records = batch.records()
    assert [next(records).value, next(records).value] == [b"whole", b"whole"]
    with pytest.raises(CorruptData, match=f"read on from {batch.next_offset - 1}"):
        next(records)


@pytest.mark.parametrize(
    ("own_offset", "named"),
    [(7, 7), (10**6, 8), (3, 8)],
)
def test_a_damaged_message_between_gaps_is_named_by_its_own_offset_if_that_can_be(own_offset: int, named: int) -> None:
    """Delayed messages are left out of what is read, so places cannot be counted."""
    frames = [encode_frame(b"", b"v", b"", 1, offset=offset) for offset in (2, 5, own_offset, 9)]
    hurt = bytearray(frames[2])
    hurt[-1] ^= 1
    frames[2] = bytes(hurt)
    joined = join_frames(frames, 0)
    batch = Batch("t", 0, FrameRun(memoryview(joined.frames), joined.positions), 12)
    records = batch.records()
    assert [next(records).offset, next(records).offset] == [2, 5]
    with pytest.raises(CorruptData, match=f"offset {named} of t/0 .* read on from {named + 1}"):
        next(records)
