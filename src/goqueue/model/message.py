"""A decoded message, and its priority."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from goqueue.model.errors import InvalidMessage
from goqueue.model.fields import shown

Headers = tuple[tuple[str, bytes], ...]
NO_HEADERS: Headers = ()


class Priority(IntEnum):
    """A message's lane. A smaller number is served first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    BACKGROUND = 4

    @property
    def label(self) -> str:
        return self.name.lower()


PRIORITY_LABELS = tuple(priority.label for priority in Priority)
HIDDEN = len(PRIORITY_LABELS)
"""The index for frames that no reader sees, in counts by lane: delayed records and control records have no lane."""
_BY_LABEL = {priority.label: priority for priority in Priority}


def parse_priority(raw: str | int) -> Priority:
    """A priority by its name or its number."""
    if isinstance(raw, str):
        found = _BY_LABEL.get(raw.lower())
        if found is not None:
            return found
    elif not isinstance(raw, bool) and 0 <= raw < len(PRIORITY_LABELS):
        return Priority(raw)
    raise InvalidMessage(f"priority {shown(raw)} does not exist; use one of {', '.join(PRIORITY_LABELS)}, or 0 to 4")


class Message(msgspec.Struct, frozen=True, gc=False):
    """A stored message, decoded. (A msgspec struct is created ten times faster than a frozen dataclass.)

    ``key`` is ``None`` if the message has none; an empty key is stored as no key. A tombstone has no value: under
    ``cleanup: compact`` it deletes its key. If ``compressed`` is set, ``value`` is as the producer has compressed it.
    """

    offset: int
    timestamp_ns: int
    key: bytes | None
    value: bytes
    headers: Headers = NO_HEADERS
    priority: int = 2
    tombstone: bool = False
    compressed: bool = False
