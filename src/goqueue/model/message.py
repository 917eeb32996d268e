"""A message as people think of it, apart from how it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from goqueue.model.errors import InvalidMessage

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
_BY_LABEL = {priority.label: priority for priority in Priority}


def parse_priority(raw: str | int) -> Priority:
    """A lane by its name or its number."""
    if isinstance(raw, str):
        found = _BY_LABEL.get(raw.lower())
        if found is not None:
            return found
    elif 0 <= raw < len(PRIORITY_LABELS):
        return Priority(raw)
    raise InvalidMessage(f"priority {raw!r} does not exist; use one of {', '.join(PRIORITY_LABELS)}, or 0 to 4")


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message, decoded.

    ``key`` is ``None`` when the message has none (an empty key is stored as none). A tombstone has no value:
    under ``cleanup: compact`` it deletes its key.
    """

    offset: int
    timestamp_ns: int
    key: bytes | None
    value: bytes
    headers: Headers = NO_HEADERS
    priority: int = Priority.NORMAL
    tombstone: bool = False
    compressed: bool = False
