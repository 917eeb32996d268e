"""Delayed messages and lanes as a driver shows them, whatever the way in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Waiting:
    """One that waits. Lists leave out the value."""

    partition: int
    offset: int
    deliver_at_ns: int
    timestamp_ns: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    priority: str


@dataclass(frozen=True)
class WaitingPage:
    messages: list[Waiting]
    next: str | None
    total: int

    @property
    def offsets(self) -> list[int]:
        return [message.offset for message in self.messages]


@dataclass(frozen=True)
class DelayCounts:
    pending: int
    delivered: int
    cancelled: int
    rescheduled: int
    lost: int
    next_due_ns: int | None


@dataclass(frozen=True)
class LaneOfGroup:
    ready: int
    in_flight: int
    delivered: int
    last_served_ns: int | None


@dataclass(frozen=True)
class LanesOfPartition:
    """By the names of the lanes; of groups by their names first."""

    topic: str
    partition: int
    stored: Mapping[str, int]
    published: Mapping[str, int]
    groups: Mapping[str, Mapping[str, LaneOfGroup]]


class Delays(ABC):
    """One way in to delayed messages, and to what lanes tell."""

    @abstractmethod
    def page(self, topic: str, limit: int = 100, after: str | None = None) -> WaitingPage: ...

    @abstractmethod
    def get(self, topic: str, partition: int, offset: int) -> Waiting: ...

    @abstractmethod
    def cancel(self, topic: str, partition: int, offset: int) -> None: ...

    @abstractmethod
    def reschedule(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        delay_ms: int | None = None,
        deliver_at_ns: int | None = None,
    ) -> int:
        """When it is due now."""

    @abstractmethod
    def counts(self) -> DelayCounts: ...

    @abstractmethod
    def lanes(self, topic: str) -> list[LanesOfPartition]: ...
