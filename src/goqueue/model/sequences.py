"""Sequence numbers of a producer's messages in a partition, and its epochs."""

from __future__ import annotations

SEQUENCES = 1 << 31
"""Sequence numbers start again at 0 after the largest one that a batch can state."""
MAX_EPOCH = (1 << 15) - 1


def next_sequence(first: int, count: int) -> int:
    """The sequence number after ``count`` messages."""
    return (first + count) % SEQUENCES
