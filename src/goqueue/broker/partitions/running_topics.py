"""The topics that are at work, by name and by id."""

from __future__ import annotations

from goqueue.broker.partitions.topic import Topic
from goqueue.model.errors import TopicNotFound
from goqueue.model.fields import did_you_mean
from goqueue.model.ids import TopicId

_MOST_COMPARED = 200


class RunningTopics:
    """``by_name`` and ``by_id`` are only ever read from outside."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[TopicId, Topic] = {}

    def find(self, name: str) -> Topic:
        found = self.by_name.get(name)
        if found is None:
            nearly = did_you_mean(name, self.by_name) if len(self.by_name) <= _MOST_COMPARED else ""
            raise TopicNotFound(f"topic {name[:200]!r} does not exist{nearly}")
        return found

    def add(self, topic: Topic) -> None:
        self.by_name[topic.name] = self.by_id[topic.record.topic_id] = topic

    def remove(self, topic: Topic) -> None:
        """Its name may be that of another topic already."""
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
        del self.by_id[topic.record.topic_id]
