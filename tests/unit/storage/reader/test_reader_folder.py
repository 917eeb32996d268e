"""A data folder as a whole: which topics it has, and whether it can be read at all."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from goqueue.model.errors import (
    CorruptData,
    DataFolderTooNew,
    InvalidRequest,
    PartitionNotFound,
    TopicNotFound,
)
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.data_folder import FORMAT_VERSION, DataFolder
from goqueue.storage.files.files import OsFiles
from goqueue.storage.reader import reader
from goqueue.storage.reader.reader import FolderReader


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = DataFolder(OsFiles(), tmp_path / "data")
    for name, topic_id, partitions in (("b", "2", 12), ("a", "1", 1), ("__metadata", "0", 1)):
        folder.create_partitions(folder.topic_folder(name, topic_id), partitions)
    folder.close()
    return folder.root


def test_topics_are_found_by_their_folders(root: Path) -> None:
    (root / "logs" / "stray").mkdir()
    found = FolderReader(root).topics()
    assert [(each.name, each.topic_id, each.partitions) for each in found] == [
        ("__metadata", "0", 1), ("a", "1", 1), ("b", "2", 12),
    ]  # fmt: skip
    assert FolderReader(root).topic("b") == found[2]


def test_a_topic_that_is_not_there_is_said_to_be_missing_and_which_are_there(root: Path) -> None:
    with pytest.raises(TopicNotFound, match=r"no topic 'c'; it has a, b$"):
        FolderReader(root).topic("c")
    with pytest.raises(TopicNotFound, match="no topic 'a~9'"):
        FolderReader(root).topic("a", "9")
    with pytest.raises(PartitionNotFound, match="partitions 0 to 11; there is no partition 12"):
        FolderReader(root).log(FolderReader(root).topic("b"), 12)


def test_of_two_folders_of_one_name_it_must_be_said_which(root: Path) -> None:
    (root / "logs" / "a~7" / "0").mkdir(parents=True)
    folder = FolderReader(root)
    with pytest.raises(InvalidRequest, match="'a~1' or 'a~7'"):
        folder.topic("a")
    assert folder.topic("a", "7").topic_id == folder.topic("a~7").topic_id == "7"
    assert folder.topic("a~1").folder == root / "logs" / "a~1"


def test_what_is_no_data_folder_is_refused(root: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"there is no folder .*nowhere"):
        FolderReader(root / "nowhere")
    with pytest.raises(InvalidRequest, match="no data folder: it has no file FORMAT"):
        FolderReader(root / "logs")
    write_atomically(OsFiles(), root / "FORMAT", str(FORMAT_VERSION + 1).encode())
    with pytest.raises(DataFolderTooNew, match=f"format {FORMAT_VERSION + 1}"):
        FolderReader(root)
    (root / "FORMAT").write_bytes(b"2")
    with pytest.raises(CorruptData):
        FolderReader(root)


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_folder_is_in_use_while_a_broker_has_it(root: Path, is_listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_listed:
        monkeypatch.setattr(reader, "_LOCKS", root / "nowhere")
    folder = FolderReader(root)
    assert not folder.is_in_use()
    held = DataFolder(OsFiles(), root)
    assert folder.is_in_use()
    held.close()
    assert not folder.is_in_use()
    (root / "LOCK").unlink()
    assert not folder.is_in_use()
    assert not (root / "LOCK").exists()


def test_looking_whether_a_folder_is_in_use_keeps_no_broker_from_starting(root: Path) -> None:
    fd = os.open(root / "LOCK", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    timer = threading.Timer(0.002, os.close, (fd,))
    timer.start()
    DataFolder(OsFiles(), root).close()
    timer.join()
