from __future__ import annotations

import os
import tracemalloc

import pytest
import zstandard

from goqueue.model.errors import CorruptData
from goqueue.wire.compression import decompress, decompress_within, decompressed_start

MANY = 1 << 30
NOISE = os.urandom(5_000)


@pytest.mark.parametrize("content", [b"", b"v", b"text " * 10_000, NOISE, NOISE * 100])
def test_what_was_packed_comes_back(content: bytes) -> None:
    assert decompress(zstandard.compress(content), len(content)) == content


@pytest.mark.parametrize("frames", [2, 3, 1_000])
def test_frames_one_after_the_other_are_all_unpacked(frames: int) -> None:
    contents = [b"frame %d " % number * 7 for number in range(frames)]
    assert decompress(b"".join(map(zstandard.compress, contents)), MANY) == b"".join(contents)


@pytest.mark.parametrize("kept", [1, 5, 20, 600, 5_000])
@pytest.mark.parametrize("before", [b"", zstandard.compress(b"a whole frame")], ids=["alone", "behind another"])
def test_a_value_that_is_cut_short_is_corrupt(kept: int, before: bytes) -> None:
    packed = zstandard.compress(NOISE)
    assert kept < len(packed)
    with pytest.raises(CorruptData, match="cut short"):
        decompress(before + packed[:kept], MANY)


@pytest.mark.parametrize("after", [b"x", b"not a frame", b"\0" * 1_000])
def test_a_value_with_something_else_behind_it_is_corrupt(after: bytes) -> None:
    with pytest.raises(CorruptData):
        decompress(zstandard.compress(b"v") + after, MANY)


def test_a_value_that_unpacks_to_more_than_is_allowed_is_refused() -> None:
    packed = zstandard.compress(b"x" * 101)
    assert decompress(packed, 101) == b"x" * 101
    assert decompress_within(packed, 100) is None
    with pytest.raises(CorruptData, match="more than 100 bytes"):
        decompress(packed, 100)


def test_the_bound_is_for_all_frames_together() -> None:
    assert decompress_within(zstandard.compress(b"x" * 60) * 2, 100) is None


def test_a_bomb_does_not_go_off() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(256 << 20))
    tracemalloc.start()
    try:
        assert decompress_within(packed, 1 << 20) is None
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_the_beginning_is_unpacked_without_the_rest() -> None:
    packed = zstandard.compress(b"begin" + bytes(256 << 20))
    tracemalloc.start()
    try:
        assert decompressed_start(packed, 5) == b"begin"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert decompressed_start(b"".join(map(zstandard.compress, (b"be", b"", b"gin", b"more"))), 5) == b"begin"
    assert decompressed_start(zstandard.compress(b"beg"), 5) == b"beg"
    assert decompressed_start(b"", 5) == b""
    assert decompressed_start(zstandard.compress(b"begin")[:7], 5) == b""
    with pytest.raises(CorruptData, match="not valid zstd"):
        decompressed_start(b"no zstd at all", 5)
