"""The messages that benches write: values of 100 bytes, no key, in batches of 1000."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from goqueue.model.message import Priority
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_frame, encode_headers

VALUE_BYTES = 100
BATCH_MESSAGES = 1_000
_DIFFERENT_BATCHES = 8
_SEED = 7


def wire_batches(lanes: Sequence[int] = (Priority.NORMAL,), due_ns: int | None = None) -> list[bytes]:
    """A few batches as a client sends them. They differ, so that no cache sees the same bytes again and again.

    Each message has one of ``lanes`` by chance; with ``due_ns`` they are delayed.
    """
    chance = random.Random(_SEED)
    return [_wire_batch(chance, lanes, due_ns) for _ in range(_DIFFERENT_BATCHES)]


def _wire_batch(chance: random.Random, lanes: Sequence[int], due_ns: int | None) -> bytes:
    now_ns = time.time_ns()
    headers = b"" if due_ns is None else encode_headers((due_header(due_ns),))
    flags = 0 if due_ns is None else int(Flag.DELAYED)
    frames = [
        encode_frame(b"", chance.randbytes(VALUE_BYTES), headers, now_ns, chance.choice(lanes), flags)
        for _ in range(BATCH_MESSAGES)
    ]
    batch = join_frames(frames, now_ns)
    return FrameRun(memoryview(batch.frames), batch.positions).to_wire()


def text_values(count: int) -> list[str]:
    """Values that JSON carries as they are."""
    chance = random.Random(_SEED)
    return [chance.randbytes(VALUE_BYTES // 2).hex() for _ in range(count)]


def byte_batches() -> list[list[bytes]]:
    """A few batches of values for a client to encode."""
    chance = random.Random(_SEED)
    return [[chance.randbytes(VALUE_BYTES) for _ in range(BATCH_MESSAGES)] for _ in range(_DIFFERENT_BATCHES)]
