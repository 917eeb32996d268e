"""Reading of a broker journal from its files: a snapshot and the decisions after it, as the broker does at startup.

The broker may be running: the result is what it has written so far.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from goqueue.model.errors import StorageFailed
from goqueue.storage.reader.reader import LogReader, read_runs
from goqueue.storage.reader.reader_files import read_whole
from goqueue.wire.decoding import decode_run

_MAX_ATTEMPTS = 10


class Part(msgspec.Struct, array_like=True):
    """A part of a snapshot: a piece of state as of an offset of the journal."""

    name: str
    offset: int
    state: msgspec.Raw


class Snapshot(msgspec.Struct, dict=True):
    """A snapshot. ``begin``: the offset where a replay starts; ``end``: where its last part was dumped."""

    begin: int = 0
    end: int = 0
    parts: list[Part] = []

    @cached_property
    def _part_offsets(self) -> dict[str, int]:
        return {part.name: part.offset for part in self.parts}

    def is_new(self, part: str, offset: int) -> bool:
        """Whether the event at ``offset`` must be applied to a part. One that the snapshot does not have was gone when
        it ended."""
        return offset >= self.end or offset >= self._part_offsets.get(part, self.end)


class Replay(Protocol):
    """Consumer of a journal's decisions."""

    def decision(self, offset: int, value: bytes) -> None:
        """Handle the events of one decision, as JSON."""


Made = TypeVar("Made", bound=Replay)


def replay_journal(snapshot_path: Path, folder: Path, make: Callable[[Snapshot], Made]) -> Made:
    """Build a replay from the snapshot with ``make``, and feed it every later decision."""
    for _ in range(_MAX_ATTEMPTS):
        found = _try_replay(snapshot_path, folder, make)
        if found is not None:
            return found
    raise StorageFailed(f"the journal in {folder} changes faster than it can be read, or its snapshot is missing")


def _try_replay(snapshot_path: Path, folder: Path, make: Callable[[Snapshot], Made]) -> Made | None:
    """``None`` if a newer snapshot has replaced events meanwhile, so the caller must retry."""
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
