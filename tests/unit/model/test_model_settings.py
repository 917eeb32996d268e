"""A topic's settings."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidSettings
from goqueue.model.settings import TopicSettings, parse_topic_settings


def test_only_what_was_set_is_returned() -> None:
    assert parse_topic_settings({"retention_ms": "1d", "partitions": 5}) == {
        "retention_ms": 86_400_000,
        "partitions": 5,
    }


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    changed = TopicSettings().with_overrides(parse_topic_settings({"retention_ms": "unlimited"}))
    assert changed.retention_ms is None
    assert changed.with_overrides({"retention_ms": TopicSettings().retention_ms}) == TopicSettings()


def test_every_bad_setting_is_named_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_topic_settings({"partitions": 0, "fsync": "maybe", "color": "red"})
    message = str(caught.value)
    assert "partitions: 0 is out of bounds; allowed: 1 to 10000" in message
    assert "fsync: 'maybe' is not one of always, interval, never" in message
    assert "color: no such setting" in message


def test_what_is_fixed_cannot_be_changed_once_the_topic_exists() -> None:
    with pytest.raises(InvalidSettings, match="partitions: cannot be changed once the topic exists"):
        parse_topic_settings({"partitions": 4}, existing=True)


def test_what_is_not_fixed_can_be_changed_once_the_topic_exists() -> None:
    assert parse_topic_settings({"cleanup": "compact"}, existing=True) == {"cleanup": "compact"}


def test_settings_cannot_be_assigned_to() -> None:
    with pytest.raises(AttributeError):
        TopicSettings().partitions = 4  # type: ignore[misc]
