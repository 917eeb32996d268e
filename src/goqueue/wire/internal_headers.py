"""Headers that belong to the system. Their names begin with ``goqueue-``; producers may not make them up."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

RESERVED_PREFIX = "goqueue-"
PRODUCER = "goqueue-producer"
"""On the first message of an idempotent producer's batch: who, and how many messages follow as one."""

_PRODUCER_VALUE = Struct(">qhiI")
_FIRST_NAME_AT = 2
_PRODUCER_START = len(PRODUCER).to_bytes(2) + PRODUCER.encode()
_PRODUCER_VALUE_AT = _FIRST_NAME_AT + len(_PRODUCER_START) + 2


class ProducerStamp(NamedTuple):
    """Which producer wrote a batch, and where in its sequence."""

    producer_id: int
    epoch: int
    first_sequence: int
    message_count: int


def encode_producer(stamp: ProducerStamp) -> bytes:
    return _PRODUCER_VALUE.pack(*stamp)


def producer_stamp(packed_headers: bytes | memoryview) -> ProducerStamp | None:
    """The stamp in a frame's packed headers, if it is there. It always stands first, so no parsing is needed."""
    if packed_headers[_FIRST_NAME_AT : _FIRST_NAME_AT + len(_PRODUCER_START)] != _PRODUCER_START:
        return None
    if len(packed_headers) < _PRODUCER_VALUE_AT + _PRODUCER_VALUE.size:
        return None
    return ProducerStamp(*_PRODUCER_VALUE.unpack_from(packed_headers, _PRODUCER_VALUE_AT))


# What follows is written as text, so that people can read it wherever headers are shown.

TTL = "goqueue-ttl-ms"
"""How long after its timestamp a message is worth delivering. Producers set it themselves."""
DEDUP_ID = "goqueue-dedup-id"
"""By which a topic knows a message that it has already. Producers set it themselves."""
MAX_DEDUP_ID_BYTES = 256
MAX_TTL_MS = 3_650 * 86_400_000
FOR_GROUP = "goqueue-for-group"
"""On a message that was redriven: the group that it is meant for. Polls of other groups pass it by."""
COPY_OF = "goqueue-copy-of"
"""On every message that the broker moved: which one it was. After a crash this tells whether it was copied."""
ORIGIN_TOPIC = "goqueue-origin-topic"
ORIGIN_PARTITION = "goqueue-origin-partition"
ORIGIN_OFFSET = "goqueue-origin-offset"
ORIGIN_TIMESTAMP = "goqueue-origin-timestamp"
DELAYED_OFFSET = "goqueue-delayed-offset"
"""On a delayed message that has become visible: the offset of the record that it was until then."""
DELAYED_TIMESTAMP = "goqueue-delayed-timestamp"
"""On the same: the timestamp that its producer gave it. Its own is the time at which it became visible."""
DUE_AT = "goqueue-due-at"
"""On a delayed record, behind all its other headers: when it is due, Unix nanoseconds in eight bytes."""
DUE_IN = "goqueue-due-in"
"""What a producer may send in its place: so many nanoseconds after the broker has got it."""
TRACE = "goqueue-trace"
"""On a copy of a message whose producer named no trace: the trace that it belongs to, in hexadecimal."""
ERROR = "goqueue-error"
DELIVERIES = "goqueue-deliveries"
GROUP = "goqueue-group"
PROVENANCE = {ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_TIMESTAMP, ERROR, DELIVERIES, GROUP}
"""What a dead letter tells of itself."""


def parse_ttl_ms(value: bytes) -> int | None:
    """``None`` if it is none."""
    if not value.isdigit() or len(value) > len(str(MAX_TTL_MS)):
        return None
    ttl_ms = int(value)
    return ttl_ms if 0 < ttl_ms <= MAX_TTL_MS else None
