"""Small files that are replaced atomically: after a crash, either the old or the new content is there, never a mixture.
Also durable creation of folders.

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
    """Replace ``path``; on return, the new content is durable under its name."""
    fresh = path.with_name(path.name + TEMPORARY)
    file = files.open(fresh, create=True)
    file.truncate(0)
    file.write(0, packed(payload))
    file.sync()
    files.rename(fresh, path)
    files.sync_dir(path.parent)


def packed(payload: bytes) -> bytes:
    """Content of such a file."""
    return _HEAD.pack(_MAGIC, crc32c(payload), len(payload)) + payload


def make_folder(files: Files, path: Path) -> None:
    """Create a folder with its missing parents; on return, their names are durable."""
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        files.make_dirs(each)
        files.sync_dir(each.parent)


def read_checked(files: Files, path: Path) -> bytes | None:
    """The payload, or ``None`` if the file does not exist; raises ``CorruptData`` if it is damaged."""
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
