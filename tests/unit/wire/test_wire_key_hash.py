"""Keys go to the same partition in every client: Murmur3 x86_32, seed 0."""

from __future__ import annotations

import pytest

from goqueue.wire.key_hash import partition_of

VECTORS = {
    b"": 0x00000000,
    b"test": 0xBA6BD213,
    b"Hello, world!": 0xC0363E43,
    b"The quick brown fox jumps over the lazy dog": 0x2E4FF723,
    b"\x00\x00\x00\x00": 0x2362F9DE,
    b"\xff\xff\xff\xff": 0x76293B50,
    b"\x21\x43\x65\x87": 0xF55B516B,
    b"\x21\x43\x65": 0x7E4A8634,
    b"\x21\x43": 0xA0F7B07A,
    b"\x21": 0x72661CF4,
}


@pytest.mark.parametrize(("key", "digest"), VECTORS.items())
@pytest.mark.parametrize("partitions", [1, 3, 12, 10_000])
def test_a_key_goes_where_murmur3_says(key: bytes, digest: int, partitions: int) -> None:
    assert partition_of(key, partitions) == (digest & 0x7FFFFFFF) % partitions
