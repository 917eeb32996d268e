"""A backup's file: what was written is read, and whatever else one makes of it is refused."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from goqueue.storage.backup.backup_format import BadBackup, Head, Manifest, is_of_backup, seal, unseal
from goqueue.storage.backup.backup_reader import read_backup
from goqueue.storage.backup.backup_writer import SourceFile, archive
from goqueue.storage.files.files import OsFiles

TOPIC = "logs/" + "o" * 200 + "~" + "0123456789abcdef" * 2
CONTENT = {
    "FORMAT": b"2",
    "snapshots/__groups-3": b"{}" * 700,
    f"{TOPIC}/0/00000000000000000000.log": Random(1).randbytes(1_200_000),
    f"{TOPIC}/0/00000000000000000000.index": bytes(4 * 70),
    f"{TOPIC}/1/00000000000000000000.log": b"",
}


class Kept:
    """Takes everything in."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._path = ""

    def begin(self, head: Head) -> None:
        self.head = head

    def begin_file(self, path: str, size: int) -> None:
        self._path = path
        self.files[path] = b""

    def write(self, data: bytes) -> None:
        self.files[self._path] += data

    def end_file(self) -> None:
        pass


def head_of(content: dict[str, bytes]) -> Head:
    return Head(1, "2026-01-31T12:00:00Z", "node", "1.0", 2, len(content), sum(map(len, content.values())))


@pytest.fixture
def backup(tmp_path: Path) -> bytes:
    sources = []
    for number, (path, content) in enumerate(CONTENT.items()):
        place = tmp_path / str(number)
        # More is appended while the backup is read; it has what was there.
        place.write_bytes(content + b"later")
        sources.append(SourceFile(path, len(content), place))
    pieces = list(archive(OsFiles(), head_of(CONTENT), sources, 1_769_860_800))
    assert max(map(len, pieces)) <= 3 << 20
    return b"".join(pieces)


def read(data: bytes) -> tuple[Manifest, Kept]:
    kept = Kept()
    return read_backup(io.BytesIO(data), kept), kept


def test_what_was_written_is_read(backup: bytes) -> None:
    manifest, kept = read(backup)
    assert kept.files == CONTENT
    assert manifest.head == kept.head == head_of(CONTENT)
    assert [(each.topic[:3], each.partition, each.records, each.end_offset) for each in manifest.partitions] == [
        ("ooo", 0, 70, 70),
        ("ooo", 1, 0, 0),
    ]


def test_other_programs_read_it_too(backup: bytes, tmp_path: Path) -> None:
    names = ["backup.json", *CONTENT, "manifest.json"]
    with tarfile.open(fileobj=io.BytesIO(backup)) as tar:
        assert tar.getnames() == names
        found = tar.extractfile(names[3])
        assert found is not None and found.read() == CONTENT[names[3]]
    (tmp_path / "backup.tar").write_bytes(backup)
    listed = subprocess.run(["tar", "tf", tmp_path / "backup.tar"], capture_output=True, text=True, check=True)
    assert listed.stdout.splitlines() == names


def test_what_breaks_off_is_refused_wherever_it_does(backup: bytes) -> None:
    rng = Random(2)
    ends = {0, 1, 511, 512, len(backup) - 1_024, len(backup) - 1, *(rng.randrange(len(backup)) for _ in range(50))}
    ends |= set(range(len(backup) - 6_000, len(backup), 100))
    for end in ends:
        with pytest.raises(BadBackup, match="breaks off"):
            read(backup[:end])


def test_no_byte_can_be_changed(backup: bytes) -> None:
    rng = Random(3)
    places = {rng.randrange(len(backup)) for _ in range(40)} | set(range(len(backup) - 5_000, len(backup), 97))
    for place in places:
        changed = bytearray(backup)
        changed[place] ^= 1 << rng.randrange(8)
        try:
            _, kept = read(bytes(changed))
        except BadBackup:
            continue
        # How numbers in a header are padded means nothing; what is restored is what was written.
        assert kept.files == CONTENT, place


def tar_of(entries: list[tuple[str, bytes]], change: Callable[[tarfile.TarInfo], None] = lambda info: None) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            change(info)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def entries_of(backup: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(backup)) as tar:
        return [(info.name, (tar.extractfile(info) or io.BytesIO()).read()) for info in tar]


def test_written_anew_by_another_program_it_is_still_good(backup: bytes) -> None:
    assert read(tar_of(entries_of(backup)))[1].files == CONTENT


@pytest.mark.parametrize(
    "name",
    [
        "../evil", "/etc/passwd", "logs/../../evil", "logs/x~" + "0" * 32 + "/0/../0/delays", "LOCK", "snapshots/../x",
        "logs/__metadata/0/00000000000000000000.log\n", "", "logs", "FORMAT/x", "logs/x~" + "0" * 32 + "/0/evil.sh",
    ],
)  # fmt: skip
def test_a_name_that_no_data_folder_has_is_refused(backup: bytes, name: str) -> None:
    entries = entries_of(backup)
    entries[2] = (name, entries[2][1])
    kept = Kept()
    with pytest.raises(BadBackup):
        read_backup(io.BytesIO(tar_of(entries)), kept)
    assert set(kept.files) <= {"FORMAT"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_only_plain_files_are_read(backup: bytes, kind: bytes) -> None:
    def change(info: tarfile.TarInfo) -> None:
        if info.name == "FORMAT":
            info.type, info.linkname, info.size = kind, "/etc/passwd", 0

    with pytest.raises(BadBackup, match=r"plain file|extension"):
        read(tar_of(entries_of(backup), change))


def test_what_is_missing_too_much_or_twice_is_told(backup: bytes) -> None:
    entries = entries_of(backup)
    cases = {
        "should be": entries[1:],
        "manifest.json": [*entries[:3], *entries[4:]],
        "FORMAT twice": [*entries[:2], *entries[1:]],
        "ends before": entries[:-1],
        "follows manifest.json": [*entries, entries[1]],
        "where manifest.json tells of": [entries[0], entries[2], entries[1], *entries[3:]],
    }
    for told, changed in cases.items():
        with pytest.raises(BadBackup, match=told):
            read(tar_of(changed))
    with pytest.raises(BadBackup, match="something follows its end"):
        read(backup + bytes(5_000) + b"more")
    with pytest.raises(BadBackup, match="no tar header"):
        read(b"<html>" * 200)


def test_more_bytes_than_were_announced_are_not_taken_in(backup: bytes) -> None:
    entries = entries_of(backup)
    entries[0] = (entries[0][0], msgspec.json.encode(msgspec.structs.replace(head_of(CONTENT), size_bytes=10_000)))
    kept = Kept()
    with pytest.raises(BadBackup, match="more than the 10000 bytes"):
        read_backup(io.BytesIO(tar_of(entries)), kept)
    assert sum(map(len, kept.files.values())) <= 10_000


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[]", "cannot be understood"),
        (b"[" * 60_000, "cannot be understood"),
        (b"x" * 70_000, "are allowed"),
        (msgspec.json.encode(msgspec.structs.replace(head_of(CONTENT), format=2)), "knows up to 1"),
        (msgspec.json.encode(msgspec.structs.replace(head_of(CONTENT), files=10**9)), "cannot be"),
    ],
)
def test_a_head_that_is_none_is_refused(content: bytes, told: str) -> None:
    with pytest.raises(BadBackup, match=told):
        read(tar_of([("backup.json", content)]))


def test_a_manifest_has_a_checksum_of_its_own() -> None:
    sealed = seal(Manifest(head_of({}), [], []))
    assert unseal(sealed).head.node_id == "node"
    with pytest.raises(BadBackup, match="damaged"):
        unseal(sealed.replace(b'node"', b'mode"'))


def test_a_manifest_is_no_larger_than_its_files_make_it(backup: bytes) -> None:
    entries = entries_of(backup)
    entries[-1] = (entries[-1][0], b"[" * 200_000)
    with pytest.raises(BadBackup, match=r"manifest.json has 200000 bytes; 70536 are allowed"):
        read(tar_of(entries))


def test_nothing_hides_behind_the_end_of_a_file(backup: bytes) -> None:
    at = backup.index(b"ustar", 1_024) - 257 + 512
    assert backup[at : at + 2] == b"2\0"
    with pytest.raises(BadBackup, match="behind the end of 'FORMAT'"):
        read(backup[: at + 1] + b"x" + backup[at + 2 :])


def test_what_a_log_has_lost_is_told_in_backups_as_well() -> None:
    assert is_of_backup(f"logs/t~{'0' * 32}/0/damage")
    assert is_of_backup(f"logs/t~{'0' * 32}/0/{'0' * 20}.cut")
