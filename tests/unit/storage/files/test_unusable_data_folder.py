"""Why a data folder cannot be used, and what to do about it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from goqueue.storage.files.data_folder import DataFolder
from goqueue.storage.files.disk_errors import unusable
from goqueue.storage.files.files import OsFiles


@pytest.mark.parametrize("below", ["", "data/of/it"])
def test_a_file_that_stands_for_a_folder_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(OSError, match=r"File exists|Not a directory") as raised:
        DataFolder(OsFiles(), file / below)
    error = unusable(file / below, raised.value)
    assert f"{file} is a file; give a folder (--data, storage.path)" in str(error)
    assert error.remedy == ""


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
@pytest.mark.parametrize("below", ["", "data/of/it"])
def test_a_folder_in_a_place_that_takes_none_is_refused_once(below: str) -> None:
    root = Path("/proc/goqueue") / below
    with pytest.raises(FileNotFoundError) as raised:
        DataFolder(OsFiles(), root)
    assert str(unusable(root, raised.value)).endswith("/proc/goqueue: No such file or directory")


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EACCES, f"this user (id {os.geteuid()}) has no permission for /w/logs"),
        (errno.EROFS, "/w/logs is on a file system that is read-only"),
        (errno.ENOSPC, "the disk of /w/logs is full"),
        (errno.EIO, "/w/logs: Input/output error"),
    ],
)
def test_each_cause_has_words_of_its_own(number: int, told: str) -> None:
    assert told in str(unusable(Path("/w"), OSError(number, os.strerror(number), "/w/logs")))
