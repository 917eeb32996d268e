"""Files that save a start from reading all of a partition's log again: what follows from it up to some offset."""

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
"""So many messages may lie behind a file before it is written anew."""
Told = TypeVar("Told")


class Derived(Protocol):
    """What follows from a log."""

    log: Log
    changes: int

    @property
    def path(self) -> Path: ...

    def saved(self, as_of: int, changes: int) -> None: ...


async def save(durability: Durability, derived: Derived, dump: Callable[[], tuple[int, bytes]]) -> bool:
    """Write the file; return whether it is there. Without it the next start reads more of the log."""
    if derived.log.failure is not None:
        return False
    try:
        changes = derived.changes
        as_of, payload = dump()
        # The file must never know more than the log.
        try:
            await durability.reached(derived.log, as_of)
        except StorageFailed:
            # The log has said why.
            return False
        if durability.end(derived.log) < as_of or derived.log.failure is not None:
            return False
        await asyncio.to_thread(write_atomically, derived.log.open_files.disk, derived.path, payload)
    except (OSError, GoQueueError) as error:
        log.error("what follows from a log cannot be written", path=str(derived.path), error=str(error))
        return False
    derived.saved(as_of, changes)
    return True


def load(files: Files, derived: Derived, what: str, decode: Callable[[bytes], tuple[int, Told]]) -> Told | None:
    """What the file tells, if there is one that can be believed; one that cannot is removed.

    ``decode`` also returns the offset up to which the file tells everything, and raises ``CorruptData``, ``ValueError``
    or an error of msgspec if there is nonsense in it. ``what`` names the file in the log line.
    """
    path = derived.path
    try:
        payload = read_checked(files, path)
        if payload is None:
            return None
        as_of, told = decode(payload)
        if as_of <= derived.log.end_offset:
            return told
        reason = f"it tells of offset {as_of}, and the log ends at {derived.log.end_offset}"
    except (CorruptData, ValueError, msgspec.MsgspecError) as error:
        reason = str(error)
    log.warning(f"the file of {what} is of no use; reading the log", path=str(path), reason=reason)
    files.remove(path)
    # Else it may be back after a crash, when the log is long enough for it to be believed.
    files.sync_dir(path.parent)
    return None
