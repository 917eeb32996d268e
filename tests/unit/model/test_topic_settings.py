"""A topic's settings."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidSettings
from goqueue.model.topic_settings import TopicSettings, parse_topic_settings


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


def test_of_many_bad_settings_ten_are_named_and_the_others_counted() -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_topic_settings({f"color{number}": 1 for number in range(15)})
    *named, last = str(caught.value).split("; and ")
    assert named[0].count("no such setting") == 10
    assert last == "5 more"


def test_ten_bad_settings_are_all_named() -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_topic_settings({f"color{number}": 1 for number in range(10)})
    assert str(caught.value).count("no such setting") == 10
    assert "more" not in str(caught.value)


@pytest.mark.parametrize("existing", [False, True])
def test_far_too_many_settings_are_refused_in_one_sentence(existing: bool) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_topic_settings({f"color{number}": 1 for number in range(101)}, existing=existing)
    assert str(caught.value) == "there are 101 settings; at most 100 are looked at"
