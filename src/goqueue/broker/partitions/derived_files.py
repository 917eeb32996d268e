"""Files that save a start from reading all of a partition's log again: what follows from it up to some offset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.log.durability import Durability
from goqueue.storage.log.log import Log

log = get_logger(__name__)

SAVE_BEHIND = 200_000
"""So many messages may lie behind a file before it is written anew."""


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
