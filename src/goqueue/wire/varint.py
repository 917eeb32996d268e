"""Whole numbers in as few bytes as they take, as Protobuf, Avro and Thrift write them."""

from __future__ import annotations


def zigzag(value: int) -> int:
    """Small numbers stay small, whatever their sign: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
