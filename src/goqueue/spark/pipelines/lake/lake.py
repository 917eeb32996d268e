"""A lake of Parquet files in a folder, to which micro-batches are added exactly once.

::

    lake/topic=orders/day=2026-11-15/9f1c…/part-00000-….parquet     what readers see
    lake/_log/00000000000000000042.json                             the files that the lake holds (``lake_log``)
    lake/_staging/9f1c…/                                            files being written, and Spark's checkpoints

**Exactly once.** The log entry that adds files also records the end offset of each partition in the lake, so the two
are never inconsistent. Every run starts at the ends in the log, with a new checkpoint of its own: after a kill at any
point, with any selection of topics. A permanent checkpoint would be a second source of truth, outdated as soon as
another run, or one with other topics, has added files.

**What plain readers see.** Files are written to ``_staging``, which Spark and pyarrow ignore, as all names with a
leading underscore. After the log entry, they are moved to their final folders by one rename per topic and day: so a
reader that lists folders sees no partly written file, no file of a failed batch, and of each topic and day either all
files of a batch or none. Between two of these renames a batch of several topics or days is visible in part; after a
kill right there, the next process that opens the lake completes the moves. Spark's own file sink would put files into
their final folders *before* it commits them and record commits in ``_spark_metadata``, which only Spark reads: after a
kill every other reader sees the batch twice. Delta and Iceberg (``lake_tables``) give consistent snapshots of a topic.

**Compaction** builds a new folder of a day beside the old one (unchanged files are hard-linked into it) and swaps the
two in one system call. A plain reader sees the small files or the large ones, never both. A reader that lists the old
files and opens them later gets an error that they are gone, and must list again; ``restore`` and ``backfill`` hold a
lock that prevents compaction.
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

from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineFailed
from goqueue.spark.pipelines.lake.lake_log import Ends, Entry, LakeFile, LakeLog, LakeState, TopicMark, ends_of

_AT_WORKING_FOLDER = -100
_EXCHANGE = 2


class Lake:
    """The lake in a folder. Starting to write or to read first completes the moves that a killed run left pending."""

    keeps_columns = False
    """Whether topic and day are also columns of the files, not only in folder names."""
    can_compact = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._staging = folder / "_staging"
        self._locks = folder / "_log"
        self._log = LakeLog(self._locks)

    @property
    def state(self) -> LakeState:
        return self._log.state

    def ends(self, topics: Mapping[str, TopicMark]) -> Ends:
        """The end offsets of these topics in the lake. Raises for a recreated topic, whose offsets restart at 0."""
        for name, mark in topics.items():
            known = self.state.topics.get(name)
            if known is not None and known.id != mark.id:
                raise topic_recreated(name, self.folder)
        return {name: dict(self.state.ends.get(name, {})) for name in topics}

    def files(self, topic: str) -> list[LakeFile]:
        return [file for file in self.state.files.values() if file.topic == topic]

    def topics(self) -> list[str]:
        return sorted(self.state.topics)

    def partitions(self, topic: str) -> int:
        """The topic's number of partitions when it was last archived."""
        return self.state.topics[topic].partitions

    def path_of(self, file: LakeFile) -> Path:
        return self.folder / file.path

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer lock, for one run at a time. Staged files of killed runs are removed."""
        with self._lock("writer", fcntl.LOCK_EX) as is_locked:
            if not is_locked:
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
        """Hold a shared reader lock: no file is removed meanwhile."""
        with self._lock("reader", fcntl.LOCK_SH) as is_locked:
            if not is_locked:
                raise PipelineFailed(f"the lake {self.folder} is being compacted; try again in a moment")
            self._log.read()
            self.finish()
            yield

    @contextmanager
    def removing_files(self) -> Iterator[bool]:
        """Hold the reader lock exclusively, to remove files. False if there are readers, so nothing may be removed."""
        with self._lock("reader", fcntl.LOCK_EX) as is_locked:
            yield is_locked

    @contextmanager
    def _lock(self, name: str, kind: int, *, wait: bool = False) -> Iterator[bool]:
        self._locks.mkdir(parents=True, exist_ok=True)
        with (self._locks / f"{name}.lock").open("a") as file:
            # A lock of this process: a kill releases it.
            try:
                fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
            except BlockingIOError:
                is_locked = False
            else:
                is_locked = True
            yield is_locked

    def new_stage(self) -> tuple[str, Path]:
        """A unique name, and the path of a staging folder with that name, which does not exist yet."""
        name = uuid.uuid4().hex
        self._staging.mkdir(parents=True, exist_ok=True)
        return name, self._staging / name

    def add(
        self, staged: str, files: list[LakeFile], topics: dict[str, TopicMark], log_starts: Ends | None = None
    ) -> None:
        """Add staged files to the lake atomically."""
        self._log.append(Entry(staged, files, ends=ends_of(files, log_starts), topics=topics))
        self.finish()
        self._log.write_snapshot()

    def replace(self, staged: str, old: list[LakeFile], new: list[LakeFile]) -> None:
        """Replace the folder of a day by the staged one, which must hold all messages of that day."""
        self._log.append(Entry(staged, new, remove=[file.path for file in old]))
        self.finish()
        self._log.write_snapshot()

    def discard(self, staged: str) -> None:
        """Remove staged files, unless they are in the log: then they are moved to their folders later."""
        if all(entry.staged != staged for entry in self._log.recent):
            shutil.rmtree(self._staging / staged, ignore_errors=True)

    def finish(self) -> None:
        """Move the files of log entries from staging to their folders. Idempotent and safe to run concurrently."""
        pending = [entry for entry in self._log.recent if (self._staging / entry.staged).exists()]
        if not pending:
            return
        with self._lock("finish", fcntl.LOCK_EX, wait=True):
            for entry in pending:
                self._finish(entry)

    def _finish(self, entry: Entry) -> None:
        stage = self._staging / entry.staged
        for day in sorted(stage.glob("topic=*/day=*")):
            target = self.folder / day.parent.name / day.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.is_compaction:
                _swap(day, target, entry.staged)
            else:
                target.mkdir(exist_ok=True)
                day.rename(target / entry.staged)
        shutil.rmtree(stage, ignore_errors=True)


def _swap(new: Path, target: Path, mark: str) -> None:
    """Swap two folders, unless that was done already: then the target contains ``mark``."""
    if (target / mark).exists():
        return
    if not target.exists():
        new.rename(target)
    elif not _exchange_names(new, target):
        target.rename(new.with_name(f".{new.name}"))
        new.rename(target)


def _exchange_names(one: Path, other: Path) -> bool:
    """Swap two names atomically; False if the system or the file system does not support it."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    if function(_AT_WORKING_FOLDER, os.fsencode(one), _AT_WORKING_FOLDER, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def topic_recreated(topic: str, folder: Path) -> PipelineFailed:
    return PipelineFailed(
        f"topic {topic!r} was deleted and made anew since it was archived to {folder}: its offsets mean other messages "
        "now. Archive it to another folder"
    )


def lake_folder(given: str) -> Path:
    """The folder of the setting ``lake``. It must have the same path on every machine that works on the lake."""
    scheme, separator, rest = given.partition("://")
    if separator and scheme != "file":
        raise InvalidPipeline(
            f"lake: {given!r} is not a folder; the lake is a folder on a disk or a mount that every worker sees. "
            "Object stores cannot rename, which the lake's promise rests on; mount it, or copy the finished days there"
        )
    return Path(rest if separator else given).absolute()
