"""The settings of a topic."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from goqueue.model.errors import InvalidSettings
from goqueue.model.fields import (
    MAX_FIELDS,
    choice,
    count,
    did_you_mean,
    duration_ms,
    parse_fields,
    shown,
    size_bytes,
    specs,
    text,
    too_many_fields,
    topic_name,
)

Cleanup = Literal["delete", "compact"]
FsyncPolicy = Literal["always", "interval", "never"]

Expired = Literal["skip", "dead_letter"]
SchemaValidation = Literal["off", "on", "dead_letter"]
SchemaFraming = Literal["auto", "framed", "plain"]

_DAY_MS = 86_400_000
MAX_VISIBILITY_MS = _DAY_MS // 2
_TEN_YEARS_MS = 3_650 * _DAY_MS
MAX_PARTITIONS = 10_000
_MAX_PROBLEMS = 10


def _lane_weight(lane: str, default: int) -> Any:
    return count(
        default,
        (1, 1_000),
        f"The share of lane {lane} in a poll, relative to the weights of other lanes with messages.",
    )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic, each with its default. A topic stores only what was set for it."""

    partitions: int = count(3, (1, MAX_PARTITIONS), "How many partitions the topic has.", fixed=True)
    retention_ms: int | None = duration_ms(
        7 * _DAY_MS,
        (1_000, _TEN_YEARS_MS),
        "Segments whose last append is older than this are deleted.",
        unlimited=True,
    )
    retention_bytes: int | None = size_bytes(
        None, (1 << 20, 1 << 50), "A partition larger than this loses its oldest segments.", unlimited=True
    )
    segment_bytes: int = size_bytes(
        64 << 20, (64 << 10, 1 << 30), "The size at which a segment file is closed and a new one is started."
    )
    cleanup: Cleanup = choice(
        "delete",
        ("delete", "compact"),
        "'delete' drops old segments by retention; 'compact' keeps the last value of every key and ignores retention.",
    )
    tombstone_retention_ms: int = duration_ms(
        _DAY_MS, (0, _TEN_YEARS_MS), "Under 'compact', how long a tombstone stays readable."
    )
    fsync: FsyncPolicy = choice(
        "always",
        ("always", "interval", "never"),
        "When an acknowledged message is on the disk: before the acknowledgement ('always'), within "
        "storage.fsync_interval_ms ('interval'), or whenever the operating system writes it ('never').",
    )
    max_message_bytes: int = size_bytes(16 << 20, (1 << 10, 64 << 20), "The largest value of a message.")
    max_timestamp_ahead_ms: int = duration_ms(
        3_600_000,
        (0, _TEN_YEARS_MS),
        "A message whose timestamp is further ahead of the broker's clock than this is refused.",
    )

    dedup_window_ms: int = duration_ms(
        300_000, (1_000, _DAY_MS), "How long a dedup id is remembered; a message with the same id is not stored again."
    )

    visibility_timeout_ms: int = duration_ms(
        30_000,
        (100, MAX_VISIBILITY_MS),
        "How long a polled message is hidden from other members of the group, unless it is settled or extended.",
    )
    max_retries: int = count(3, (0, 1_000_000), "How often a message is redelivered before it is dead-lettered.")
    retry_backoff_ms: int = duration_ms(
        1_000, (0, _DAY_MS), "How long a nacked message waits for its first retry; every further wait is twice as long."
    )
    max_retry_backoff_ms: int = duration_ms(60_000, (0, _DAY_MS), "The longest wait before a retry.")
    dead_letter_topic: str = topic_name(
        "", "The topic for dead letters; empty: the name of this topic with '.dlq' appended. Created when first needed."
    )
    schema_validation: SchemaValidation = choice(
        "off",
        ("off", "on", "dead_letter"),
        "Whether values must match a schema: a message that does not is refused ('on') or dead-lettered.",
    )
    schema_subject: str = text(
        "", (0, 1_000), "The subject of the schemas; empty: the name of this topic with '-value' appended."
    )
    schema_framing: SchemaFraming = choice(
        "auto",
        ("auto", "framed", "plain"),
        "Whether values begin with the id of their schema, as serializers for a registry write them ('framed'), or are "
        "of the latest schema ('plain'). 'auto': framed if they begin with the id of a schema of the subject.",
    )
    message_ttl_ms: int | None = duration_ms(
        None,
        (1, _TEN_YEARS_MS),
        "A message that a group has not delivered within this time expires in the group.",
        unlimited=True,
    )
    expired_messages: Expired = choice(
        "skip", ("skip", "dead_letter"), "What happens to a message that expires before a group has delivered it."
    )

    critical_weight: int = _lane_weight("critical", 50)
    high_weight: int = _lane_weight("high", 25)
    normal_weight: int = _lane_weight("normal", 15)
    low_weight: int = _lane_weight("low", 7)
    background_weight: int = _lane_weight("background", 3)
    lane_starvation_ms: int = duration_ms(
        30_000,
        (1_000, _DAY_MS),
        "A lane with messages from which a group has fetched nothing for this long comes first once.",
    )

    @property
    def lane_weights(self) -> tuple[int, ...]:
        """In the order of the lanes."""
        return self.critical_weight, self.high_weight, self.normal_weight, self.low_weight, self.background_weight

    def with_overrides(self, overrides: dict[str, Any]) -> TopicSettings:
        return dataclasses.replace(self, **overrides)


def parse_topic_settings(raw: dict[str, object], *, existing: bool = False) -> dict[str, Any]:
    """Parse settings that a user has sent; ``existing`` refuses those that are fixed once a topic exists."""
    values, problems = parse_fields(TopicSettings, raw)
    if existing:
        declared = specs(TopicSettings)
        problems += [f"{name}: cannot be changed once the topic exists" for name in values if declared[name].fixed]
    if len(problems) > _MAX_PROBLEMS:
        problems[_MAX_PROBLEMS:] = [f"and {len(problems) - _MAX_PROBLEMS} more"]
    if problems:
        raise InvalidSettings("; ".join(problems))
    return values


def check_unset(unset: Sequence[str], raw: Mapping[str, object]) -> set[str]:
    """Check the names of settings to reset to the broker's defaults; ``raw`` are those to set in the same request."""
    if len(unset) > MAX_FIELDS:
        raise InvalidSettings(too_many_fields(len(unset)))
    declared = specs(TopicSettings)
    problems = [
        f"{shown(name)}: no such setting{did_you_mean(name, declared)}" for name in unset if name not in declared
    ]
    problems += [
        f"{name}: cannot be changed once the topic exists"
        for name in unset
        if name in declared and declared[name].fixed
    ]
    problems += [f"{name}: set and unset at once" for name in unset if name in raw]
    if problems:
        raise InvalidSettings("; ".join(problems[:_MAX_PROBLEMS]))
    return set(unset)
