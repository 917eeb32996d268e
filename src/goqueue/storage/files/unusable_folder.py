"""Error messages for a data folder that cannot be used."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from goqueue.model.errors import InvalidConfiguration


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
