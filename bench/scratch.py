"""Folders for what a bench writes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A fresh folder under ``$GOQUEUE_BENCH_DIR`` or the system's own place, removed in any case."""
    folder = Path(tempfile.mkdtemp(prefix="goqueue-bench-", dir=os.environ.get("GOQUEUE_BENCH_DIR")))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def drop_from_page_cache(folder: Path) -> None:
    """Let the next reader of these files wait for the disk, as after a reboot. Needs no rights; Linux only."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
