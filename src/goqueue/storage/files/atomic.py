"""Small files that are replaced whole: after a crash there is the old one or the new one, never a mixture. And folders
that are there to stay.

Layout: magic (4), CRC32C of the payload (4), its length (8), payload.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from crc32c import crc32c

from goqueue.model.errors import CorruptData
from goqueue.storage.files.files import Files

_HEAD = Struct(">4sIQ")
_MAGIC = b"GQF1"
TEMPORARY = ".tmp"


def write_atomically(files: Files, path: Path, payload: bytes) -> None:
    """Replace ``path``; when this returns, the new content is on the disk under its name."""
    fresh = path.with_name(path.name + TEMPORARY)
    file = files.open(fresh, create=True)
    file.truncate(0)
    file.write(0, packed(payload))
    file.sync()
    files.rename(fresh, path)
    files.sync_dir(path.parent)


def packed(payload: bytes) -> bytes:
    """The content of such a file."""
    return _HEAD.pack(_MAGIC, crc32c(payload), len(payload)) + payload


def make_folder(files: Files, path: Path) -> None:
    """Make a folder and those above it; when this returns, the names of all that were missing are on the disk."""
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        files.make_dirs(each)
        files.sync_dir(each.parent)


def read_checked(files: Files, path: Path) -> bytes | None:
    """The payload, or ``None`` if there is no such file; a damaged one raises ``CorruptData``."""
    if not files.exists(path):
        return None
    file = files.open(path)
    data = file.read(0, file.size())
    if len(data) >= _HEAD.size:
        magic, checksum, length = _HEAD.unpack_from(data)
        payload = data[_HEAD.size :]
        if magic == _MAGIC and length == len(payload) and checksum == crc32c(payload):
            return payload
    raise CorruptData(f"{path} is damaged: its checksum does not match its content")
