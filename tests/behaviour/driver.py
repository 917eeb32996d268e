"""The ways to reach a broker, behind one face, so that one suite runs over all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from behaviour.host import Host, config_for
from goqueue.model.publishing import NewMessage
from goqueue.model.topic_settings import TopicSettings

if TYPE_CHECKING:
    from behaviour.delays import Delays
    from behaviour.groups import Groups

T = TypeVar("T")


class Refused(Exception):
    """A request that was answered with an error; ``code`` is the stable name."""

    def __init__(self, code: str, text: str, *, retriable: bool) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.retriable = retriable


@dataclass(frozen=True)
class Stored:
    partition: int
    offset: int
    priority: str
    deliver_at_ns: int | None = None


@dataclass(frozen=True)
class Got:
    partition: int
    offset: int
    timestamp_ns: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    priority: str


@dataclass(frozen=True)
class Page:
    messages: list[Got]
    next_offset: int
    high_watermark: int

    @property
    def values(self) -> list[bytes | None]:
        return [message.value for message in self.messages]

    @property
    def offsets(self) -> list[int]:
        return [message.offset for message in self.messages]


@dataclass(frozen=True)
class Described:
    topic_id: str
    partitions: int
    total_messages: int
    bounds: dict[int, tuple[int, int]]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Purged:
    partition: int
    earliest_before: int
    earliest: int
    removed: int
    delayed: int


Result = Stored | Refused


class Driver(ABC):
    """One way in. Calls block; ``background`` runs one beside the test."""

    over_http = False
    groups: Groups
    delays: Delays

    def __init__(self, path: Path, *, files: Any = None, clock: Any = None, **config: dict[str, Any]) -> None:
        self.host = Host(config_for(path, **config), http=self.over_http, files=files, clock=clock)
        self.clock = clock
        self._pool = ThreadPoolExecutor(16)

    def background(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
        return self._pool.submit(call, *args, **kwargs)

    def restart(self, away_ms: int = 0) -> None:
        """``away_ms``: of a broker with a clock of the test's own, how much time passes meanwhile."""
        self.host.stop()
        if away_ms:
            self.clock.advance_ms(away_ms)
        self.host.start()

    def close(self) -> None:
        self.host.stop()
        self._pool.shutdown()

    def waiting_readers(self, topic: str, partition: int) -> int:
        return self.host.waiting_readers(topic, partition)

    def waiting_polls(self, group: str) -> int:
        return len(self.host.broker.groups.shards.find(group).runtime.waiters)

    def let_pass(self, milliseconds: int) -> None:
        """Of a broker with a clock of the test's own: so much later, with everything done that was due meanwhile."""
        self.clock.advance_ms(milliseconds)
        self.host.thread.run(self._ring())

    async def _ring(self) -> None:
        broker = self.host.broker
        broker.clockwork.ring()
        firing = broker.delays._firing
        while firing._task is not None:
            await firing._task
        for partition in [partition for topic in broker.running_topics() for partition in topic.partitions]:
            await partition.acknowledge(partition.log.end_offset)

    def publish_one(self, topic: str, value: bytes | None, **fields: Any) -> Stored:
        """Publish one message that is expected to be stored."""
        (result,) = self.publish(topic, [NewMessage(value, **fields)])
        if isinstance(result, Refused):
            raise result
        return result

    @abstractmethod
    def create_topic(self, name: str, **settings: Any) -> int:
        """Returns how many partitions it has."""

    @abstractmethod
    def list_topics(self) -> list[str]: ...

    @abstractmethod
    def describe(self, name: str) -> Described: ...

    @abstractmethod
    def change_topic(self, name: str, **settings: Any) -> None: ...

    @abstractmethod
    def unset(self, name: str, *settings: str) -> None:
        """They are as the broker's configuration says again."""

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def purge(self, name: str, partition: int | None = None, before_ns: int | None = None) -> list[Purged]: ...

    @abstractmethod
    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[Result]: ...

    @abstractmethod
    def read(
        self,
        topic: str,
        partition: int = 0,
        *,
        offset: int | None = None,
        from_time_ns: int | None = None,
        limit: int = 100,
        max_bytes: int | None = None,
        wait_ms: int = 0,
    ) -> Page: ...


def setting_names() -> set[str]:
    return set(TopicSettings.__dataclass_fields__)
