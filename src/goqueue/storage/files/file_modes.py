"""Restricts the permissions of a data folder that an earlier version, or the operator, made accessible to others."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from goqueue.storage.files.safe_paths import Descriptor

_OTHERS = 0o077
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OF_THE_SYSTEM = {"lost+found"}


def close_to_others(root: Path, is_ours: Callable[[str], bool]) -> int | None:
    """Implements ``Files.close_to_others``. A folder that holds other files as well, such as /tmp, is left as it is."""
    opened = Descriptor(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    about = os.fstat(opened.fd)
    if not about.st_mode & _OTHERS:
        return None
    owners = {about.st_uid, os.geteuid()}
    there = set(os.listdir(opened.fd)) - _OF_THE_SYSTEM  # noqa: PTH208
    ours = sorted(filter(is_ours, there))
    left = sum(_close(name, opened.fd, owners) for name in ours)
    if len(ours) == len(there) and not about.st_mode & stat.S_ISVTX:
        # The root comes last: a start that is killed before begins anew.
        _change(opened.fd, about.st_mode)
    return left + bool(os.fstat(opened.fd).st_mode & _OTHERS)


def _close(name: str, parent: int, owners: set[int]) -> int:
    """Number of entries left open to others: owned by another user, or on a file system without modes."""
    about = os.stat(name, dir_fd=parent, follow_symlinks=False)
    is_folder = stat.S_ISDIR(about.st_mode)
    if not is_folder and not stat.S_ISREG(about.st_mode):
        return 0
    try:
        opened = Descriptor(os.open(name, _FOLDER if is_folder else _FILE, dir_fd=parent))
    except OSError:
        return 1
    inside = os.listdir(opened.fd) if is_folder else []  # noqa: PTH208
    left = sum(_close(each, opened.fd, owners) for each in inside)
    if about.st_mode & _OTHERS and about.st_uid in owners:
        _change(opened.fd, about.st_mode)
    return left + bool(os.fstat(opened.fd).st_mode & _OTHERS)


def _change(fd: int, mode: int) -> None:
    # The result is checked afterwards.
    with suppress(OSError):
        os.fchmod(fd, stat.S_IMODE(mode) & ~_OTHERS)
