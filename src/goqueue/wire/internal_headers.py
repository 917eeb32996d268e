"""Reserved headers of the system: their names begin with ``goqueue-``. Producers may set only a few of them."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

RESERVED_PREFIX = "goqueue-"
PRODUCER = "goqueue-producer"
"""On the first message of an idempotent producer's batch: the producer, and the number of messages in the batch."""

_PRODUCER_VALUE = Struct(">qhiI")
STAMP_SIZE = _PRODUCER_VALUE.size
"""Bytes of a stamp in its header."""
_FIRST_NAME_AT = 2
_PRODUCER_START = len(PRODUCER).to_bytes(2) + PRODUCER.encode()
_PRODUCER_VALUE_AT = _FIRST_NAME_AT + len(_PRODUCER_START) + 2


class ProducerStamp(NamedTuple):
    """The producer of a batch, and the batch's position in the producer's sequence."""

    producer_id: int
    epoch: int
    first_sequence: int
    message_count: int


def encode_producer(stamp: ProducerStamp) -> bytes:
    return _PRODUCER_VALUE.pack(*stamp)


def producer_stamp(packed_headers: bytes | memoryview) -> ProducerStamp | None:
    """The stamp in a frame's encoded headers, if present. It is always the first header, so no parsing is needed."""
    if packed_headers[_FIRST_NAME_AT : _FIRST_NAME_AT + len(_PRODUCER_START)] != _PRODUCER_START:
        return None
    if len(packed_headers) < _PRODUCER_VALUE_AT + _PRODUCER_VALUE.size:
        return None
    return ProducerStamp(*_PRODUCER_VALUE.unpack_from(packed_headers, _PRODUCER_VALUE_AT))


# The values below are text, so that they are readable wherever headers are shown.

TTL = "goqueue-ttl-ms"
"""Time to live of a message after its timestamp. Set by producers."""
DEDUP_ID = "goqueue-dedup-id"
"""Id by which a topic recognizes a duplicate message. Set by producers."""
MAX_DEDUP_ID_BYTES = 256
MAX_TTL_MS = 3_650 * 86_400_000
FOR_GROUP = "goqueue-for-group"
"""On a redriven message: the group that it is meant for. Polls of other groups skip it."""
COPY_OF = "goqueue-copy-of"
"""On every message that the broker moved: the original. After a crash, it shows whether a message was copied."""
ORIGIN_TOPIC = "goqueue-origin-topic"
ORIGIN_PARTITION = "goqueue-origin-partition"
ORIGIN_OFFSET = "goqueue-origin-offset"
ORIGIN_TIMESTAMP = "goqueue-origin-timestamp"
DELAYED_OFFSET = "goqueue-delayed-offset"
"""On a delayed message that became visible: offset of the delayed record."""
DELAYED_TIMESTAMP = "goqueue-delayed-timestamp"
"""On a delayed message that became visible: its producer's timestamp; its own is when it became visible."""
DUE_AT = "goqueue-due-at"
"""On a delayed record, after all other headers: due time in Unix nanoseconds, in eight bytes."""
DUE_IN = "goqueue-due-in"
"""Alternative to ``DUE_AT`` for producers: nanoseconds after the message's arrival at the broker."""
TRACE = "goqueue-trace"
"""On a copy of a message whose producer set no trace: the trace that it belongs to, in hexadecimal."""
ERROR = "goqueue-error"
DELIVERIES = "goqueue-deliveries"
GROUP = "goqueue-group"
PROVENANCE = {ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_TIMESTAMP, ERROR, DELIVERIES, GROUP}
"""Headers that describe the origin of a dead letter."""


def parse_ttl_ms(value: bytes) -> int | None:
    """The time to live; ``None`` if the value is invalid."""
    if not value.isdigit() or len(value) > len(str(MAX_TTL_MS)):
        return None
    ttl_ms = int(value)
    return ttl_ms if 0 < ttl_ms <= MAX_TTL_MS else None
