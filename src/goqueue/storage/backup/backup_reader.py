"""Reader of backups: checks everything against the manifest, and trusts nothing before.

A backup may come from an untrusted source. Names are checked before use, sizes before content is held in memory, and
only the few kinds of tar entries that backups contain are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from crc32c import crc32c

from goqueue.model.fields import shown
from goqueue.storage.backup.backup_format import (
    BLOCK,
    HEAD_NAME,
    LARGEST_FILE,
    LARGEST_HEAD,
    LARGEST_MANIFEST,
    LONGEST_NAME,
    MANIFEST_NAME,
    BadBackup,
    FileEntry,
    Head,
    Manifest,
    is_of_backup,
    read_head,
    unseal,
)
from goqueue.storage.log.index_file import POSITION

_PIECE_BYTES = 1 << 20
_CHECKSUM_AT = slice(148, 156)
_LARGEST_EXTENSION = 4 << 10
_MOST_PADDING = 1 << 20
"""Limit on zeros after the end: tar programs round up."""
_OF_INDEX = ".index"
_MANIFEST_BYTES_PER_FILE = 1_000
"""Upper bound of the size of a file and its partition in the manifest, however long their names are."""


class Source(Protocol):
    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""


class Sink(Protocol):
    """Destination of the content while it is read. None of it may be used before ``read_backup`` has returned."""

    def begin(self, head: Head) -> None: ...
    def begin_file(self, path: str, size: int) -> None: ...
    def write(self, data: bytes) -> None: ...
    def end_file(self) -> None: ...


class Nowhere:
    """A sink that discards a backup. ``expect`` is called with the total size of its files."""

    def __init__(self, expect: Callable[[int], None]) -> None:
        self._expect = expect

    def begin(self, head: Head) -> None:
        self._expect(head.size_bytes)

    def begin_file(self, path: str, size: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    def end_file(self) -> None:
        pass


class _Entry(NamedTuple):
    name: str
    size: int


def read_backup(source: Source, sink: Sink) -> Manifest:
    """Read a whole backup. Raises ``BadBackup`` if anything is missing, unexpected or damaged."""
    tar = _Tar(source)
    head = read_head(tar.small(HEAD_NAME, LARGEST_HEAD))
    sink.begin(head)
    found: list[FileEntry] = []
    names: set[str] = set()
    left = head.size_bytes
    while len(found) < head.files:
        entry = tar.next()
        if not is_of_backup(entry.name):
            raise BadBackup(f"it has a file {shown(entry.name)}, which no data folder has")
        if entry.name in names:
            raise BadBackup(f"it has {entry.name} twice")
        left -= entry.size
        if left < 0:
            raise BadBackup(f"its files have more than the {head.size_bytes} bytes that it tells of")
        names.add(entry.name)
        sink.begin_file(entry.name, entry.size)
        checksum = 0
        for data in tar.content(entry):
            checksum = crc32c(data, checksum)
            sink.write(data)
        sink.end_file()
        found.append(FileEntry(entry.name, entry.size, checksum))
    most = min(LARGEST_MANIFEST, LARGEST_HEAD + head.files * _MANIFEST_BYTES_PER_FILE)
    manifest = unseal(tar.small(MANIFEST_NAME, most))
    tar.end()
    _compare(head, found, manifest)
    return manifest


def _compare(head: Head, found: list[FileEntry], manifest: Manifest) -> None:
    if manifest.head != head:
        raise BadBackup(f"{HEAD_NAME} is not the one that {MANIFEST_NAME} tells of")
    if len(manifest.files) != len(found):
        raise BadBackup(f"it has {len(found)} files, and {MANIFEST_NAME} tells of {len(manifest.files)}")
    for each, told in zip(found, manifest.files, strict=True):
        if each.path != told.path:
            raise BadBackup(f"it has {each.path} where {MANIFEST_NAME} tells of {shown(told.path)}")
        if each.size != told.size:
            raise BadBackup(f"{each.path} has {each.size} bytes; it had {told.size} when the backup was made")
        if each.crc32c != told.crc32c:
            raise BadBackup(f"{each.path} is damaged: its content is not what it was when the backup was made")
    if sum(each.size for each in found) != head.size_bytes:
        raise BadBackup(f"its files have fewer than the {head.size_bytes} bytes that it tells of")
    in_indexes = sum(each.size for each in found if each.path.endswith(_OF_INDEX)) // POSITION.itemsize
    if sum(each.records for each in manifest.partitions) > in_indexes:
        raise BadBackup(f"{MANIFEST_NAME} tells of more records than its indexes have")


class _Tar:
    """Entries of a tar, in sequence; each must be read before the next."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._at = 0

    def small(self, name: str, most: int) -> bytes:
        """Content of the next entry, which must have this name."""
        entry = self.next()
        if entry.name != name:
            raise BadBackup(f"it has {shown(entry.name)} where {name} should be; it is not a backup of GoQueue")
        if entry.size > most:
            raise BadBackup(f"{name} has {entry.size} bytes; {most} are allowed")
        return b"".join(self.content(entry))

    def next(self) -> _Entry:
        """The next file. Other kinds of entries are refused."""
        header = self._exactly(BLOCK)
        if not any(header):
            raise BadBackup(f"it ends before {MANIFEST_NAME}; it is not whole")
        kind, entry = header[156:157], self._parsed(header)
        if kind == b"x":
            # A name that is too long for the header is in a separate entry before it.
            if entry.size > _LARGEST_EXTENSION:
                raise BadBackup(f"a name's extension has {entry.size} bytes; {_LARGEST_EXTENSION} are allowed")
            name = _long_name(b"".join(self.content(entry)))
            header = self._exactly(BLOCK)
            kind, entry = header[156:157], _Entry(name, self._parsed(header).size)
        if kind not in (b"0", b"\0"):
            raise BadBackup(f"{shown(entry.name)} is not a plain file")
        return entry

    def content(self, entry: _Entry) -> Iterator[bytes]:
        left = entry.size
        while left:
            data = self._source.read(min(left, _PIECE_BYTES))
            if not data:
                raise self._broken_off()
            left -= len(data)
            self._at += len(data)
            yield data
        if any(self._exactly(-entry.size % BLOCK)):
            raise BadBackup(f"something lies behind the end of {shown(entry.name)}, where only zeros should be")

    def end(self) -> None:
        if any(self._exactly(2 * BLOCK)):
            raise BadBackup(f"something follows {MANIFEST_NAME}, which should be the last")
        padding = 0
        while data := self._source.read(_PIECE_BYTES):
            padding += len(data)
            if any(data) or padding > _MOST_PADDING:
                raise BadBackup("something follows its end")

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = self._source.read(size - len(found))
            if not data:
                raise self._broken_off()
            found += data
        self._at += size
        return found

    def _broken_off(self) -> BadBackup:
        if not self._at:
            return BadBackup("it breaks off at its beginning; it is empty, or not whole")
        return BadBackup(f"it breaks off after {self._at} bytes; it is not whole")

    def _parsed(self, header: bytes) -> _Entry:
        checksum = sum(header) - sum(header[_CHECKSUM_AT]) + 8 * ord(" ")
        if _octal(header[_CHECKSUM_AT]) != checksum or header[257:262] != b"ustar":
            raise BadBackup(f"at byte {self._at - BLOCK} there is no tar header; it is damaged, or no tar at all")
        size = _octal(header[124:136])
        if not 0 <= size <= LARGEST_FILE:
            raise BadBackup("the size of a file cannot be understood")
        name, prefix = (bytes(part).split(b"\0", 1)[0] for part in (header[0:100], header[345:500]))
        return _Entry(_text(prefix + b"/" + name if prefix else name), size)


def _octal(field: bytes) -> int:
    digits = field.strip(b"\0 ")
    return int(digits, 8) if digits and all(digit in b"01234567" for digit in digits) else -1


def _text(name: bytes) -> str:
    return name.decode("ascii", "backslashreplace")


def _long_name(extension: bytes) -> str:
    """The path in records ``length key=value``; other keys are not expected."""
    length, _, record = extension.partition(b" ")
    key, _, value = record.partition(b"=")
    is_one = length.isdigit() and len(length) < 6 and int(length) == len(extension)
    if not is_one or key != b"path" or not value.endswith(b"\n") or len(value) > LONGEST_NAME:
        raise BadBackup("an entry has an extension that backups do not have")
    return _text(value[:-1])
