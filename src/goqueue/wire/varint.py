"""Variable-length integers, as in Protobuf, Avro and Thrift."""

from __future__ import annotations


def zigzag(value: int) -> int:
    """Zigzag encoding, which maps integers of small magnitude to small numbers: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def varint(value: int) -> bytes:
    """Seven bits per byte, the lowest first; the eighth bit is set if more bytes follow."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
