"""A disk in memory that forgets what was not fsynced, and fails when told to.

It keeps two worlds. The live one is what the running process sees. The durable one is what was synced: the content and
length of a file by its ``sync``, the names in a folder by ``sync_dir``. ``crash`` makes the disk that a machine finds
after a power loss: the durable world, plus any part of what was pending. Pending writes are lost, torn or kept, each
for itself; so are truncations, and creations, renames and removals of names (each of them whole).
"""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random
from types import FrameType
from typing import Self

from goqueue.model.errors import DataFolderLocked
from goqueue.simulation.disk_nodes import Folder, Inode, Naming, Node, Truncate, Write, inodes, survivor
from goqueue.storage.files.files import Buffer

Site = str
"""Where in the source a sync was asked for."""


class PowerLoss(BaseException):
    """The machine has stopped. Derives from ``BaseException`` so that no handler under test outlives it."""


class SimulatedDisk:
    """The ``Files`` port over two worlds in memory. Safe to use from threads."""

    def __init__(self) -> None:
        self._root = Folder()
        self._namings: list[Naming] = []
        self._mutex = threading.RLock()
        self._locks: set[PurePosixPath] = set()
        self._ignored: Site | None = None
        self.sites: set[Site] = set()
        """Every place in the source that asked for a sync so far."""
        self.calls = 0
        """Calls that change or sync something, so far."""
        self.fail_at: int | None = None
        """The power goes at this call."""
        self.dead = False
        self.on_power_loss: Callable[[], None] = lambda: None
        self.before_call: Callable[[], None] = lambda: None
        """Called before anything changes or is synced."""
        self.quota: int | None = None
        """Bytes that all live files together may have."""
        self.sync_fault: Callable[[Site, int], bool] = lambda site, count: False
        """Tells by call site and number of the sync (from 1) whether it fails with ``EIO``."""
        self.read_fault: Callable[[], bool] = lambda: False
        self.syncs = 0
        self.filesystem_syncs = 0
        self.bytes_read = 0

    # What is done to it

    def ignore_sync_from(self, site: Site | None) -> None:
        """Make the syncs of one place in the source do nothing, as if someone had deleted them."""
        self._ignored = site

    def crash(self, rng: Random) -> Self:
        """What may be found when the power is back if it goes now. May be asked as often as one likes."""
        with self._mutex:
            keep = rng.choice((0.0, 0.3, 0.5, 0.7, 1.0))
            names: dict[int, dict[str, Node]] = {}

            def entries(folder: Folder) -> dict[str, Node]:
                return names.setdefault(id(folder), dict(folder.durable))

            for naming in self._namings:
                if rng.random() < keep:
                    naming.apply(entries)
            after = type(self)()
            copies: dict[int, Node] = {}
            after._root = survivor(self._root, entries, copies, rng, keep)
            return after

    def remount(self) -> Self:
        """The disk as a new process finds it when the one before was killed: all that was written, no locks."""
        with self._mutex:
            again = type(self)()
            again._root, again._namings, again.quota = self._root, self._namings, self.quota
            self.dead = True
            return again

    def revive(self) -> None:
        """Go on as if only the process had died: everything written is still there, in memory."""
        self.dead, self.fail_at = False, None

    def damage(self, path: Path, change: Callable[[bytes], bytes]) -> None:
        """Change what a file holds behind everyone's back, durably."""
        with self._mutex:
            inode = self._file(path)
            inode.live[:] = change(bytes(inode.live))
            inode.durable, inode.pending = bytes(inode.live), []
            self._sync_names(self._folder(path.parent))

    def content(self, path: Path) -> bytes:
        with self._mutex:
            return bytes(self._file(path).live)

    def used_bytes(self) -> int:
        return sum(map(len, {id(inode): inode.live for inode in inodes(self._root)}.values()))

    def release_locks(self) -> None:
        """What the end of a process does."""
        self._locks.clear()

    # The port

    def open(self, path: Path, *, create: bool = False) -> _OpenFile:
        with self._mutex:
            folder, name = self._parent(path)
            node = folder.live.get(name)
            if node is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
                self._tick()
                node = Inode()
                self._name((folder, name, node))
            if isinstance(node, Folder):
                raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
            return _OpenFile(self, node)

    def exists(self, path: Path) -> bool:
        with self._mutex:
            return self._find(path) is not None

    def size(self, path: Path) -> int:
        with self._mutex:
            return len(self._file(path).live)

    def list_dir(self, path: Path) -> list[str]:
        with self._mutex:
            return list(self._folder(path).live)

    def make_dirs(self, path: Path) -> None:
        with self._mutex:
            folder = self._root
            for part in _parts(path):
                node = folder.live.get(part)
                if node is None:
                    self._tick()
                    node = Folder()
                    self._name((folder, part, node))
                if isinstance(node, Inode):
                    raise FileExistsError(errno.EEXIST, "File exists", str(path))
                folder = node

    def rename(self, source: Path, target: Path) -> None:
        with self._mutex:
            self._tick()
            node = self._find(source)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "No such file", str(source))
            old, new = self._parent(source), self._parent(target)
            self._name((*old, None), (*new, node))

    def link(self, source: Path, target: Path) -> None:
        with self._mutex:
            self._tick()
            self._name((*self._parent(target), self._file(source)))

    def remove(self, path: Path) -> None:
        with self._mutex:
            self._tick()
            folder, name = self._parent(path)
            if name in folder.live:
                self._name((folder, name, None))

    def remove_tree(self, path: Path) -> None:
        self.remove(path)

    def free_bytes(self, path: Path) -> int:
        with self._mutex:
            return (1 << 40) if self.quota is None else max(0, self.quota - self.used_bytes())

    def close_to_others(self, root: Path, is_ours: Callable[[str], bool]) -> int | None:
        return None

    def lock(self, path: Path) -> object:
        with self._mutex:
            key = PurePosixPath(path)
            self.open(path, create=True)
            if key in self._locks:
                raise DataFolderLocked(f"{path.parent} is in use")
            self._locks.add(key)
            return _Lock(self, key)

    # Handed out as attributes, so that whoever mentions one is known even if somebody else calls it.

    @property
    def sync_dir(self) -> Callable[[Path], None]:
        return _SyncDir(self, self.site_of(sys._getframe(1), "sync_dir"))

    @property
    def sync_filesystem(self) -> Callable[[Path], None]:
        return _SyncFilesystem(self, self.site_of(sys._getframe(1), "sync_filesystem"))

    # Inside

    def site_of(self, frame: FrameType, call: str) -> Site:
        """A name for the place in the source that makes a call."""
        return f"{frame.f_code.co_qualname}:{call}"

    def _begin_sync(self, site: Site) -> bool:
        """Count a sync; whether it takes effect."""
        self._tick()
        self.sites.add(site)
        self.syncs += 1
        if self.sync_fault(site, self.syncs):
            raise OSError(errno.EIO, "Input/output error")
        return site != self._ignored

    def _sync_names(self, folder: Folder) -> None:
        rest = []
        for naming in self._namings:
            if naming.touches(folder):
                naming.apply(lambda each: each.durable)
            else:
                rest.append(naming)
        self._namings = rest

    def _tick(self) -> None:
        if self.dead:
            raise PowerLoss
        self.before_call()
        self.calls += 1
        if self.fail_at is not None and self.calls >= self.fail_at:
            self.dead = True
            self.on_power_loss()
            raise PowerLoss

    def _name(self, *changes: tuple[Folder, str, Node | None]) -> None:
        naming = Naming(changes)
        naming.apply(lambda folder: folder.live)
        self._namings.append(naming)

    def _room_for(self, inode: Inode, end: int) -> int:
        """Up to where ``inode`` may be written."""
        if self.quota is None:
            return end
        return min(end, len(inode.live) + max(0, self.quota - self.used_bytes()))

    def _find(self, path: Path) -> Node | None:
        node: Node = self._root
        for part in _parts(path):
            if isinstance(node, Inode) or part not in node.live:
                return None
            node = node.live[part]
        return node

    def _parent(self, path: Path) -> tuple[Folder, str]:
        return self._folder(path.parent), path.name

    def _folder(self, path: Path) -> Folder:
        node = self._find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(errno.ENOENT, "No such folder", str(path))
        return node

    def _file(self, path: Path) -> Inode:
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return node


class _OpenFile:
    """The ``File`` port over an inode."""

    __slots__ = ("_disk", "_inode")

    def __init__(self, disk: SimulatedDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def read(self, position: int, size: int) -> bytes:
        with self._disk._mutex:
            if self._disk.read_fault():
                raise OSError(errno.EIO, "Input/output error")
            data = bytes(self._inode.live[position : position + size])
            self._disk.bytes_read += len(data)
            return data

    def write(self, position: int, data: Buffer) -> None:
        with self._disk._mutex:
            self._disk._tick()
            wanted = bytes(data)
            room = max(0, self._disk._room_for(self._inode, position + len(wanted)) - position)
            if wanted[:room]:
                live = self._inode.live
                live.extend(bytes(max(0, position - len(live))))
                live[position : position + room] = wanted[:room]
                self._inode.pending.append(Write(position, wanted[:room]))
            if room < len(wanted):
                raise OSError(errno.ENOSPC, "No space left on device")

    def size(self) -> int:
        with self._disk._mutex:
            return len(self._inode.live)

    def truncate(self, size: int) -> None:
        with self._disk._mutex:
            self._disk._tick()
            live = self._inode.live
            if len(live) != size:
                del live[size:]
                live.extend(bytes(size - len(live)))
                self._inode.pending.append(Truncate(size))

    @property
    def sync(self) -> Callable[[], None]:
        return _SyncFile(self._disk, self._disk.site_of(sys._getframe(1), "sync"), self._inode)


@dataclass(frozen=True, slots=True)
class _SyncFile:
    disk: SimulatedDisk
    site: Site
    inode: Inode

    def __call__(self) -> None:
        with self.disk._mutex:
            if self.disk._begin_sync(self.site):
                self.inode.sync()


@dataclass(frozen=True, slots=True)
class _SyncDir:
    disk: SimulatedDisk
    site: Site

    def __call__(self, path: Path) -> None:
        with self.disk._mutex:
            if self.disk._begin_sync(self.site):
                self.disk._sync_names(self.disk._folder(path))


@dataclass(frozen=True, slots=True)
class _SyncFilesystem:
    disk: SimulatedDisk
    site: Site

    def __call__(self, path: Path) -> None:
        with self.disk._mutex:
            self.disk.filesystem_syncs += 1
            if not self.disk._begin_sync(self.site):
                return
            for naming in self.disk._namings:
                naming.apply(lambda folder: folder.durable)
            self.disk._namings = []
            for inode in inodes(self.disk._root):
                inode.sync()


class _Lock:
    def __init__(self, disk: SimulatedDisk, key: PurePosixPath) -> None:
        self._disk, self._key = disk, key

    def __del__(self) -> None:
        self._disk._locks.discard(self._key)


def _parts(path: Path) -> list[str]:
    # A path makes its parts anew each time it is asked, and this is asked for at every call.
    within = str(path)[1:]
    return within.split("/") if within else []
