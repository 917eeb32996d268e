"""Unpacking values that a producer packed with zstd."""

from __future__ import annotations

import zstandard

from goqueue.model.errors import CorruptData

_STEP_BYTES = 256
"""Four bytes of zstd can stand for 128 KiB, so what one step makes is at most 8 MiB."""


def decompress(value: bytes, max_bytes: int) -> bytes:
    """Never makes much more than ``max_bytes``, whatever the value claims."""
    content = decompress_within(value, max_bytes)
    if content is None:
        raise CorruptData(f"the value unpacks to more than {max_bytes} bytes")
    return content


def decompress_within(value: bytes, max_bytes: int) -> bytes | None:
    """The same, but ``None`` if there is more: all frames, one after the other, each of them whole."""
    unpacker = zstandard.ZstdDecompressor()
    frame = unpacker.decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(value), _STEP_BYTES):
            piece = value[start : start + _STEP_BYTES]
            while piece:
                if frame.eof:
                    frame = unpacker.decompressobj()
                part = frame.decompress(piece)
                size += len(part)
                if size > max_bytes:
                    return None
                parts.append(part)
                piece = frame.unused_data
    except zstandard.ZstdError as error:
        raise CorruptData(f"the value is marked as compressed but is not valid zstd: {error}") from None
    if value and not frame.eof:
        raise CorruptData("the value is marked as compressed but is cut short")
    return b"".join(parts)


def decompressed_start(value: bytes, size: int) -> bytes:
    """The first bytes, and nothing made of what comes behind; less only if there is less, or the rest is cut off."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(value, read_across_frames=True) as reader:
            return reader.read(size)
    except zstandard.ZstdError as error:
        raise CorruptData(f"the value is marked as compressed but is not valid zstd: {error}") from None
