"""The settings history of a topic, read from the catalog's journal in the data folder, as far as that goes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from goqueue.model.errors import CorruptData, StorageFailed
from goqueue.spark.pipelines.auditing.journal_files import Snapshot, replay_journal

CATALOG = "__metadata"
_PART = "catalog"


@dataclass(slots=True)
class TopicRecord:
    """A topic's own settings over time; the broker's defaults are stored in no folder."""

    created_at_ns: int
    settings: list[dict[str, Any]] = field(default_factory=list)
    """Settings in order of time, the latest last."""

    def values_of(self, name: str) -> list[Any]:
        """All values that a setting has had, the latest first; ``None`` stands for the broker's default."""
        return list(dict.fromkeys(each.get(name) for each in reversed(self.settings)))


def topic_record(root: Path, topic_id: str) -> TopicRecord | None:
    """The record of a topic; ``None`` if the folder is a copy without the catalog, or the catalog is damaged."""
    folder = root / "logs" / CATALOG / "0"
    if not folder.is_dir():
        return None
    try:
        return replay_journal(root / "snapshots" / CATALOG, folder, lambda each: _Catalog(topic_id, each)).topic
    except (CorruptData, StorageFailed, msgspec.MsgspecError):
        return None


class _Known(msgspec.Struct):
    created_at_ns: int
    overrides: dict[str, Any] = {}


class _State(msgspec.Struct):
    topics: dict[str, _Known] = {}


class _Catalog:
    """Replay of the catalog's journal onto its snapshot, for one topic."""

    def __init__(self, topic_id: str, snapshot: Snapshot) -> None:
        self._topic_id = topic_id
        self._is_new = snapshot.is_new
        self.topic: TopicRecord | None = None
        for part in snapshot.parts:
            if part.name == _PART:
                known = msgspec.json.decode(part.state, type=_State).topics.get(topic_id)
                if known is not None:
                    self._set_record(known)

    def decision(self, offset: int, value: bytes) -> None:
        for event in msgspec.json.decode(value):
            if not self._is_new(_PART, offset):
                continue
            if event["type"] == "topic_created" and event["topic"]["topic_id"] == self._topic_id:
                self._set_record(msgspec.convert(event["topic"], _Known))
            elif event["type"] == "topic_changed" and event["topic_id"] == self._topic_id and self.topic is not None:
                self.topic.settings.append(event["overrides"])

    def _set_record(self, known: _Known) -> None:
        self.topic = TopicRecord(known.created_at_ns, [known.overrides])
