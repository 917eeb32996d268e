"""The data folder: its lock, its format version and its layout.

::

    FORMAT                                   the format's version
    LOCK                                     held by the broker that uses the folder
    checkpoint                               recovery points of all logs
    snapshots/{journal}                      snapshots from which journals replay
    logs/{topic}~{uuid}/{partition}/         segments
    orphans/                                 log folders that belong to no topic, kept for inspection
    backup-links/                            while a backup is read: hard links to its files
    RESTORED                                 until the first start after a restore from a backup (``RESTORED``)
    traces/                                  trace files
    restore.part/                            while 'goqueue restore' fills the folder (``RESTORE_PART``)

Folders (0700) and files (0600) are accessible to their owner only. No symbolic link in the folder is followed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from goqueue.model.errors import CorruptData, DataFolderTooNew
from goqueue.model.ids import TopicId
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import TEMPORARY, read_checked, write_atomically
from goqueue.storage.files.files import Files

FORMAT_VERSION = 5
"""5 has transactions in the journals of shards, beside what shards were shown of groups and where partitions begin, and
ids of producers in ``__metadata``, in place of the journal of transactions. 4 has a journal for each shard
(``__shards``) in place of the journals of groups. A start converts both. 3 added verifiable producer ids, indexes of
segments with gaps, and records of losses; 2 added the journals of groups, snapshots in parts, lane indexes and delayed
records. Everything else of earlier folders is read without conversion."""
RESTORED = "RESTORED"
"""Marker file of a folder that is a copy of an earlier state. Ids assigned after that state, such as producer ids,
are unknown in it and must not be assigned again: the first start ensures that and removes the file."""
RESTORE_PART = "restore.part"
TRACES = "traces"
_NAMES = (
    "FORMAT",
    "LOCK",
    "checkpoint",
    "snapshots",
    "logs",
    "orphans",
    "backup-links",
    RESTORED,
    RESTORE_PART,
    TRACES,
)
_SET_ASIDE = ".damaged"
_SEPARATOR = "~"
log = get_logger(__name__)


class DataFolder:
    """A data folder in use. It stays locked until ``close``."""

    def __init__(self, files: Files, root: Path) -> None:
        self.files = files
        self.root = root
        self.logs = root / "logs"
        self.snapshots = root / "snapshots"
        self.orphans = root / "orphans"
        self.checkpoint = root / "checkpoint"
        self.backup_links = root / "backup-links"
        self.restored = root / RESTORED
        files.make_dirs(root)
        for name in _NAMES:
            # Raises for a symbolic link.
            files.exists(root / name)
        self._lock: object = files.lock(root / "LOCK")
        self._check_format()
        for folder in (self.logs, self.snapshots, self.orphans):
            files.make_dirs(folder)
        if files.exists(self.backup_links):
            # A broker was killed during a backup. The links keep the content of files removed elsewhere.
            files.remove_tree(self.backup_links)
        self._close_to_others()
        files.sync_dir(root)

    def close(self) -> None:
        self._lock = None

    def _close_to_others(self) -> None:
        """Restrict permissions: earlier versions left them to the umask, so others could read messages and keys."""
        left = self.files.close_to_others(self.root, _is_ours)
        if left is None:
            return
        if left:
            log.warning(
                "other users of this machine may read the data folder, and it cannot be closed to them: it, or what is "
                "in it, belongs to somebody else, or is used for something else; see 'ls -la' and 'chmod -R go= DIR'",
                data=str(self.root),
                left_open=left,
            )
        else:
            log.info("the data folder was open to other users; now it is for its owner alone", data=str(self.root))

    def _check_format(self) -> None:
        path = self.root / "FORMAT"
        payload = read_checked(self.files, path)
        if payload is None:
            if self.files.exists(self.root / RESTORE_PART):
                raise CorruptData(
                    f"{self.root} is not whole: a restore to it is under way, or was broken off; run 'goqueue restore' "
                    "again"
                )
            if self.files.exists(self.logs):
                raise CorruptData(f"{path} is missing although {self.logs} exists; restore it from a backup")
            for parent in self.root.parents:
                # The folder was created just now, or by a start that was killed before this point.
                with suppress(PermissionError):
                    self.files.sync_dir(parent)
            write_atomically(self.files, path, str(FORMAT_VERSION).encode())
            return
        found = int(payload)
        if found > FORMAT_VERSION:
            raise DataFolderTooNew(
                f"{self.root} has format {found}; this version of GoQueue knows formats up to {FORMAT_VERSION}"
            )
        if found < FORMAT_VERSION:
            # From here on, the folder may hold data that an older version does not know.
            write_atomically(self.files, path, str(FORMAT_VERSION).encode())

    def topic_folder(self, name: str, topic_id: TopicId) -> Path:
        return self.logs / f"{name}{_SEPARATOR}{topic_id}"

    def create_partitions(self, folder: Path, count: int) -> None:
        """Create the folders of a topic's partitions; durable on return."""
        for partition in range(count):
            self.files.make_dirs(folder / str(partition))
        self.files.sync_dir(folder)
        self.files.sync_dir(self.logs)

    def topic_folders(self) -> dict[str, Path]:
        """Log folders by topic id."""
        return {
            name.rpartition(_SEPARATOR)[2]: self.logs / name
            for name in self.files.list_dir(self.logs)
            if _SEPARATOR in name
        }

    def has_messages(self, folder: Path) -> bool:
        """Whether any partition in a topic's folder holds a byte of log."""
        for partition in self.files.list_dir(folder):
            for name in self.files.list_dir(folder / partition):
                if name.endswith(".log") and self.files.size(folder / partition / name):
                    return True
        return False

    def set_aside(self, folder: Path) -> None:
        self.files.rename(folder, self.orphans / folder.name)

    def remove_topic(self, folder: Path) -> None:
        """Remove a topic's folder; on return, no part of it can reappear, even after a power loss."""
        self.files.remove_tree(folder)
        self.files.sync_dir(self.logs)


def _is_ours(name: str) -> bool:
    return name.removesuffix(TEMPORARY).partition(_SET_ASIDE)[0] in _NAMES
