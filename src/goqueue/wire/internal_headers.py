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
