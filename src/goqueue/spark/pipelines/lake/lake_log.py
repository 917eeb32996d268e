"""The commit log of a lake of Parquet files: numbered entries, each written atomically.

An entry holds the files that a micro-batch adds or a compaction replaces, and the resulting end offset of each
partition in the lake. The first writer of a number wins; a second writer that has not seen that entry fails. From time
to time a snapshot of the state is written, and the entries in it are removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from goqueue.model.errors import CorruptData
from goqueue.spark.pipelines.definitions.problems import PipelineFailed
from goqueue.spark.pipelines.lake.durable_file import sync_folder, write_whole

T = TypeVar("T")
Ends = dict[str, dict[int, int]]
"""By topic and partition: the offset behind the last message in the lake."""
_SNAPSHOT_AFTER = 100
_STATE = "state-"


class LakeFile(msgspec.Struct, frozen=True):
    """A file of one topic and one day."""

    path: str
    """Path relative to the lake's folder."""
    topic: str
    day: str
    rows: int
    size_bytes: int
    offsets: dict[int, tuple[int, int]]
    """The first and the last offset of each partition with messages in the file."""
    times_us: tuple[int, int]
    """The oldest and the newest timestamp."""
    shape: str
    """Hash of the schema: files of the same shape have the same columns."""


class TopicMark(msgspec.Struct, frozen=True):
    """The identity of an archived topic: a topic that was deleted and recreated has another id."""

    id: str
    partitions: int


class Entry(msgspec.Struct, frozen=True):
    """One commit."""

    staged: str
    """The staging folder in which the files were written."""
    add: list[LakeFile]
    remove: list[str] = []
    ends: Ends = {}
    topics: dict[str, TopicMark] = {}

    @property
    def is_compaction(self) -> bool:
        return bool(self.remove)


class LakeState(msgspec.Struct):
    """The state after all entries up to a version."""

    version: int = 0
    files: dict[str, LakeFile] = msgspec.field(default_factory=dict)
    ends: Ends = msgspec.field(default_factory=dict)
    topics: dict[str, TopicMark] = msgspec.field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        for path in entry.remove:
            del self.files[path]
        self.files |= {file.path: file for file in entry.add}
        for topic, ends in entry.ends.items():
            self.ends.setdefault(topic, {}).update(ends)
        self.topics |= entry.topics
        self.version += 1


class LakeLog:
    """The log in a folder. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.state = LakeState()
        self.recent: list[Entry] = []
        """Entries that are in no snapshot yet, oldest first."""
        self.read()

    def read(self) -> None:
        """Read the log again, with the entries that other processes have written."""
        while True:
            try:
                self._read()
                return
            except FileNotFoundError:
                # Another process has put entries into a newer snapshot and removed them since: read again.
                continue

    def _read(self) -> None:
        snapshot = self._newest_snapshot()
        state: LakeState = LakeState() if snapshot is None else _decode(snapshot, LakeState)
        recent = []
        while (path := self._path(state.version + 1)).exists():
            entry = _decode(path, Entry)
            recent.append(entry)
            state.apply(entry)
        if self._newest_snapshot() != snapshot:
            # A missing entry may be in the newer snapshot by now, and not mean the end of the log.
            raise FileNotFoundError(path)
        self.state, self.recent = state, recent

    def _newest_snapshot(self) -> Path | None:
        return max(self._folder.glob(f"{_STATE}*.json"), default=None)

    def append(self, entry: Entry) -> None:
        """Commit an entry. When this returns it is durable; if it raises, the entry is not in the log."""
        check_no_duplicates(entry, self.state)
        path = self._path(self.state.version + 1)
        made = path.with_name(f".{entry.staged}")
        write_whole(made, msgspec.json.encode(entry))
        try:
            os.link(made, path)
        except FileExistsError:
            raise PipelineFailed(
                f"another run writes to this lake ({path.name} is in its log by now); let one run write at a time"
            ) from None
        finally:
            made.unlink()
        sync_folder(self._folder)
        self.state.apply(entry)
        self.recent.append(entry)

    def write_snapshot(self, *, at_least: int = _SNAPSHOT_AFTER) -> None:
        """Write a snapshot of the state and remove the entries. Their files must have been moved out of staging."""
        if len(self.recent) < at_least:
            return
        snapshot = self._folder / f"{_STATE}{self.state.version:020d}.json"
        write_whole(snapshot, msgspec.json.encode(self.state))
        for number in range(self.state.version, self.state.version - len(self.recent), -1):
            self._path(number).unlink()
        for older in sorted(self._folder.glob(f"{_STATE}*.json"))[:-1]:
            older.unlink()
        self.recent = []

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020d}.json"


def check_no_duplicates(entry: Entry, state: LakeState) -> None:
    """Raise ``PipelineFailed`` if an entry adds messages that are in the lake already."""
    if entry.is_compaction:
        return
    for file in entry.add:
        for partition, (first, _) in file.offsets.items():
            end = state.ends.get(file.topic, {}).get(partition, 0)
            if first < end:
                raise PipelineFailed(
                    f"the lake has {file.topic}/{partition} up to offset {end}, and offset {first} came again: another "
                    "run archives the same topic. Nothing was added; let one run at a time write to a lake"
                )


def ends_of(files: Iterable[LakeFile], log_starts: Ends | None = None) -> Ends:
    """The ends of the lake once these files are added. ``log_starts``: start offsets of topics new to the lake."""
    ends: Ends = {topic: dict(starts) for topic, starts in (log_starts or {}).items()}
    for file in files:
        of_topic = ends.setdefault(file.topic, {})
        for partition, (_, last) in file.offsets.items():
            of_topic[partition] = max(of_topic.get(partition, 0), last + 1)
    return ends


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"the lake's log is damaged at {path}: {error}; restore that file from a backup") from None
