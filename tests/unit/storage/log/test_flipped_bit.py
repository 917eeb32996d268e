"""One flipped bit is found by what it does to a checksum."""

from __future__ import annotations

from random import Random

from crc32c import crc32c

from goqueue.storage.log.scan import flipped_at


def test_each_flipped_bit_is_found_in_its_byte() -> None:
    original = Random(4).randbytes(200)
    for at in range(len(original)):
        for bit in range(8):
            changed = bytearray(original)
            changed[at] ^= 1 << bit
            assert flipped_at(len(original), crc32c(original) ^ crc32c(changed)) == at


def test_other_changes_are_not_taken_for_one() -> None:
    chance = Random(5)
    original = chance.randbytes(200)
    for _ in range(1_000):
        changed = bytearray(original)
        first, second = chance.sample(range(len(original)), 2)
        changed[first] ^= 0x11
        changed[second] ^= 0x80
        assert flipped_at(len(original), crc32c(original) ^ crc32c(changed)) is None
