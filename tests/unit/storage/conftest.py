"""A log on the real disk, for tests that look at its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from doubles.messages import OpenLog, Ticking

from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import Files, OsFiles
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def reopen(folder: Path, clock: Ticking) -> OpenLog:
    """Open the log in ``folder``; each call is a start after the last one was killed."""

    def opened(
        point: RecoveryPoint | None = None,
        *,
        files: Files | None = None,
        segment_bytes: int = 600,
        index_interval_bytes: int = 150,
    ) -> Log:
        options = LogOptions(segment_bytes, index_interval_bytes)
        return open_log(OpenFiles(files or OsFiles(), 30), folder, options, clock, point)

    return opened
