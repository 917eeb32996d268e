"""Read-only view of a data folder, beside a running broker or without one.

Creates, writes, locks, renames and removes no files, so a backup may be on a read-only disk. Imports no code of the
broker. Shows what the broker would show after a start: whole messages, and of transactions only committed ones. A
transaction without an end in the log counts as open, even if its outcome was decided.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from goqueue.model.errors import CorruptData, DataFolderTooNew, InvalidRequest, PartitionNotFound, TopicNotFound
from goqueue.model.ids import TopicId
from goqueue.storage.files.data_folder import FORMAT_VERSION
from goqueue.storage.reader.reader_files import DISK, Points, read_whole
from goqueue.storage.reader.reader_log import LogReader
from goqueue.storage.reader.reader_runs import read_runs

__all__ = ["FolderReader", "LogReader", "TopicOnDisk", "read_runs"]

_SEPARATOR = "~"
_MOST_NAMES = 20
_LOCKS = Path("/proc/locks")


class TopicOnDisk(NamedTuple):
    """A topic as found by the folder of its logs."""

    name: str
    topic_id: TopicId
    folder: Path
    partitions: int


class FolderReader:
    """Read-only view of a data folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._logs = root / "logs"
        self._points = Points(root)
        self._check()

    def _check(self) -> None:
        if not self.root.is_dir():
            raise InvalidRequest(
                f"there is no folder {self.root}; give the path of a broker's data folder (storage.path)"
            )
        path = self.root / "FORMAT"
        payload = read_whole(path)
        if payload is None:
            raise InvalidRequest(
                f"{self.root} is no data folder: it has no file FORMAT; give the folder itself (storage.path), not one "
                "above it or within it"
            )
        if not payload.isdigit():
            raise CorruptData(f"{path} does not tell a format but {payload[:20]!r}")
        if int(payload) > FORMAT_VERSION:
            raise DataFolderTooNew(
                f"{self.root} has format {int(payload)}; this version of GoQueue knows formats up to {FORMAT_VERSION}"
            )

    def topics(self) -> list[TopicOnDisk]:
        """All topics by name, including the broker's own (``__…``)."""
        try:
            names = DISK.list_dir(self._logs)
        except FileNotFoundError:
            return []
        found = []
        for each in names:
            name, separator, topic_id = each.rpartition(_SEPARATOR)
            folder = self._logs / each
            if separator and name and folder.is_dir():
                with suppress(FileNotFoundError):
                    partitions = sum(map(str.isdigit, DISK.list_dir(folder)))
                    found.append(TopicOnDisk(name, TopicId(topic_id), folder, partitions))
        return sorted(found)

    def topic(self, name: str, topic_id: TopicId | None = None) -> TopicOnDisk:
        """Find a topic by its name, or by ``name~id``."""
        if topic_id is None and _SEPARATOR in name:
            name, _, given = name.rpartition(_SEPARATOR)
            topic_id = TopicId(given)
        there = self.topics()
        found = [each for each in there if each.name == name and topic_id in (None, each.topic_id)]
        if not found:
            names = sorted({each.name for each in there if not each.name.startswith("__")})
            shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
            wanted = name if topic_id is None else f"{name}{_SEPARATOR}{topic_id}"
            raise TopicNotFound(f"{self.root} has no topic {wanted!r}; it has {shown or 'none'}")
        if len(found) > 1:
            choices = " or ".join(repr(f"{each.name}{_SEPARATOR}{each.topic_id}") for each in found)
            raise InvalidRequest(
                f"{self.root} has {len(found)} folders of topics named {name!r}: all but one were deleted, and their "
                f"files are still there. Say which is meant: {choices}"
            )
        return found[0]

    def log(self, topic: TopicOnDisk, partition: int) -> LogReader:
        if not 0 <= partition < topic.partitions:
            raise PartitionNotFound(
                f"topic {topic.name!r} has partitions 0 to {topic.partitions - 1}; there is no partition {partition}"
            )
        return LogReader(topic.folder / str(partition), self._points)

    def is_in_use(self) -> bool:
        """Whether a broker uses the folder right now."""
        return is_in_use(self.root)


def is_in_use(root: Path) -> bool:
    """Whether a broker uses the data folder right now, even if the folder is damaged otherwise."""
    try:
        lock = DISK.open(root / "LOCK")
    except FileNotFoundError:
        return False
    return _is_listed(lock.fd) or not _could_be_shared(lock.fd)


def _is_listed(fd: int) -> bool:
    """Whether the system's list of locks contains this file. Reading the list has no side effects."""
    stat = os.fstat(fd)
    file = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return False
    return any(" FLOCK " in line and file in line.split() for line in lines)


def _could_be_shared(fd: int) -> bool:
    """Whether no process holds the exclusive lock.

    The list of locks misses processes in other containers, and some file systems use other numbers there. This takes a
    lock for a few microseconds; a broker that starts retries.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return False
        raise
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True
