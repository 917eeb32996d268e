"""Which files and folders of the real disk are brought to it, in order, for what does not go through the file port."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goqueue.storage.files.files

Note = Callable[[Path], Any]


def note_syncs(monkeypatch: pytest.MonkeyPatch, note: Note) -> list[Any]:
    """What ``note`` says of each path when it is brought to the disk; of a whole file system by ``{folder}/**``."""
    noted: list[Any] = []

    def noting(sync: Callable[[int], Any], below: str) -> Callable[[int], Any]:
        def noted_sync(descriptor: int) -> Any:
            noted.append(note(Path(f"/proc/self/fd/{descriptor}").readlink() / below))
            return sync(descriptor)

        return noted_sync

    files = goqueue.storage.files.files
    for holder, name, below in ((os, "fsync", ""), (files, "_sync_content", ""), (files, "_syncfs", "**")):
        monkeypatch.setattr(holder, name, noting(getattr(holder, name), below))
    return noted
