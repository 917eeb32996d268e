"""A second opinion on frames, one at a time and without numpy: what the broker's own check is compared with."""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from goqueue.wire.frame import CHECKSUM_FROM, HEADER_SIZE, MAGIC, VERSION

LENGTHS = Struct(">HIH")
LENGTHS_AT = 26


def frame_problem(frame: memoryview) -> str | None:
    """What is wrong with one whole frame, or ``None``. Its offset is not judged."""
    if len(frame) < HEADER_SIZE:
        return f"{len(frame)} bytes are shorter than a frame's header ({HEADER_SIZE})"
    if frame[:2] != MAGIC:
        return "it does not begin with 'GQ'"
    if frame[2] != VERSION:
        return f"its version is {frame[2]}, only {VERSION} is known"
    if HEADER_SIZE + sum(LENGTHS.unpack_from(frame, LENGTHS_AT)) != len(frame):
        return "its lengths do not add up to its size"
    if int.from_bytes(frame[4:8]) != crc32c(frame[CHECKSUM_FROM:]):
        return "its checksum does not match"
    if frame[3] != frame[25]:
        return "its two copies of the flags differ"
    return None
