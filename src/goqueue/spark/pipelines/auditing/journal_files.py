"""A journal of the broker by its files: a snapshot, and the decisions behind it, as the broker reads them at a start.

A broker may be at work meanwhile: what it has written so far is what is told.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from goqueue.model.errors import StorageFailed
from goqueue.storage.reader.reader import LogReader, read_runs
from goqueue.storage.reader.reader_files import read_whole
from goqueue.wire.decoding import decode_run

_MOST_LOOKS = 10


class Part(msgspec.Struct, array_like=True):
    """Of a state, as it was at an offset of the journal."""

    name: str
    offset: int
    state: msgspec.Raw


class Snapshot(msgspec.Struct):
    """``begin``: where a replay begins; ``end``: where the last part was dumped."""

    begin: int = 0
    end: int = 0
    parts: list[Part] = []

    def true_for(self) -> dict[str, int]:
        """By part: from which offset on events are news to it."""
        return {part.name: part.offset for part in self.parts}


class Replay(Protocol):
    """What is made of a journal."""

    def decision(self, offset: int, value: bytes) -> None:
        """Events that were decided together, as JSON."""


Made = TypeVar("Made", bound=Replay)


def replayed(snapshot_path: Path, folder: Path, make: Callable[[Snapshot], Made]) -> Made:
    """What ``make`` makes of the snapshot, with every decision behind it."""
    for _ in range(_MOST_LOOKS):
        found = _replayed(snapshot_path, folder, make)
        if found is not None:
            return found
    raise StorageFailed(f"the journal in {folder} changes faster than it can be read, or its snapshot is missing")


def _replayed(snapshot_path: Path, folder: Path, make: Callable[[Snapshot], Made]) -> Made | None:
    """``None`` if a newer snapshot has taken the place of events in between: look again."""
    payload = read_whole(snapshot_path)
    snapshot = Snapshot() if payload is None else msgspec.json.decode(payload, type=Snapshot)
    replay = make(snapshot)
    log = LogReader(folder)
    if log.start_offset > snapshot.begin:
        return None
    expected = snapshot.begin
    for run in read_runs(folder, snapshot.begin, log.end_offset):
        for message in decode_run(run)[0]:
            if message.offset != expected:
                raise StorageFailed(f"{folder} has lost events near offset {expected}; audit a copy that is whole")
            expected += 1
            replay.decision(message.offset, message.value)
    return replay
