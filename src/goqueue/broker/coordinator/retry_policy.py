"""How long a group waits for what."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.broker.partitions.topic import Topic
from goqueue.model.group_settings import GroupSettings
from goqueue.model.ports import NANOS_PER_MS

_MOST_DOUBLINGS = 40


@dataclass(frozen=True, slots=True)
class Timing:
    """With messages of one topic."""

    visibility_ns: int
    max_retries: int
    backoff_ns: int
    max_backoff_ns: int

    def backoff(self, deliveries: int) -> int:
        """Twice as long each time. A message that was given back unseen may have no delivery that counts."""
        return min(self.max_backoff_ns, self.backoff_ns << max(0, min(deliveries - 1, _MOST_DOUBLINGS)))


def timing_of(settings: GroupSettings, topic: Topic) -> Timing:
    """A group's own settings, and the topic's where it has none."""
    own = topic.settings

    def chosen(mine: int | None, theirs: int) -> int:
        return theirs if mine is None else mine

    return Timing(
        chosen(settings.visibility_timeout_ms, own.visibility_timeout_ms) * NANOS_PER_MS,
        chosen(settings.max_retries, own.max_retries),
        chosen(settings.retry_backoff_ms, own.retry_backoff_ms) * NANOS_PER_MS,
        chosen(settings.max_retry_backoff_ms, own.max_retry_backoff_ms) * NANOS_PER_MS,
    )
