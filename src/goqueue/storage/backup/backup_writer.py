"""Writer of backups, in chunks, from files that do not change below their recorded sizes."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from crc32c import crc32c

from goqueue.model.errors import StorageFailed
from goqueue.storage.backup.backup_format import (
    BLOCK,
    HEAD_NAME,
    MANIFEST_NAME,
    FileEntry,
    Head,
    Manifest,
    PartitionEntry,
    log_of,
    seal,
)
from goqueue.storage.files.files import Files
from goqueue.storage.log.index_file import POSITION, entries_of_size

_PIECE_BYTES = 1 << 20
_END = bytes(2 * BLOCK)
_MODE = 0o644


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a backup: ``size`` bytes in the file at ``place``, or given as ``content``."""

    path: str
    size: int
    place: Path | None = None
    content: bytes = b""


@dataclass(slots=True)
class _Partition:
    records: int = 0
    last_base: int = -1
    end_offset: int = 0


@dataclass(slots=True)
class _RecordCounts:
    """Record counts of partitions, taken from the index files that were written."""

    partitions: dict[tuple[str, int], _Partition] = field(default_factory=dict)

    def note(self, files: Files, source: SourceFile) -> None:
        named = log_of(source.path)
        if named is None:
            return
        partition = self.partitions.setdefault(named[:2], _Partition())
        base, _, kind = named[2].partition(".")
        if kind == "log" and int(base) > partition.last_base:
            partition.last_base = partition.end_offset = int(base)
        if kind == "index" and source.place is not None:
            count = entries_of_size(files.open(source.place), POSITION.itemsize, source.size)
            partition.records += count
            if int(base) >= partition.last_base:
                partition.last_base, partition.end_offset = int(base), int(base) + count

    def entries(self) -> list[PartitionEntry]:
        return [
            PartitionEntry(topic, number, each.records, each.end_offset)
            for (topic, number), each in sorted(self.partitions.items())
        ]


def archive(
    files: Files, head: Head, sources: Sequence[SourceFile], instant_s: int, *, are_links: bool = False
) -> Iterator[bytes]:
    """The bytes of a backup, in chunks of about a megabyte. May be consumed in threads, one chunk at a time.

    With ``are_links``, each file is removed after it was read, so that content deleted elsewhere takes no more space.
    """
    pending = bytearray(_entry(HEAD_NAME, msgspec.json.encode(head), instant_s))
    written: list[FileEntry] = []
    counted = _RecordCounts()
    for source in sources:
        pending += _header(source.path, source.size, instant_s)
        counted.note(files, source)
        checksum = 0
        for data in _content(files, source):
            checksum = crc32c(data, checksum)
            pending += data
            if len(pending) >= _PIECE_BYTES:
                yield bytes(pending)
                pending.clear()
        pending += bytes(-source.size % BLOCK)
        written.append(FileEntry(source.path, source.size, checksum))
        if are_links and source.place is not None:
            files.remove(source.place)
    pending += _entry(MANIFEST_NAME, seal(Manifest(head, counted.entries(), written)), instant_s)
    pending += _END
    for at in range(0, len(pending), _PIECE_BYTES):
        yield bytes(pending[at : at + _PIECE_BYTES])


def _content(files: Files, source: SourceFile) -> Iterator[bytes]:
    if source.place is None:
        yield source.content
        return
    if not source.size:
        return
    file = files.open(source.place)
    for position in range(0, source.size, _PIECE_BYTES):
        wanted = min(_PIECE_BYTES, source.size - position)
        data = file.read(position, wanted)
        if len(data) < wanted:
            raise StorageFailed(
                f"{source.path} has become shorter while it was read: it was found damaged and repaired, or cut back; "
                "begin anew"
            )
        yield data


def _entry(name: str, content: bytes, instant_s: int) -> bytes:
    return _header(name, len(content), instant_s) + content + bytes(-len(content) % BLOCK)


def _header(name: str, size: int, instant_s: int) -> bytes:
    about = tarfile.TarInfo(name)
    about.size, about.mtime, about.mode = size, instant_s, _MODE
    return about.tobuf(tarfile.PAX_FORMAT)
