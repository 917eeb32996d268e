"""What can be set for one topic."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from goqueue.model.errors import InvalidSettings
from goqueue.model.fields import MAX_FIELDS, did_you_mean, parse_fields, setting, shown, specs, too_many_fields

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


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic, each with its default. A topic stores only what was set for it."""

    partitions: int = setting(
        3,
        "How many partitions the topic has.",
        "count",
        minimum=1,
        maximum=MAX_PARTITIONS,
        fixed=True,
    )
    retention_ms: int | None = setting(
        7 * _DAY_MS,
        "Segments whose last append is older than this are deleted.",
        "ms",
        minimum=1_000,
        maximum=_TEN_YEARS_MS,
        unlimited=True,
    )
    retention_bytes: int | None = setting(
        None,
        "A partition larger than this loses its oldest segments.",
        "bytes",
        minimum=1 << 20,
        maximum=1 << 50,
        unlimited=True,
    )
    segment_bytes: int = setting(
        64 << 20,
        "A segment file is closed and a new one begun at this size.",
        "bytes",
        minimum=64 << 10,
        maximum=1 << 30,
    )
    cleanup: Cleanup = setting(
        "delete",
        "'delete' drops old segments by retention; 'compact' keeps the last value of every key and ignores retention.",
        "choice",
        choices=("delete", "compact"),
    )
    tombstone_retention_ms: int = setting(
        _DAY_MS,
        "Under 'compact', how long a tombstone stays readable.",
        "ms",
        minimum=0,
        maximum=_TEN_YEARS_MS,
    )
    fsync: FsyncPolicy = setting(
        "always",
        "When an acknowledged message is on the disk: before the acknowledgement ('always'), within "
        "storage.fsync_interval_ms ('interval'), or when the system likes ('never').",
        "choice",
        choices=("always", "interval", "never"),
    )
    max_message_bytes: int = setting(
        16 << 20,
        "The largest value a message may have.",
        "bytes",
        minimum=1 << 10,
        maximum=64 << 20,
    )
    max_timestamp_ahead_ms: int = setting(
        3_600_000,
        "A message whose timestamp lies further ahead of the broker's clock than this is refused.",
        "ms",
        minimum=0,
        maximum=_TEN_YEARS_MS,
    )

    dedup_window_ms: int = setting(
        300_000,
        "How long a message with a dedup id is remembered, so that another with the same id is not stored.",
        "ms",
        minimum=1_000,
        maximum=_DAY_MS,
    )

    visibility_timeout_ms: int = setting(
        30_000,
        "How long a message that was polled stays hidden from others in its group, unless it is settled or extended.",
        "ms",
        minimum=100,
        maximum=MAX_VISIBILITY_MS,
    )
    max_retries: int = setting(
        3,
        "How often a message is delivered again before it becomes a dead letter.",
        "count",
        minimum=0,
        maximum=1_000_000,
    )
    retry_backoff_ms: int = setting(
        1_000,
        "How long a nacked message waits for its first retry; each further wait is twice as long.",
        "ms",
        minimum=0,
        maximum=_DAY_MS,
    )
    max_retry_backoff_ms: int = setting(60_000, "The longest wait before a retry.", "ms", minimum=0, maximum=_DAY_MS)
    dead_letter_topic: str = setting(
        "",
        "Where dead letters go; empty: to the topic's own name with '.dlq' behind it. Made when first needed.",
        "topic",
    )
    schema_validation: SchemaValidation = setting(
        "off",
        "Whether values must fit a schema: a message that does not is refused ('on'), or goes to the dead letters.",
        "choice",
        choices=("off", "on", "dead_letter"),
    )
    schema_subject: str = setting(
        "",
        "The subject whose schemas are meant; empty: the topic's own name with '-value' behind it.",
        "text",
        minimum=0,
        maximum=1_000,
    )
    schema_framing: SchemaFraming = setting(
        "auto",
        "Whether values begin with the id of their schema, as a registry's serializers write them ('framed'), or are "
        "of the subject's latest ('plain'). 'auto': framed if they begin with the id of one of the subject's schemas.",
        "choice",
        choices=("auto", "framed", "plain"),
    )
    message_ttl_ms: int | None = setting(
        None,
        "A message that no poll of a group has delivered within this time is skipped by it.",
        "ms",
        minimum=1,
        maximum=_TEN_YEARS_MS,
        unlimited=True,
    )
    expired_messages: Expired = setting(
        "skip",
        "What becomes of a message whose time to live is over before a group got it.",
        "choice",
        choices=("skip", "dead_letter"),
    )

    critical_weight: int = setting(
        50,
        "How much of a poll lane critical gets, in proportion to the other lanes that have messages.",
        "count",
        minimum=1,
        maximum=1_000,
    )
    high_weight: int = setting(
        25,
        "How much of a poll lane high gets, in proportion to the other lanes that have messages.",
        "count",
        minimum=1,
        maximum=1_000,
    )
    normal_weight: int = setting(
        15,
        "How much of a poll lane normal gets, in proportion to the other lanes that have messages.",
        "count",
        minimum=1,
        maximum=1_000,
    )
    low_weight: int = setting(
        7,
        "How much of a poll lane low gets, in proportion to the other lanes that have messages.",
        "count",
        minimum=1,
        maximum=1_000,
    )
    background_weight: int = setting(
        3,
        "How much of a poll lane background gets, in proportion to the other lanes that have messages.",
        "count",
        minimum=1,
        maximum=1_000,
    )
    lane_starvation_ms: int = setting(
        30_000,
        "A lane of which a group has got nothing for this long although messages wait in it comes first for once.",
        "ms",
        minimum=1_000,
        maximum=_DAY_MS,
    )

    @property
    def lane_weights(self) -> tuple[int, ...]:
        """In the order of the lanes."""
        return self.critical_weight, self.high_weight, self.normal_weight, self.low_weight, self.background_weight

    def with_overrides(self, overrides: dict[str, Any]) -> TopicSettings:
        return dataclasses.replace(self, **overrides)


def parse_topic_settings(raw: dict[str, object], *, existing: bool = False) -> dict[str, Any]:
    """Check what a user wants to set; ``existing`` refuses what is fixed once a topic exists."""
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
    """Check which settings of a topic are to follow the broker's defaults again; ``raw`` are those to be set."""
    if len(unset) > MAX_FIELDS:
        raise InvalidSettings(too_many_fields(len(unset)))
    declared = specs(TopicSettings)
    problems = [
        f"{shown(name)}: no such setting{did_you_mean(name, declared)}" for name in unset if name not in declared
    ]
    problems += [f"{name}: cannot be changed once the topic exists" for name in unset if _is_fixed(name)]
    problems += [f"{name}: set and unset at once" for name in unset if name in raw]
    if problems:
        raise InvalidSettings("; ".join(problems[:_MAX_PROBLEMS]))
    return set(unset)


def _is_fixed(name: str) -> bool:
    declared = specs(TopicSettings).get(name)
    return declared is not None and declared.fixed
