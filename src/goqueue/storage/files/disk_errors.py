"""Translation of disk errors into errors for callers."""

from __future__ import annotations

import errno

from goqueue.model.errors import DiskFull, GoQueueError, Overloaded, StorageFailed

FULL = {errno.ENOSPC, errno.EDQUOT}
_SHORT_OF = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def told(error: OSError, doing: str) -> GoQueueError:
    """The error for callers. ``doing`` names the operation that failed, as in 'writing'."""
    reason = error.strerror or str(error)
    if error.errno in FULL:
        return DiskFull(f"the disk is full: {reason}", retry_after_s=1)
    if error.errno in _SHORT_OF:
        return Overloaded(f"the system is short of files or memory: {reason}", retry_after_s=1)
    return StorageFailed(f"{doing} failed: {reason}")


def is_of_the_disk(error: Exception) -> bool:
    """Whether an unexpected error came from a file; broken connections raise ``OSError`` as well."""
    return (
        isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError | TimeoutError)
    )
