"""Journals that only earlier versions had: what is left of them once their state is where it belongs now.

A conversion counts once the folder of the earlier journal has another name; until then the next start does all of it
again. What is left after that is removed, maybe by a later start.
"""

from __future__ import annotations

from typing import Any

from goqueue.broker.runtime.journal_kinds import JournalKind
from goqueue.broker.runtime.journals import Journals
from goqueue.model.errors import CorruptData
from goqueue.storage.files.data_folder import DataFolder


def must_be_converted(folder: DataFolder, journals: Journals, kind: JournalKind[Any]) -> bool:
    earlier = folder.logs / kind.name
    if folder.files.exists(earlier):
        return True
    if journals.has_points(kind) and not is_converted(folder, kind):
        raise CorruptData(
            f"{earlier} is missing, and recovery points tell of it; restore the data folder from a backup"
        )
    return False


def is_converted(folder: DataFolder, kind: JournalKind[Any]) -> bool:
    """Whether a conversion counts, and something is left to remove."""
    return folder.files.exists(folder.logs / kind.converted_name)


def note_converted(folder: DataFolder, kind: JournalKind[Any]) -> None:
    """From here on the conversion counts. All of it must be durable."""
    folder.files.rename(folder.logs / kind.name, folder.logs / kind.converted_name)
    folder.files.sync_dir(folder.logs)


def remove_converted(folder: DataFolder, journals: Journals, kind: JournalKind[Any]) -> None:
    journals.forget_points(kind)
    for shard in kind.numbers:
        path = folder.snapshots / kind.snapshot_name(shard)
        if folder.files.exists(path):
            folder.files.remove(path)
    folder.files.sync_dir(folder.snapshots)
    folder.files.remove_tree(folder.logs / kind.converted_name)
