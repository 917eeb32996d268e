"""Replacing several segments by one, so that a crash leaves the old ones or the new one.

A manifest (``{base}.swap``) is written when the new files are on the disk. From then on the swap is decided: whoever
finds the manifest finishes it, and doing so twice does no harm.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from goqueue.model.errors import CorruptData
from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import read_checked, write_atomically
from goqueue.storage.files.files import Files
from goqueue.storage.log.open_files import SUFFIXES

log = get_logger(__name__)

COMPACTED = ".compacted"
MANIFEST = ".swap"


class Swap(msgspec.Struct, frozen=True):
    """Segments ``bases`` become one, at the first of them, or nothing if ``empty``."""

    bases: list[int]
    empty: bool

    def manifest(self, folder: Path) -> Path:
        return folder / f"{self.bases[0]:020d}{MANIFEST}"


def decide_swap(files: Files, folder: Path, swap: Swap) -> None:
    write_atomically(files, swap.manifest(folder), msgspec.json.encode(swap))


def carry_out(files: Files, folder: Path, swap: Swap) -> None:
    """Rename and remove; durable only after ``conclude``. Needs the new files' names to be on the disk by now."""
    for suffix in SUFFIXES:
        target = folder / f"{swap.bases[0]:020d}{suffix}"
        made = target.with_name(target.name + COMPACTED)
        if swap.empty:
            files.remove(target)
            files.remove(made)
        elif files.exists(made):
            files.rename(made, target)
        for base in swap.bases[1:]:
            files.remove(folder / f"{base:020d}{suffix}")


def conclude(files: Files, folder: Path, swap: Swap) -> None:
    files.sync_dir(folder)
    files.remove(swap.manifest(folder))
    # A manifest that came back after a crash would be obeyed again, with the half-made files of the next compaction.
    files.sync_dir(folder)


def revoke_swaps(files: Files, folder: Path) -> None:
    """Take back what was decided and not carried out, because the compaction was dropped; remove what it had made."""
    names = files.list_dir(folder)
    for name in names:
        if name.endswith(MANIFEST):
            # If it was carried out and only not concluded, its renames must not be lost with the manifest.
            files.sync_dir(folder)
            files.remove(folder / name)
            files.sync_dir(folder)
    for name in names:
        if name.endswith(COMPACTED):
            files.remove(folder / name)


def finish_swaps(files: Files, folder: Path, names: list[str]) -> None:
    """Finish what a crash interrupted. ``names`` are those in the folder, durably."""
    for path in [folder / name for name in names if name.endswith(MANIFEST)]:
        try:
            payload = read_checked(files, path)
        except CorruptData as error:
            log.error("swap manifest is damaged and ignored; old segments stay", error=str(error))
            files.remove(path)
            continue
        if payload is not None:
            swap = msgspec.json.decode(payload, type=Swap)
            log.info("finishing a compaction that was interrupted", folder=str(folder), segments=swap.bases)
            carry_out(files, folder, swap)
            conclude(files, folder, swap)
