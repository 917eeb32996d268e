"""Copy-on-write file system that shows what a start would do to a data folder, without changing it.

Reads come from the disk. Files that are written, truncated, renamed or removed are changed in copies in a temporary
folder, which is discarded. Recovery code can thus run as a dry run.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from weakref import WeakValueDictionary

from goqueue.storage.files.files import Buffer, OsFile, OsFiles
from goqueue.storage.reader.reader_files import DISK, refuse


class _Content:
    """Content of a file, independent of its name: a path on disk, or a copy of ours."""

    def __init__(self, place: Path, *, is_ours: bool) -> None:
        self.place = place
        self.is_ours = is_ours


class ScratchFiles:
    """The real disk with changes applied on top, which are kept in ``scratch``. Not thread-safe; nothing is synced."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._changed: dict[Path, _Content] = {}
        """Files created, changed or renamed here."""
        self._looked_at: WeakValueDictionary[Path, _Content] = WeakValueDictionary()
        self._gone: set[Path] = set()
        self._folders: set[Path] = set()
        self._copies = 0

    def open(self, path: Path, *, create: bool = False) -> ScratchFile:
        return ScratchFile(self, path, self._content(path, create=create))

    def _content(self, path: Path, *, create: bool = False) -> _Content:
        found = self._changed.get(path) or self._looked_at.get(path)
        if found is None and self.exists(path):
            found = self._looked_at[path] = _Content(path, is_ours=False)
        if found is None:
            if not create:
                raise FileNotFoundError(path)
            found = self._changed[path] = _Content(self._new_place(), is_ours=True)
            found.place.touch()
        return found

    def _new_place(self) -> Path:
        self._copies += 1
        return self._scratch / str(self._copies)

    def make_ours(self, path: Path, content: _Content) -> None:
        """Copy a file before its first change."""
        copied = self._new_place()
        shutil.copyfile(content.place, copied)
        content.place, content.is_ours = copied, True
        self._changed[path] = content

    def exists(self, path: Path) -> bool:
        if path in self._changed or path in self._folders:
            return True
        return path not in self._gone and path.exists()

    def size(self, path: Path) -> int:
        return self._content(path).place.stat().st_size

    def list_dir(self, path: Path) -> list[str]:
        there = DISK.list_dir(path) if path.exists() else []
        names = {name for name in there if path / name not in self._gone}
        return sorted(names | {each.name for each in self._changed if each.parent == path})

    def make_dirs(self, path: Path) -> None:
        self._folders |= {path, *path.parents}

    def rename(self, source: Path, target: Path) -> None:
        moved = self._content(source)
        self.remove(source)
        self.remove(target)
        self._changed[target] = moved

    def remove(self, path: Path) -> None:
        self._changed.pop(path, None)
        self._looked_at.pop(path, None)
        self._gone.add(path)

    def sync_dir(self, path: Path) -> None:
        pass

    def sync_filesystem(self, path: Path) -> None:
        pass

    def free_bytes(self, path: Path) -> int:
        return DISK.free_bytes(self._scratch)

    link = remove_tree = close_to_others = lock = refuse


class ScratchFile:
    """Read from disk until its first change."""

    def __init__(self, files: ScratchFiles, path: Path, content: _Content) -> None:
        self._files = files
        self._path = path
        self._content = content
        self._opened, self._file = content.place, _open(content)

    def read(self, position: int, size: int) -> bytes:
        return self._current_file().read(position, size)

    def size(self) -> int:
        return self._current_file().size()

    def write(self, position: int, data: Buffer) -> None:
        self._writable_file().write(position, data)

    def truncate(self, size: int) -> None:
        if size != self.size():
            self._writable_file().truncate(size)

    def sync(self) -> None:
        pass

    def _current_file(self) -> OsFile:
        if self._opened != self._content.place:
            self._opened, self._file = self._content.place, _open(self._content)
        return self._file

    def _writable_file(self) -> OsFile:
        if not self._content.is_ours:
            self._files.make_ours(self._path, self._content)
        return self._current_file()


def _open(content: _Content) -> OsFile:
    return (OsFiles() if content.is_ours else DISK).open(content.place)
