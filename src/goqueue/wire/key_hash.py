"""Partition of a key: the same in broker, client and Spark."""

from __future__ import annotations

import mmh3


def partition_of(key: bytes, partitions: int) -> int:
    """Murmur3 x86_32 with seed 0 over the key's bytes, its sign bit cleared, modulo the number of partitions."""
    return (mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF) % partitions
