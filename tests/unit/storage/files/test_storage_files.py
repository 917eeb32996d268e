"""The real disk: what is asked of the system when something is to be durable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from doubles.synced import note_syncs

import goqueue.storage.files.files
from goqueue.storage.files.files import OsFiles


def test_a_file_its_folder_and_a_file_system_are_brought_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFiles()
    noted = note_syncs(monkeypatch, lambda path: path)
    file = files.open(tmp_path / "a", create=True)
    file.sync()
    files.sync_dir(tmp_path)
    files.sync_filesystem(tmp_path)
    assert noted == [tmp_path / "a", tmp_path, tmp_path / "**"]


def test_where_there_is_no_syncfs_every_file_and_folder_is_brought_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFiles()
    (tmp_path / "in").mkdir()
    for path in (tmp_path / "a", tmp_path / "in" / "b"):
        path.touch()
    noted = note_syncs(monkeypatch, lambda path: path)
    monkeypatch.setattr(goqueue.storage.files.files, "_syncfs", None)
    files.sync_filesystem(tmp_path)
    assert sorted(noted) == [tmp_path, tmp_path / "a", tmp_path / "in", tmp_path / "in" / "b"]


def test_the_system_is_asked_by_the_calls_that_it_has() -> None:
    assert goqueue.storage.files.files._sync_content in {os.fsync, getattr(os, "fdatasync", None)}
    assert goqueue.storage.files.files._load_syncfs() is not None, "Linux 5.8 and newer report errors of syncfs"
