"""Unpacking values that a producer packed with zstd, for callers who want JSON."""

from __future__ import annotations

import zstandard

from goqueue.model.errors import CorruptData


def decompress(value: bytes, max_bytes: int) -> bytes:
    """Never makes more than ``max_bytes``, whatever the value claims."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(value) as reader:
            content = reader.read(max_bytes + 1)
    except zstandard.ZstdError as error:
        raise CorruptData(f"the value is marked as compressed but is not valid zstd: {error}") from None
    if len(content) > max_bytes:
        raise CorruptData(f"the value unpacks to more than {max_bytes} bytes")
    return content
