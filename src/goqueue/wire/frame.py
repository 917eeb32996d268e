"""Frame, the binary format of one message: a 34-byte header, then key, value and headers, all big-endian.

::

    0  magic "GQ"   2      16 timestamp  8   Unix nanoseconds, set by the producer
    2  version      1      24 priority   1
    3  flags        1      25 flags      1   repeated, so that the checksum covers them
    4  checksum     4      26 key length    2
    8  offset       8      28 value length  4
                           32 headers length  2, 0 when there are none

The checksum (CRC32 Castagnoli) covers bytes 16 to the end and not the offset: a producer encodes and checksums, the
broker verifies and stamps offsets without touching the checksum.
"""

from __future__ import annotations

from enum import IntFlag
from struct import Struct
from struct import error as StructError  # noqa: N812

from crc32c import crc32c

from goqueue.model.errors import InvalidFrame, InvalidMessage, MessageTooLarge
from goqueue.model.message import NO_HEADERS, Headers, Message, Priority

MAGIC = b"GQ"
VERSION = 1
HEADER_SIZE = 34
CHECKSUM_AT = 4
CHECKSUM_FROM = 16
FLAGS_AT = 3
PRIORITY_AT = 24
FLAGS_AGAIN_AT = 25
MAX_KEY_BYTES = 0xFFFF
MAX_HEADERS_BYTES = 0xFFFF
MAX_HEADERS = (MAX_HEADERS_BYTES - 2) // 4
"""Upper bound, reached by empty headers: each takes at least the two lengths of its name and its value."""

_BEFORE_CHECKSUM = Struct(">2sBB")
_STAMP = Struct(">Iq")
_BODY = Struct(">qBBHIH")
_COUNT = Struct(">H")
_HEADER = Struct(">2sBBIqqBBHIH")


class Flag(IntFlag):
    """The bits of a frame's flags. Bit 1 is free."""

    COMPRESSED = 1
    TOMBSTONE = 4
    CONTROL = 8
    COMMIT = 16
    DELAYED = 32
    TRANSACTIONAL = 64
    FIRED = 128
    """A delayed message that became visible; a header holds the offset of its delayed record."""


INVISIBLE = Flag.CONTROL | Flag.DELAYED
"""Flags of frames that are invisible to readers."""


encode_body_start = _BODY.pack
"""Encodes the first fields that the checksum covers: timestamp, priority, flags, lengths of key, value and headers."""

_PREFIXES = [_BEFORE_CHECKSUM.pack(MAGIC, VERSION, flags) for flags in range(256)]


def encode_frame(
    key: bytes,
    value: bytes,
    headers: bytes,
    timestamp_ns: int,
    priority: int = Priority.NORMAL,
    flags: int = 0,
    offset: int = 0,
) -> bytes:
    """Encode one message. ``headers`` are already encoded (``encode_headers``); the caller bounds lengths."""
    body = encode_body_start(timestamp_ns, priority, flags, len(key), len(value), len(headers)) + key + value + headers
    return _PREFIXES[flags] + _STAMP.pack(crc32c(body), offset) + body


def read_whole(frame: memoryview) -> tuple[int, int, int, int, int, int, int] | None:
    """Flags, offset, timestamp, priority and the lengths of a single frame; ``None`` if it is invalid."""
    if len(frame) < HEADER_SIZE:
        return None
    magic, version, flags, checksum, offset, at_ns, priority, again, key, value, headers = _HEADER.unpack_from(frame)
    if magic != MAGIC or version != VERSION or flags != again or HEADER_SIZE + key + value + headers != len(frame):
        return None
    if crc32c(frame[CHECKSUM_FROM:]) != checksum:
        return None
    return flags, offset, at_ns, priority, key, value, headers


def encode_message(message: Message, more_flags: int = 0) -> bytes:
    """Encode a decoded message as the frame that it came from."""
    flags = more_flags | int(Flag.TOMBSTONE) * message.tombstone | int(Flag.COMPRESSED) * message.compressed
    return encode_frame(
        message.key or b"",
        message.value,
        encode_headers(message.headers),
        message.timestamp_ns,
        message.priority,
        flags,
        message.offset,
    )


def timestamp_of(frame: bytes | memoryview) -> int:
    return int.from_bytes(frame[CHECKSUM_FROM : CHECKSUM_FROM + 8])


def encode_headers(headers: Headers) -> bytes:
    """Encode headers: count, then name and value of each, every length in two bytes. No headers give no bytes."""
    if not headers:
        return b""
    parts = [_COUNT.pack(min(len(headers), 0xFFFF))]
    for name, value in headers:
        try:
            encoded = name.encode()
        except UnicodeEncodeError:
            raise InvalidMessage(f"header {name[:40]!r} cannot be written as UTF-8") from None
        if len(encoded) > MAX_HEADERS_BYTES or len(value) > MAX_HEADERS_BYTES:
            raise MessageTooLarge(f"header {name[:40]!r} is larger than {MAX_HEADERS_BYTES} bytes")
        parts += (_COUNT.pack(len(encoded)), encoded, _COUNT.pack(len(value)), value)
    packed = b"".join(parts)
    if len(packed) > MAX_HEADERS_BYTES:
        raise MessageTooLarge(f"the headers have {len(packed)} bytes; {MAX_HEADERS_BYTES} are allowed")
    return packed


def decode_headers(packed: bytes) -> Headers:
    """Inverse of ``encode_headers``; raises ``InvalidFrame`` for bytes that it cannot have produced."""
    if not packed:
        return NO_HEADERS
    try:
        (count,) = _COUNT.unpack_from(packed)
        position = 2
        found: list[tuple[str, bytes]] = []
        for _ in range(count):
            (length,) = _COUNT.unpack_from(packed, position)
            name = packed[position + 2 : position + 2 + length].decode()
            position += 2 + length
            (length,) = _COUNT.unpack_from(packed, position)
            found.append((name, packed[position + 2 : position + 2 + length]))
            position += 2 + length
    except (StructError, UnicodeDecodeError):
        raise InvalidFrame("the headers are cut short or a name is not UTF-8") from None
    if position != len(packed) or count == 0:
        raise InvalidFrame("the headers' length does not agree with what they hold")
    return tuple(found)
