"""The real disk without fsync, for tests that look at files and lose no power."""

from __future__ import annotations

import os
from pathlib import Path

from goqueue.storage.files.files import OsFile, OsFiles


class _File(OsFile):
    def sync(self) -> None:
        pass


class UnsyncedFiles(OsFiles):
    def open(self, path: Path, *, create: bool = False) -> OsFile:
        synced = super().open(path, create=create)
        return _File(os.dup(synced.fd))

    def sync_dir(self, path: Path) -> None:
        pass

    def sync_filesystem(self, path: Path) -> None:
        pass
