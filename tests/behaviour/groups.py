"""Groups and their queues as a driver shows them, whatever the way in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from behaviour.driver import Got, Refused

Place = tuple[str, int]
"""A topic and a partition."""
Offsets = Mapping[str, Mapping[int, int]]
Verb = Literal["ack", "nack", "reject", "extend"]


@dataclass(frozen=True)
class Lease:
    """What settles a message over gRPC."""

    topic: str
    partition: int
    offset: int
    lease: int
    deliveries: int
    token: bytes


Handle = str | Lease
"""A receipt, or the lease in its place."""


@dataclass(frozen=True)
class Assigned:
    member_id: str
    generation: int
    assigned: list[Place]
    revoking: list[Place]


@dataclass(frozen=True)
class Polled(Got):
    """In a stream there is no handle, and nobody counts deliveries."""

    topic: str
    deliveries: int
    handle: Handle | None


@dataclass(frozen=True)
class InGroup:
    member_id: str
    client_id: str
    instance_id: str
    topics: list[str]
    assigned: list[Place]
    in_flight: int


@dataclass(frozen=True)
class Lag:
    topic: str
    partition: int
    committed: int
    latest: int
    lag: int
    in_flight: int
    waiting: int
    owner: str | None


@dataclass(frozen=True)
class GroupInfo:
    name: str
    is_rebalancing: bool
    generation: int
    members: list[InGroup]
    settings: dict[str, Any]
    overrides: list[str]
    lag: list[Lag]


@dataclass(frozen=True)
class Letter:
    """A dead letter: the message, and what it tells of itself."""

    partition: int
    offset: int
    died_at_ns: int
    key: bytes | None
    value: bytes | None
    own_headers: tuple[tuple[str, bytes], ...]
    topic: str
    origin_partition: int
    origin_offset: int
    group: str
    error: str
    deliveries: int
    redriven: bool


@dataclass(frozen=True)
class Wanted:
    """Which dead letters are meant."""

    group: str | None = None
    error: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    messages: Sequence[tuple[int, int]] | None = None


ALL = Wanted()


@dataclass(frozen=True)
class Redriven:
    matched: int
    redriven: int
    already: int
    unreachable: int
    by_topic: dict[str, int]
    next: tuple[int, int] | None


class Groups(ABC):
    """One way in to groups."""

    @abstractmethod
    def join(
        self,
        group: str,
        topics: Sequence[str],
        *,
        client_id: str = "worker",
        session_timeout_ms: int | None = None,
        instance_id: str = "",
        auto_commit: bool = False,
        **settings: Any,
    ) -> Assigned: ...

    @abstractmethod
    def heartbeat(self, group: str, member_id: str, generation: int) -> Assigned: ...

    @abstractmethod
    def leave(self, group: str, member_id: str) -> None: ...

    @abstractmethod
    def poll(self, group: str, member_id: str, max_messages: int = 100, wait_ms: int = 0) -> list[Polled]: ...

    @abstractmethod
    def settle(
        self, group: str, verb: Verb, handles: Sequence[Handle], delay_ms: int | None = None, reason: str = ""
    ) -> list[Refused | None]:
        """What became of each; raises if the request as a whole is refused."""

    @abstractmethod
    def altered(self, handle: Handle) -> Mapping[str, Handle]:
        """Each part of a handle changed, by the part's name."""

    @abstractmethod
    def commit(self, group: str, member_id: str, offsets: Offsets, generation: int | None = None) -> None: ...

    @abstractmethod
    def offsets(self, group: str, topic: str | None = None) -> dict[str, dict[int, int]]: ...

    @abstractmethod
    def reset(
        self,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        offset: int | None = None,
        instant_ns: int | None = None,
        partitions: Sequence[int] | None = None,
    ) -> dict[int, int]:
        """Where each partition begins again."""

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def describe(self, group: str) -> GroupInfo: ...

    @abstractmethod
    def configure(self, group: str, **settings: Any) -> GroupInfo: ...

    @abstractmethod
    def delete(self, group: str) -> None: ...

    @abstractmethod
    def stats(self) -> dict[str, int]:
        """Messages counted since the broker started, under the names of gRPC."""

    @abstractmethod
    def dead_letters(
        self, topic: str, wanted: Wanted = ALL, *, limit: int = 100, after: tuple[int, int] = (0, 0)
    ) -> list[Letter]: ...

    @abstractmethod
    def redrive(
        self,
        topic: str,
        wanted: Wanted = ALL,
        *,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        after: tuple[int, int] = (0, 0),
    ) -> Redriven: ...
