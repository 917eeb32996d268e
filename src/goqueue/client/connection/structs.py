"""Structs of the client, filled from protobuf messages with fields of the same names."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Made = TypeVar("Made", bound=msgspec.Struct)


def struct_of(kind: type[Made], message: Any, **others: object) -> Made:
    """A struct with the fields of a message, and ``others``. A field that the message leaves unset is ``None``."""
    declared = message.DESCRIPTOR.fields_by_name
    for name in kind.__struct_fields__:
        if name not in others:
            is_set = not declared[name].has_presence or message.HasField(name)
            others[name] = getattr(message, name) if is_set else None
    return kind(**others)
