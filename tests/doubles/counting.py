"""The real disk, with a note of what was read."""

from __future__ import annotations

from pathlib import Path

from goqueue.storage.files.files import OsFile, OsFiles


class CountingFile:
    def __init__(self, inner: OsFile, path: Path, reads: list[Path]) -> None:
        self._inner, self._path, self._reads = inner, path, reads

    def read(self, position: int, size: int) -> bytes:
        self._reads.append(self._path)
        return self._inner.read(position, size)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


class CountingFiles(OsFiles):
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[Path] = []
        self.opened: list[Path] = []

    def open(self, path: Path, *, create: bool = False) -> CountingFile:  # type: ignore[override]
        self.opened.append(path)
        return CountingFile(super().open(path, create=create), path, self.reads)
