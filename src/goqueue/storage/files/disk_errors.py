"""What an error of the disk is to callers."""

from __future__ import annotations

import errno

from goqueue.model.errors import DiskFull, GoQueueError, Overloaded, StorageFailed

FULL = {errno.ENOSPC, errno.EDQUOT}
_SHORT_OF = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def told(error: OSError, doing: str) -> GoQueueError:
    """``doing``: what the broker could not do, as in 'writing'."""
    reason = error.strerror or str(error)
    if error.errno in FULL:
        return DiskFull(f"the disk is full: {reason}", retry_after_s=1)
    if error.errno in _SHORT_OF:
        return Overloaded(f"the system is short of files or memory: {reason}", retry_after_s=1)
    return StorageFailed(f"{doing} failed: {reason}")


def is_of_the_disk(error: Exception) -> bool:
    """Whether an error that nobody expected came from a file; a connection that breaks is an ``OSError`` as well."""
    return (
        isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError | TimeoutError)
    )
