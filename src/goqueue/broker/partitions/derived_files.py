"""Files that tell what follows from a partition's log, so that a start need not read all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from goqueue.model.errors import GoQueueError
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.files import Files
from goqueue.storage.log.commit import CommitScheduler
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


async def save(files: Files, commits: CommitScheduler, derived: Derived, dump: Callable[[], tuple[int, bytes]]) -> bool:
    """Write the file; return whether it is there. Without it the next start reads more of the log."""
    if derived.log.failure is not None:
        return False
    try:
        changes = derived.changes
        as_of, payload = dump()
        # The file must never know more than the log.
        await commits.sync([derived.log])
        if derived.log.durable_offset < as_of or derived.log.failure is not None:
            return False
        await asyncio.to_thread(write_atomically, files, derived.path, payload)
    except (OSError, GoQueueError) as error:
        log.error("what follows from a log cannot be written", path=str(derived.path), error=str(error))
        return False
    derived.saved(as_of, changes)
    return True
