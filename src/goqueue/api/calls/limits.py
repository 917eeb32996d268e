"""How much one answer may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Of one transport."""

    max_message_bytes: int
    max_batch_bytes: int
    check_room: Callable[[str, int], None]
    """Raises ``Overloaded`` if an answer of this size to a call of this name finds no room."""

    @property
    def max_listed_bytes(self) -> int:
        """Of messages in a list, which the rest of the answer comes on top of."""
        return min(self.max_batch_bytes, self.max_message_bytes // 2)


_MAX_BYTES = 2 << 20
"""Of a request that carries no messages. All others wait while it is read: 20 ms for each megabyte at the worst."""
_MAX_BYTES_OF_SETTINGS = 128 << 10
_MAX_BYTES_OF_MEMBERS = 768 << 10
"""Maps, in which settings come, take several times as long."""
_WITH_SETTINGS = ("Topics.CreateTopic", "Topics.ChangeTopic", "Groups.ConfigureGroup")
_OF_MEMBERS = ("Groups.Join", "Groups.Subscribe")


def max_request_bytes(call: str) -> int:
    """Of a call without messages, by its service and name."""
    if call in _OF_MEMBERS:
        return _MAX_BYTES_OF_MEMBERS
    return _MAX_BYTES_OF_SETTINGS if call in _WITH_SETTINGS else _MAX_BYTES
