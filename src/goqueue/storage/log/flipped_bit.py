"""Finding the one bit by which bytes differ from what their checksum was made of."""

from __future__ import annotations

_POLYNOMIAL = 0x82F63B78
"""Of CRC32C."""


def _step(state: int) -> int:
    for _ in range(8):
        state = state >> 1 ^ (_POLYNOMIAL if state & 1 else 0)
    return state


_TABLE = [_step(byte) for byte in range(256)]
_BACK = {entry >> 24: byte for byte, entry in enumerate(_TABLE)}
_ONE_BIT = {_TABLE[1 << bit] for bit in range(8)}


def flipped_at(size: int, difference: int) -> int | None:
    """In which of ``size`` bytes one flipped bit makes this ``difference`` (the exclusive or of two checksums)."""
    for place in range(size - 1, -1, -1):
        if difference in _ONE_BIT:
            return place
        # What it was before another byte came behind.
        byte = _BACK[difference >> 24]
        difference = (difference ^ _TABLE[byte]) << 8 & 0xFFFFFFFF | byte
    return None
