"""Bodies that are packed: requests in gzip or zstd are unpacked within bounds, answers go out as gzip on request."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from functools import lru_cache

import zstandard

from goqueue.model.errors import InvalidRequest, UnsupportedMediaType

CODINGS = "gzip, zstd"
_TAKEN = {b"": None, b"identity": None, b"gzip": "gzip", b"x-gzip": "gzip", b"zstd": "zstd"}
_PIECE_BYTES = 256 << 10
_GZIP_STEP_BYTES = 32 << 10
"""Blocks may be empty: what is made says nothing about the work, so what is taken at a time is bounded as well."""
_ZSTD_STEP_BYTES = 256
"""Four bytes of zstd can stand for 128 KiB, so what one step makes is at most 8 MiB."""
_ZSTD_WINDOW_BYTES = 8 << 20
"""What a decoder of zstd must be able to hold for HTTP, and no more."""
_GZIP_HEAD = 31
_QUICKLY = 1
"""The level: the next ones take twice as long for a tenth less."""
_SMALLEST_BYTES = 1_024
_LONGEST_ACCEPT = 512
"""What browsers send is a tenth of it. It is remembered; a longer one means an answer that is not packed."""
_AT_ONCE_BYTES = 32 << 10
"""More than this is packed in a thread."""


def coding_of(value: bytes) -> str | None:
    """What a body is packed with, by its ``Content-Encoding``; ``None`` for not at all."""
    if not is_taken(value):
        name = value[:100].decode("latin-1").strip().lower()
        raise UnsupportedMediaType(
            f"Content-Encoding {name!r} is not taken; pack the body with gzip or zstd, once, or send it as it is"
        )
    return _TAKEN[value.strip().lower()]


def is_taken(value: bytes) -> bool:
    return value.strip().lower() in _TAKEN


def unpacked(body: bytes, coding: str) -> Iterator[bytes]:
    """The content of a body in pieces, each some milliseconds' work at most; raises if the body is not of its coding.

    It has no bound: the caller counts, and stops where it is too much. Pieces may be empty.
    """
    try:
        yield from _gunzipped(body) if coding == "gzip" else _unpacked_zstd(body)
    except (zlib.error, zstandard.ZstdError) as error:
        raise InvalidRequest(f"the body is not valid {coding}, as its Content-Encoding says: {error}") from None


def _gunzipped(body: bytes) -> Iterator[bytes]:
    stream = zlib.decompressobj(_GZIP_HEAD)
    rest, taken = b"", 0
    while not stream.eof:
        if not rest:
            rest = body[taken : taken + _GZIP_STEP_BYTES]
            taken += len(rest)
        piece = stream.decompress(rest, _PIECE_BYTES)
        if not piece and not rest:
            raise _cut_short("gzip")
        rest = stream.unconsumed_tail
        yield piece
    _check_end(stream.unused_data or body[taken : taken + 1], "gzip")


def _unpacked_zstd(body: bytes) -> Iterator[bytes]:
    frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
    view = memoryview(body)
    made: list[bytes] = []
    size = 0
    for start in range(0, len(view), _ZSTD_STEP_BYTES):
        if frame.eof:
            _check_end(bytes(view[start : start + 1]), "zstd")
        piece = frame.decompress(view[start : start + _ZSTD_STEP_BYTES])
        made.append(piece)
        size += len(piece) + _ZSTD_STEP_BYTES
        if size >= _PIECE_BYTES:
            yield b"".join(made)
            made, size = [], 0
    if not frame.eof:
        raise _cut_short("zstd")
    _check_end(frame.unused_data, "zstd")
    yield b"".join(made)


def _cut_short(coding: str) -> InvalidRequest:
    return InvalidRequest(f"the body is not valid {coding}, as its Content-Encoding says: it is cut short")


def _check_end(rest: bytes, coding: str) -> None:
    if rest:
        raise InvalidRequest(f"the body has more behind the end of its {coding}; pack it as one whole")


def takes_gzip(accept: bytes) -> bool:
    """Whether a client would like its answer packed, by its ``Accept-Encoding``."""
    return len(accept) <= _LONGEST_ACCEPT and _wants_gzip(accept)


@lru_cache(256)
def _wants_gzip(accept: bytes) -> bool:
    wanted: dict[str, bool] = {}
    for part in accept.decode("latin-1").lower().split(",")[:20]:
        name, *parameters = (each.strip() for each in part.split(";"))
        weights = [each[2:].strip() for each in parameters if each.startswith("q=")]
        wanted[name] = not weights or weights[0].strip("0.") != ""
    return wanted.get("gzip", wanted.get("x-gzip", wanted.get("*", False)))


def is_worth_packing(media_type: str) -> bool:
    """Text and JSON. Frames are packed by their producers, and a backup by the command that takes it."""
    return "json" in media_type or media_type.startswith("text/")


async def packed(content: bytes) -> bytes | None:
    """An answer's content as gzip, or ``None`` if it is too small for that."""
    if len(content) < _SMALLEST_BYTES:
        return None
    return await asyncio.to_thread(_gzip, content) if len(content) > _AT_ONCE_BYTES else _gzip(content)


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(_QUICKLY, wbits=_GZIP_HEAD)
    return packer.compress(body) + packer.flush()
