"""A lake of Parquet files in a folder, to which micro-batches come exactly once.

::

    lake/topic=orders/day=2026-11-15/9f1c…/part-00000-….parquet     what readers see
    lake/_log/00000000000000000042.json                             what the lake holds (``lake_log``)
    lake/_staging/9f1c…/                                            what is being written, and what Spark notes down

**Once each.** The log tells up to which offset each partition is in the lake, in the same entry that adds the files, so
neither can be without the other. Every run begins where the log says that the lake ends, with a checkpoint of its own:
after a kill at any point, with whatever choice of topics. A checkpoint that is kept would be a second truth, which is
behind as soon as another run, or another choice of topics, has gone on.

**What plain readers see.** Files are written to ``_staging``, which Spark and pyarrow pass over, as all names with an
underscore in front. They get to their place after the log has them, by renaming the folder of each topic and day: so a
reader who lists folders sees no file that is half written, none of a batch that failed, and of a topic and day all that
a batch has or nothing. Between two of these renames a batch of several topics or days is there in part; a kill right
there is completed by whoever opens the lake next. Spark's own file sink would put files where they stay *before* it
commits them and keep the truth in ``_spark_metadata``, which only Spark reads: after a kill every other reader sees the
batch twice. Delta and Iceberg (``lake_tables``) are for those who want one cut across all topics.

**Compaction** makes a new folder of a day beside the old one (files that stay are linked into it) and swaps the two in
one system call. A plain reader sees the small files or the large ones, never both. One that has listed the old ones and
opens them later is told that they are gone, and reads again; ``restore`` and ``backfill`` keep compaction away.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineFailed
from goqueue.spark.pipelines.lake.lake_log import Ends, Entry, LakeFile, LakeLog, LakeState, TopicMark, ends_of

_AT_WORKING_FOLDER = -100
_EXCHANGE = 2


class Lake:
    """The lake in a folder. Who begins to write or to read completes what a killed run has left undone."""

    keeps_columns = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._staging = folder / "_staging"
        self._locks = folder / "_log"
        self._log = LakeLog(self._locks)

    @property
    def state(self) -> LakeState:
        return self._log.state

    def ends(self, topics: Mapping[str, TopicMark]) -> Ends:
        """How far the lake has these topics. One that was deleted and made anew is refused: its offsets begin anew."""
        for name, mark in topics.items():
            known = self.state.topics.get(name)
            if known is not None and known.id != mark.id:
                raise made_anew(name, self.folder)
        return {name: dict(self.state.ends.get(name, {})) for name in topics}

    def files(self, topic: str) -> list[LakeFile]:
        return [file for file in self.state.files.values() if file.topic == topic]

    def topics(self) -> list[str]:
        return sorted(self.state.topics)

    def partitions(self, topic: str) -> int:
        """How many the topic had when it was last archived."""
        return self.state.topics[topic].partitions

    def path_of(self, file: LakeFile) -> Path:
        return self.folder / file.path

    @contextmanager
    def writing(self) -> Iterator[None]:
        """For one run at a time. What runs that were killed have staged is removed."""
        with self._lock("writer", fcntl.LOCK_EX) as got:
            if not got:
                raise PipelineFailed(
                    f"another run writes to the lake {self.folder}; wait until it ends, or archive to another folder"
                )
            self._log.read()
            self.finish()
            for left in self._staging.glob("*"):
                shutil.rmtree(left)
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While this lasts no file goes away."""
        with self._lock("reader", fcntl.LOCK_SH) as got:
            if not got:
                raise PipelineFailed(f"the lake {self.folder} is being compacted; try again in a moment")
            self._log.read()
            self.finish()
            yield

    @contextmanager
    def moving(self) -> Iterator[bool]:
        """False if somebody reads, so that no file may go away now."""
        with self._lock("reader", fcntl.LOCK_EX) as got:
            yield got

    @contextmanager
    def _lock(self, name: str, kind: int, *, wait: bool = False) -> Iterator[bool]:
        self._locks.mkdir(parents=True, exist_ok=True)
        with (self._locks / f"{name}.lock").open("a") as file:
            # Held by this process alone: a kill releases it.
            yield _locked(file, kind if wait else kind | fcntl.LOCK_NB)

    def new_stage(self) -> tuple[str, Path]:
        """A name that nobody else has, and a folder of that name that is not there yet."""
        name = uuid.uuid4().hex
        self._staging.mkdir(parents=True, exist_ok=True)
        return name, self._staging / name

    def add(self, staged: str, files: list[LakeFile], topics: dict[str, TopicMark], begun: Ends | None = None) -> None:
        """Make staged files part of the lake, all or none of them."""
        self._log.append(Entry(staged, files, ends=ends_of(files, begun), topics=topics))
        self.finish()
        self._log.sum_up()

    def replace(self, staged: str, old: list[LakeFile], new: list[LakeFile]) -> None:
        """Put the staged folder of a day in the place of the one that is there. It holds everything of that day."""
        self._log.append(Entry(staged, new, remove=[file.path for file in old]))
        self.finish()
        self._log.sum_up()

    def discard(self, staged: str) -> None:
        """Remove what was staged, unless the log has it: then it gets to its place later."""
        if all(entry.staged != staged for entry in self._log.recent):
            shutil.rmtree(self._staging / staged, ignore_errors=True)

    def finish(self) -> None:
        """Bring to their places the files that the log has. Doing it twice, or by two at once, does no harm."""
        undone = [entry for entry in self._log.recent if (self._staging / entry.staged).exists()]
        if not undone:
            return
        with self._lock("finish", fcntl.LOCK_EX, wait=True):
            for entry in undone:
                self._finish(entry)

    def _finish(self, entry: Entry) -> None:
        stage = self._staging / entry.staged
        for day in sorted(stage.glob("topic=*/day=*")):
            place = self.folder / day.parent.name / day.name
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry.is_compaction:
                _swap(day, place, entry.staged)
            else:
                place.mkdir(exist_ok=True)
                day.rename(place / entry.staged)
        shutil.rmtree(stage, ignore_errors=True)


def _locked(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind)
    except BlockingIOError:
        return False
    return True


def _swap(new: Path, place: Path, mark: str) -> None:
    """Swap two folders, unless that was done: then the one in place has ``mark`` in it."""
    if (place / mark).exists():
        return
    if not place.exists():
        new.rename(place)
    elif not _exchanged(new, place):
        place.rename(new.with_name(f".{new.name}"))
        new.rename(place)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the system or the file system cannot."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    if function(_AT_WORKING_FOLDER, os.fsencode(one), _AT_WORKING_FOLDER, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def made_anew(topic: str, folder: Path) -> PipelineFailed:
    return PipelineFailed(
        f"topic {topic!r} was deleted and made anew since it was archived to {folder}: its offsets mean other messages "
        "now. Archive it to another folder"
    )


def lake_folder(given: str) -> Path:
    """The folder that a user means. Every machine that works on the lake must see it under this name."""
    scheme, separator, rest = given.partition("://")
    if separator and scheme != "file":
        raise InvalidPipeline(
            f"lake: {given!r} is not a folder; the lake is a folder on a disk or a mount that every worker sees. "
            "Object stores cannot rename, which the lake's promise rests on; mount it, or copy the finished days there"
        )
    return Path(rest if separator else given).absolute()
