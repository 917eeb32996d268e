"""Protobuf messages that contain a batch, encoded and decoded without passing the batch through protobuf.

The bytes on the wire are exactly those of protobuf, with fewer copies. A batch has up to a mebibyte, and protobuf
copies it once into the message and once out of it, on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from google.protobuf.message import Message

from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.varint import varint

Piece = bytes | bytearray | memoryview
Kind = TypeVar("Kind", bound=Message)

_BYTES = 2
_MOST_VARINT_BYTES = 10
_MOST_TAG_BYTES = 5
"""Limit that protobuf sets for the encoding of a field number or a length."""
_MOST_FIELDS = 32
_NOTHING = memoryview(b"")


class BatchEnvelope(Generic[Kind]):
    """Codec for one message type with a field ``batch``."""

    def __init__(self, kind: type[Kind]) -> None:
        self._kind = kind
        self._number: int = kind.DESCRIPTOR.fields_by_name["batch"].number
        self._tag = varint(self._number << 3 | _BYTES)

    def dump(self, message: Kind, batch: Sequence[Piece]) -> bytes:
        """Encode a message whose field ``batch`` is empty, with the pieces of a batch."""
        rest = message.SerializeToString()
        size = sum(map(len, batch))
        return b"".join((rest, self._tag, varint(size), *batch)) if size else rest

    def load(self, data: bytes) -> tuple[Kind, memoryview]:
        """Decode a message into the message without its batch, and the batch."""
        found = self._find(data)
        if found is None:
            # No batch, several (the last one counts), or invalid data, which protobuf reports.
            message = self._kind.FromString(data)
            batch: bytes = message.batch  # type: ignore[attr-defined]
            message.ClearField("batch")
            return message, memoryview(batch) if batch else _NOTHING
        tag_at, start, end = found
        return self._kind.FromString(data[:tag_at] + data[end:]), memoryview(data)[start:end]

    def _find(self, data: bytes) -> tuple[int, int, int] | None:
        """Position of the batch with its tag and without, if there is exactly one."""
        at, found, fields = 0, None, 0
        try:
            while at < len(data):
                fields += 1
                if fields > _MOST_FIELDS:
                    # Legitimate messages do not have so many fields, and each costs an iteration in Python.
                    return None
                tag_at = at
                tag, at = _read_varint(data, at, _MOST_TAG_BYTES)
                match tag & 7:
                    case 0:
                        _, at = _read_varint(data, at, _MOST_VARINT_BYTES)
                    case 1:
                        at += 8
                    case 2:
                        length, at = _read_varint(data, at, _MOST_TAG_BYTES)
                        if tag >> 3 == self._number:
                            if found is not None:
                                return None
                            found = tag_at, at, at + length
                        at += length
                    case 5:
                        at += 4
                    case _:
                        return None
        except (IndexError, OverflowError):
            return None
        return found if at == len(data) else None


def _read_varint(data: bytes, at: int, most_bytes: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 7 * most_bytes or (most_bytes == _MOST_TAG_BYTES and value >> 32):
            raise OverflowError
        if byte < 0x80:
            return value, at


PUBLISH_REQUEST = BatchEnvelope(pb.PublishRequest)
FETCH_RESPONSE = BatchEnvelope(pb.FetchResponse)
