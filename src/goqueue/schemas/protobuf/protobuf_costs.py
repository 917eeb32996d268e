"""Memory needed to parse a Protobuf value: a message takes the memory of all its fields, set or not."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_EMPTY = 64
"""Memory of a message without fields, including its entry in a list or a map."""
_BYTES_OF_A_MESSAGE = 2
"""Smallest encoded size of a message: its field number and its length."""
_TEXT, _POINTER = 16, 8
_WIDTHS = {
    FieldDescriptor.CPPTYPE_BOOL: 1,
    FieldDescriptor.CPPTYPE_INT32: 4,
    FieldDescriptor.CPPTYPE_UINT32: 4,
    FieldDescriptor.CPPTYPE_FLOAT: 4,
    FieldDescriptor.CPPTYPE_ENUM: 4,
    FieldDescriptor.CPPTYPE_STRING: _TEXT,
}


class MessageCosts:
    """Memory that values of some messages can take."""

    def __init__(self, messages: Iterable[Descriptor]) -> None:
        self._outer = 0
        self._inner = _EMPTY
        seen: set[str] = set()
        waiting: list[Descriptor] = []
        for message in messages:
            self._outer = max(self._outer, _size_of(message))
            waiting += _within(message)
        while waiting:
            message = waiting.pop()
            if message.full_name in seen:
                continue
            seen.add(message.full_name)
            self._inner = max(self._inner, _size_of(message))
            waiting += _within(message)

    def most_bytes(self, memory: int) -> int:
        """Size up to which every value takes at most ``memory``, even if it consists of the largest messages."""
        return max(0, memory - self._outer) * _BYTES_OF_A_MESSAGE // self._inner


def _within(message: Descriptor) -> list[Descriptor]:
    fields = [*message.fields]
    if message.is_extendable:
        fields += message.file.pool.FindAllExtensions(message)
    return [each.message_type for each in fields if each.message_type is not None]


def _size_of(message: Descriptor) -> int:
    return _EMPTY + sum(
        _POINTER if each.is_repeated else _WIDTHS.get(each.cpp_type, _POINTER) for each in message.fields
    )
