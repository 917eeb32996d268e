"""Translation of disk errors into errors for callers, and for an operator whose data folder cannot be used."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from goqueue.model.errors import DiskFull, GoQueueError, InvalidConfiguration, Overloaded, StorageFailed

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


class UnusableFolder(InvalidConfiguration):
    """The data folder cannot be created, opened or written. The message gives the cause and the remedy."""

    remedy = ""


def unusable(root: Path, error: OSError) -> UnusableFolder:
    place = Path(os.fsdecode(error.filename)) if error.filename else root
    return UnusableFolder(f"storage.path: {root} cannot be used: {_why(place, error)}")


def _why(place: Path, error: OSError) -> str:
    match error.errno:
        case errno.EEXIST | errno.ENOTDIR:
            file = next((each for each in (place, *place.parents) if each.is_file()), place)
            return f"{file} is a file; give a folder (--data, storage.path)"
        case errno.EACCES | errno.EPERM:
            return (
                f"this user (id {os.geteuid()}) has no permission for {place}; give it the folder (chown -R), or run "
                "as the folder's owner"
            )
        case errno.EROFS:
            return f"{place} is on a file system that is read-only; give a folder that can be written"
        case errno.ENOSPC | errno.EDQUOT:
            return f"the disk of {place} is full; make room on it, then start again"
        case _:
            return f"{place}: {error.strerror or error}"
