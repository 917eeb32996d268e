"""Checkpoint files of the state derived from a partition's log: a start loads one and reads only the log behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from goqueue.model.errors import CorruptData, GoQueueError, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import read_checked, write_atomically
from goqueue.storage.files.files import Files
from goqueue.storage.log.durability import Durability
from goqueue.storage.log.log import Log

log = get_logger(__name__)

SAVE_BEHIND = 200_000
"""How many messages may follow in the log before the file is written again."""
State = TypeVar("State")
Loaded = tuple[int, State]


class Derived(Protocol):
    """State derived from a log, with a file."""

    log: Log
    changes: int

    @property
    def path(self) -> Path: ...

    def saved(self, as_of: int, changes: int) -> None: ...


async def save(durability: Durability, derived: Derived, dump: Callable[[], tuple[int, bytes]]) -> bool:
    """Write the file; return whether that succeeded. If not, the next start reads more of the log."""
    if derived.log.failure is not None:
        return False
    try:
        changes = derived.changes
        as_of, payload = dump()
        # The file must never be ahead of what a crash leaves of the log.
        try:
            await durability.reached(derived.log, as_of)
        except StorageFailed:
            # The log has reported why.
            return False
        if durability.end(derived.log) < as_of or derived.log.failure is not None:
            return False
        await asyncio.to_thread(write_atomically, derived.log.open_files.disk, derived.path, payload)
    except (OSError, GoQueueError) as error:
        log.error("what follows from a log cannot be written", path=str(derived.path), error=str(error))
        return False
    derived.saved(as_of, changes)
    return True


def load(files: Files, derived: Derived, what: str, decode: Callable[[bytes], Loaded[State]]) -> Loaded[State] | None:
    """Read the file: the offset up to which it covers the log, and the state. ``None`` if there is no valid file; an
    invalid one is removed, and the log is read in its place.

    ``decode`` raises ``CorruptData``, ``ValueError`` or an error of msgspec for invalid content. ``what`` is the
    file's name in the log line.
    """
    path = derived.path
    try:
        payload = read_checked(files, path)
        if payload is None:
            return None
        loaded = decode(payload)
        as_of = loaded[0]
        if as_of <= derived.log.end_offset:
            return loaded
        reason = f"it tells of offset {as_of}, and the log ends at {derived.log.end_offset}"
    except (CorruptData, ValueError, msgspec.MsgspecError) as error:
        reason = str(error)
    log.warning(f"the file of {what} is of no use; reading the log", path=str(path), reason=reason)
    files.remove(path)
    # Else it may be back after a crash, when the log is long enough for it to be believed.
    files.sync_dir(path.parent)
    return None
