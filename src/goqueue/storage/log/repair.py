"""Bytes that are no frames are never thrown away: they go to a file beside the segment, for a person to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from goqueue.model.logging import get_logger
from goqueue.storage.files.atomic import TEMPORARY
from goqueue.storage.files.files import File, Files
from goqueue.storage.log.scan import Damage, FrameScanner, Scan

log = get_logger(__name__)

_CHUNK = 4 << 20


def make_whole(files: Files, log_path: Path, found: Scan, base: int, below: int) -> Scan:
    """Set the damage that a scan found aside; return what the segment holds then, which is valid from end to end."""
    while found.damage or found.end != files.size(log_path):
        set_damage_aside(files, log_path, found)
        found = FrameScanner(files.open(log_path), dense=False, below=below).scan(0, base)
    return found


def set_damage_aside(files: Files, log_path: Path, found: Scan) -> None:
    """Replace a segment by its valid frames alone, keeping the damaged ranges in side files. Safe at any crash."""
    source = files.open(log_path)
    size = source.size()
    ranges = list(found.damage)
    if found.end < size:
        ranges.append(Damage(found.end, size))
    for damage in ranges:
        kept_in = _save_range(files, source, log_path, damage)
        log.error("bytes that are no whole message were taken out of a segment", **_shown(log_path, damage, kept_in))
    fresh_path = log_path.with_name(log_path.name + TEMPORARY)
    fresh = files.open(fresh_path, create=True)
    fresh.truncate(0)
    start = written = 0
    for damage in [*ranges, Damage(size, size)]:
        written += copy_range(source, start, damage.start, fresh, written)
        start = damage.end
    fresh.sync()
    # If the rename is lost in a crash, the damage is found and set aside once more.
    files.rename(fresh_path, log_path)


def cut_tail(files: Files, log_path: Path, end: int) -> None:
    """Remove what follows the last whole frame, keeping it in a side file.

    This is a write that a kill or a power loss has torn, so it is no error: it was never acknowledged.
    """
    source = files.open(log_path)
    size = source.size()
    if size > end:
        tail = Damage(end, size)
        kept_in = _save_range(files, source, log_path, tail)
        source.truncate(end)
        log.info("an unfinished write was cut off the end of a segment", **_shown(log_path, tail, kept_in))


def _shown(log_path: Path, damage: Damage, kept_in: str) -> dict[str, Any]:
    size = damage.end - damage.start
    return {"segment": str(log_path), "first_byte": damage.start, "bytes": size, "kept_in": kept_in}


def _save_range(files: Files, source: File, log_path: Path, damage: Damage) -> str:
    """Copy bytes to a side file and return its name."""
    aside_path = log_path.with_suffix(f".damaged-{damage.start}-{damage.end}")
    number = 1
    while files.exists(aside_path) and not _is_copy(files.open(aside_path), source, damage):
        # The same bytes of the file were damaged before; what was kept then stays.
        number += 1
        aside_path = log_path.with_suffix(f".damaged-{damage.start}-{damage.end}-{number}")
    aside = files.open(aside_path, create=True)
    copy_range(source, damage.start, damage.end, aside, 0)
    aside.sync()
    files.sync_dir(log_path.parent)
    return aside_path.name


def _is_copy(aside: File, source: File, damage: Damage) -> bool:
    size = damage.end - damage.start
    if aside.size() != size:
        return False
    pieces = ((at, min(_CHUNK, size - at)) for at in range(0, size, _CHUNK))
    return all(aside.read(at, length) == source.read(damage.start + at, length) for at, length in pieces)


def copy_range(source: File, start: int, end: int, target: File, at: int) -> int:
    """Copy bytes ``start`` to ``end``; return how many."""
    for position in range(start, end, _CHUNK):
        target.write(at + position - start, source.read(position, min(_CHUNK, end - position)))
    return end - start
