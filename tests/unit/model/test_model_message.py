"""Priorities, and a message."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidMessage
from goqueue.model.message import NO_HEADERS, PRIORITY_LABELS, Message, Priority, parse_priority


def test_a_smaller_number_is_served_first() -> None:
    assert sorted(Priority) == [
        Priority.CRITICAL,
        Priority.HIGH,
        Priority.NORMAL,
        Priority.LOW,
        Priority.BACKGROUND,
    ]


@pytest.mark.parametrize("priority", list(Priority))
def test_a_priority_is_read_by_its_name_and_by_its_number(priority: Priority) -> None:
    assert parse_priority(priority.label) is priority
    assert parse_priority(priority.label.upper()) is priority
    assert parse_priority(int(priority)) is priority
    assert PRIORITY_LABELS[priority] == priority.label


@pytest.mark.parametrize("raw", ["", "urgent", -1, 5, True, False, "x" * 10_000])
def test_a_priority_that_does_not_exist_is_refused_naming_those_that_do(raw: str | int) -> None:
    with pytest.raises(InvalidMessage, match="critical, high, normal, low, background, or 0 to 4") as caught:
        parse_priority(raw)
    assert len(str(caught.value)) < 200


def test_a_message_is_normal_and_bare_unless_told_otherwise() -> None:
    message = Message(offset=1, timestamp_ns=2, key=None, value=b"v")
    assert message.priority == Priority.NORMAL
    assert message.headers == NO_HEADERS
    assert not message.tombstone
    assert not message.compressed


def test_a_message_cannot_be_assigned_to() -> None:
    message = Message(offset=1, timestamp_ns=2, key=None, value=b"v")
    with pytest.raises(AttributeError):
        message.offset = 2  # type: ignore[misc]
