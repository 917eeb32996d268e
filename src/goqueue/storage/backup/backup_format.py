"""Format of backups: a tar of a data folder's files, preceded by a head and followed by a manifest.

::

    backup.json       the head: broker, time, amount of data that follows
    FORMAT            the files of the data folder, under their relative paths
    checkpoint
    snapshots/…
    logs/…
    manifest.json     every file with its size and checksum, with a checksum of the manifest itself

The manifest comes last, so an incomplete backup has none. Any tar program can read a backup.
"""

from __future__ import annotations

import re

import msgspec
from crc32c import crc32c

from goqueue.model.errors import CorruptData

BACKUP_FORMAT = 1
HEAD_NAME = "backup.json"
MANIFEST_NAME = "manifest.json"
MOST_FILES = 5_000_000
LARGEST_FILE = (1 << 33) - 1
"""Largest size in a tar header without extensions; segments are smaller."""
LARGEST_HEAD = 64 << 10
LARGEST_MANIFEST = 1 << 30
LONGEST_NAME = 400
BLOCK = 512

_OF_SEGMENT = r"[0-9]{20}\.(?:log|index|timeindex|lanes)"
_FILE_NAME = re.compile(
    r"FORMAT|checkpoint"
    r"|snapshots/__[a-z]{1,32}(?:-[0-9]{1,4})?"
    r"|logs/(?:__[a-z]{1,32}|[A-Za-z0-9._-]{1,200}~[0-9a-f]{32})/[0-9]{1,7}"
    rf"/(?:delays|producers|damage|{_OF_SEGMENT}(?:\.compacted)?|[0-9]{{20}}\.(?:swap|cut))",
    re.ASCII,
)
_LOG_NAME = re.compile(rf"logs/([^/]+)/([0-9]+)/({_OF_SEGMENT})")


class BadBackup(CorruptData):
    """The data is not a backup, or is incomplete or damaged."""

    remedy = "Use another backup. Nothing was restored from this one."


class Head(msgspec.Struct, frozen=True):
    """First entry of a backup. ``files`` and ``size_bytes`` count what follows, without the manifest."""

    format: int
    instant: str
    node_id: str
    goqueue_version: str
    data_format: int
    files: int
    size_bytes: int


class FileEntry(msgspec.Struct, frozen=True):
    path: str
    size: int
    crc32c: int


class PartitionEntry(msgspec.Struct, frozen=True):
    """``records``: number of records in the partition's files, including those invisible to readers."""

    topic: str
    partition: int
    records: int
    end_offset: int


class Manifest(msgspec.Struct, frozen=True):
    head: Head
    partitions: list[PartitionEntry]
    files: list[FileEntry]


class _Sealed(msgspec.Struct):
    crc32c: int
    manifest: msgspec.Raw


def seal(manifest: Manifest) -> bytes:
    """Content of the manifest's file."""
    content = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(crc32c(content), msgspec.Raw(content)))


def unseal(content: bytes) -> Manifest:
    try:
        sealed = msgspec.json.decode(content, type=_Sealed)
        if crc32c(bytes(sealed.manifest)) != sealed.crc32c:
            raise BadBackup(f"{MANIFEST_NAME} is damaged: its checksum does not match its content")
        return msgspec.json.decode(sealed.manifest, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadBackup(f"{MANIFEST_NAME} cannot be understood: {error}") from None


def read_head(content: bytes) -> Head:
    try:
        head = msgspec.json.decode(content, type=Head)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadBackup(f"{HEAD_NAME} cannot be understood: {error}") from None
    if head.format > BACKUP_FORMAT:
        raise BadBackup(f"the backup has format {head.format}; this version of GoQueue knows up to {BACKUP_FORMAT}")
    if not 0 < head.files <= MOST_FILES or head.size_bytes < 0:
        raise BadBackup(f"{HEAD_NAME} tells of {head.files} files with {head.size_bytes} bytes, which cannot be")
    return head


def is_of_backup(path: str) -> bool:
    """Whether backups contain this file of a data folder. No accepted name leads out of the folder."""
    return _FILE_NAME.fullmatch(path) is not None


def log_of(path: str) -> tuple[str, int, str] | None:
    """Topic, partition and name of a segment's file; ``None`` for other paths."""
    match = _LOG_NAME.fullmatch(path)
    return None if match is None else (match[1].rpartition("~")[0] or match[1], int(match[2]), match[3])
