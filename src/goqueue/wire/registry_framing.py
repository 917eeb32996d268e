"""Wire format of the schema registry's serializers: a zero byte, then the schema id in four bytes, big-endian.

In Protobuf, the message type follows: the index of each message in the enclosing one, the outermost first, as zigzag
varints preceded by their count; a single zero stands for the first message of the schema, the common case.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.model.errors import InvalidMessage
from goqueue.wire.varint import varint, zigzag

HEADER_BYTES = 5
MAX_MESSAGE_INDEXES = 100
"""Limit on the nesting of messages."""
_MAGIC = 0
_MAX_ID = (1 << 32) - 1
_MAX_INDEX = (1 << 31) - 1
_NUMBER_BYTES = 5
_FIRST_MESSAGE = b"\x00"


def parse_schema_id(value: bytes) -> int | None:
    """The schema id at the start of a value; ``None`` if the value has another format."""
    if len(value) < HEADER_BYTES or value[0] != _MAGIC:
        return None
    return int.from_bytes(value[1:HEADER_BYTES])


def encode_schema_id(schema_id: int) -> bytes:
    """The prefix of a value with this schema."""
    if not 0 <= schema_id <= _MAX_ID:
        raise InvalidMessage(f"{schema_id} is no id of a schema; 0 to {_MAX_ID} are")
    return bytes((_MAGIC,)) + schema_id.to_bytes(HEADER_BYTES - 1)


def decode_schema_id(value: bytes) -> int:
    """The schema id at the start of a value; the error describes the start of a value in another format."""
    if len(value) < HEADER_BYTES:
        raise InvalidMessage(
            f"a value with a schema begins with {HEADER_BYTES} bytes, a zero and the schema's id; "
            f"this one has {len(value)}"
        )
    if value[0] != _MAGIC:
        raise InvalidMessage(
            f"a value with a schema begins with a zero and the schema's id; this one begins with 0x{value[0]:02x}. "
            "Was it sent without a schema?"
        )
    return int.from_bytes(value[1:HEADER_BYTES])


def encode_message_indexes(indexes: Sequence[int]) -> bytes:
    """Encode the path of indexes of a message type in a Protobuf schema."""
    if not 1 <= len(indexes) <= MAX_MESSAGE_INDEXES:
        raise InvalidMessage(f"{len(indexes)} places cannot name a message; 1 to {MAX_MESSAGE_INDEXES} can")
    if not all(0 <= index <= _MAX_INDEX for index in indexes):
        raise InvalidMessage(f"the place of a message is a number from 0 to {_MAX_INDEX}")
    if tuple(indexes) == (0,):
        return _FIRST_MESSAGE
    return b"".join(varint(zigzag(number)) for number in (len(indexes), *indexes))


def decode_message_indexes(value: bytes, at: int = HEADER_BYTES) -> tuple[tuple[int, ...], int]:
    """Decode the path of indexes of a value's message type; returns it with the position of the payload."""
    count, at = _decode_number(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= MAX_MESSAGE_INDEXES:
        raise InvalidMessage(
            f"the value names its message by {count} places; 1 to {MAX_MESSAGE_INDEXES} are allowed. "
            "Was it written with a Protobuf schema?"
        )
    indexes = []
    for _ in range(count):
        index, at = _decode_number(value, at)
        if index < 0:
            raise InvalidMessage(f"the value names its message by the place {index}; places count from 0")
        indexes.append(index)
    return tuple(indexes), at


def _decode_number(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(value[at : at + _NUMBER_BYTES]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    if at + _NUMBER_BYTES <= len(value):
        raise InvalidMessage(f"the number at byte {at}, which tells the value's message, has more than 5 bytes")
    raise InvalidMessage("the value ends before it has told which message of its schema it is")
