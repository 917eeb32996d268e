"""The small files of a data folder under examination: its format, what is left over, and the trace files."""

from __future__ import annotations

import time
from pathlib import Path

from goqueue.model.errors import CorruptData, DataFolderTooNew
from goqueue.observe.trace_files import Budget, TraceFiles, Wanted
from goqueue.storage.checkup.findings import Finding, Severity, note
from goqueue.storage.files.atomic import TEMPORARY
from goqueue.storage.files.data_folder import FORMAT_VERSION
from goqueue.storage.reader.reader_files import DISK, ReadOnlyFiles, read_whole

_CHUNK = 1 << 20
_EVERYTHING = 1 << 62


def check_small_files(root: Path) -> list[Finding]:
    """Raises ``DataFolderTooNew`` if nothing in the folder can be judged."""
    return [*_check_format(root), *_check_leftovers(root), *_check_traces(root / "traces")]


def _check_format(root: Path) -> list[Finding]:
    path = root / "FORMAT"
    try:
        payload = read_whole(path)
    except CorruptData:
        payload = b""
    if payload is not None and payload.isdigit():
        if int(payload) > FORMAT_VERSION:
            raise DataFolderTooNew(
                f"{root} has format {int(payload)}; this version of GoQueue knows formats up to {FORMAT_VERSION}"
            )
        return []
    return [
        Finding(
            Severity.DAMAGE,
            path,
            "the file is missing" if payload is None else "the file is damaged",
            "nobody knows which version wrote this folder, so no broker starts on it; messages are not lost by it",
            "Restore this file from a backup, or copy it from a folder that the same version of GoQueue has made.",
        )
    ]


def _check_leftovers(root: Path) -> list[Finding]:
    found = []
    for folder in (root, root / "snapshots"):
        for each in sorted(folder.iterdir()) if folder.is_dir() else ():
            if each.name.endswith(TEMPORARY):
                found.append(note(each, "is left over from a write that was interrupted", "nobody reads it", ""))
            elif ".damaged" in each.name:
                advice = "Delete it when you do not need it."
                found.append(note(each, "was set aside because it was damaged", "nobody reads it", advice))
    return found


class _TraceDisk(ReadOnlyFiles):
    def make_dirs(self, path: Path) -> None:
        """It is there."""


def _check_traces(folder: Path) -> list[Finding]:
    """Whether every whole line is an event. Nothing depends on them."""
    if not folder.is_dir():
        return []
    files = TraceFiles(_TraceDisk(), folder, _EVERYTHING, _EVERYTHING, _EVERYTHING // 10**6, time.time_ns)
    events = sum(len(each) for each in files.search(Wanted(), Budget(_EVERYTHING)))
    lines = sum(_lines(path) for path in folder.glob("*.jsonl"))
    if events >= lines:
        return []
    return [
        note(
            folder,
            f"{lines - events} of {lines} lines in trace files are no events",
            "traces lack them; nothing else depends on these files",
            "Nothing needs to be done: a broker passes over them.",
        )
    ]


def _lines(path: Path) -> int:
    file = DISK.open(path)
    return sum(file.read(at, _CHUNK).count(b"\n") for at in range(0, file.size(), _CHUNK))
