"""What a lake of Parquet files holds: a log of numbered entries, each one whole or not there.

An entry tells which files a micro-batch adds, which ones a compaction replaces, and up to which offset each partition
is in the lake by then. Who comes first with a number wins: a second writer that does not know of it is refused. Now and
then the sum of all entries is written down, and they are removed.
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
"""By topic and partition: the offset behind the last message that is in the lake."""
_SUM_UP_AFTER = 100
_STATE = "state-"


class LakeFile(msgspec.Struct, frozen=True):
    """A file of one topic and one day."""

    path: str
    """Below the lake's folder."""
    topic: str
    day: str
    rows: int
    size_bytes: int
    offsets: dict[int, tuple[int, int]]
    """The first and the last offset of each partition that has messages in it."""
    times_us: tuple[int, int]
    """The oldest and the newest timestamp."""
    shape: str
    """Files of the same shape have the same columns."""


class TopicMark(msgspec.Struct, frozen=True):
    """Which topic it was: one that was deleted and made anew has another id."""

    id: str
    partitions: int


class Entry(msgspec.Struct, frozen=True):
    staged: str
    """The folder in which the files were written before they got to their place."""
    add: list[LakeFile]
    remove: list[str] = []
    ends: Ends = {}
    topics: dict[str, TopicMark] = {}

    @property
    def is_compaction(self) -> bool:
        return bool(self.remove)


class LakeState(msgspec.Struct):
    """All entries up to a number, taken together."""

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
    """The entries in a folder. One thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.state = LakeState()
        self.recent: list[Entry] = []
        """Those that are not summed up yet, oldest first."""
        self.read()

    def read(self) -> None:
        """Take in what others have written since."""
        while True:
            try:
                self._read()
                return
            except FileNotFoundError:
                # Summed up and removed by another between looking and reading; there is a newer sum now.
                continue

    def _read(self) -> None:
        whole = self._newest_sum()
        state: LakeState = LakeState() if whole is None else _decoded(whole, LakeState)
        recent = []
        while (path := self._path(state.version + 1)).exists():
            entry = _decoded(path, Entry)
            recent.append(entry)
            state.apply(entry)
        if self._newest_sum() != whole:
            # An entry that is not there may be one that was summed up since, and not the end of the log.
            raise FileNotFoundError(path)
        self.state, self.recent = state, recent

    def _newest_sum(self) -> Path | None:
        return max(self._folder.glob(f"{_STATE}*.json"), default=None)

    def append(self, entry: Entry) -> None:
        """Once this returns, the entry is in the lake and survives a power failure; if it raises, it is not there."""
        check_new(entry, self.state)
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

    def sum_up(self, *, at_least: int = _SUM_UP_AFTER) -> None:
        """Write down the sum of all entries and remove them. Their files must be in their places by now."""
        if len(self.recent) < at_least:
            return
        whole = self._folder / f"{_STATE}{self.state.version:020d}.json"
        write_whole(whole, msgspec.json.encode(self.state))
        for number in range(self.state.version, self.state.version - len(self.recent), -1):
            self._path(number).unlink()
        for older in sorted(self._folder.glob(f"{_STATE}*.json"))[:-1]:
            older.unlink()
        self.recent = []

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020d}.json"


def check_new(entry: Entry, state: LakeState) -> None:
    """Refuses messages that are in the lake already, whoever has put them there."""
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


def ends_of(files: Iterable[LakeFile], begun: Ends | None = None) -> Ends:
    """How far the lake goes once these files are in it. ``begun`` tells where topics began that are new to it."""
    ends: Ends = {topic: dict(starts) for topic, starts in (begun or {}).items()}
    for file in files:
        of_topic = ends.setdefault(file.topic, {})
        for partition, (_, last) in file.offsets.items():
            of_topic[partition] = max(of_topic.get(partition, 0), last + 1)
    return ends


def _decoded(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"the lake's log is damaged at {path}: {error}; restore that file from a backup") from None
