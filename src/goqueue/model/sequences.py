"""How a producer counts: its messages in each partition, and its own lives under one name."""

from __future__ import annotations

SEQUENCES = 1 << 31
"""Sequence numbers begin again at 0 behind the last that fits into a batch's stamp."""
MAX_EPOCH = (1 << 15) - 1


def next_sequence(first: int, count: int) -> int:
    """The sequence number of what follows ``count`` messages."""
    return (first + count) % SEQUENCES
