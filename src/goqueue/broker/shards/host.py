"""What consumer groups need of a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from goqueue.broker.events.event_recorder import EventRecorder
from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.partitions.topic import Topic
from goqueue.model.clock import Clock, Randomness
from goqueue.model.config import Config
from goqueue.model.ids import TopicId
from goqueue.model.message import Message


class Host(Protocol):
    """A broker as consumer groups see it."""

    config: Config
    clock: Clock
    topics: RunningTopics

    @property
    def randomness(self) -> Randomness: ...

    @property
    def notes(self) -> EventRecorder: ...

    def topic(self, name: str) -> Topic: ...

    async def is_misfit(self, name: str, message: Message) -> bool: ...

    def topic_by_id(self, topic_id: TopicId) -> Topic | None: ...

    def running_topics(self) -> Iterable[Topic]: ...

    def check_open(self) -> None: ...
