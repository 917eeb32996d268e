"""Decompression of values that a producer compressed with zstd."""

from __future__ import annotations

import zstandard

from goqueue.model.errors import CorruptData

_STEP_BYTES = 256
"""Input bytes per step. Four bytes of zstd can expand to 128 KiB, so one step produces at most 8 MiB."""


def decompress(value: bytes, max_bytes: int) -> bytes:
    """Decompress a value. Never produces much more than ``max_bytes``, whatever size the value claims."""
    content = decompress_within(value, max_bytes)
    if content is None:
        raise CorruptData(f"the value unpacks to more than {max_bytes} bytes")
    return content


def decompress_within(value: bytes, max_bytes: int) -> bytes | None:
    """Decompress consecutive frames, each of them complete; ``None`` if the result exceeds ``max_bytes``."""
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
    """The first ``size`` decompressed bytes, without decompressing the rest; fewer if there are no more."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(value, read_across_frames=True) as reader:
            return reader.read(size)
    except zstandard.ZstdError as error:
        raise CorruptData(f"the value is marked as compressed but is not valid zstd: {error}") from None
