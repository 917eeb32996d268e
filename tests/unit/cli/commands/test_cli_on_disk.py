"""A backup and a restored folder are on the disk before they have the name by which they count."""

from __future__ import annotations

from pathlib import Path

import pytest
from doubles.synced import note_syncs

from goqueue.cli.commands.backup import backup_output
from goqueue.cli.commands.backup.backup_output import to_file
from goqueue.cli.commands.backup.restore_folder import restore_into


@pytest.mark.parametrize("force", [False, True])
def test_a_backup_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    target = tmp_path / "backup"
    noted = note_syncs(monkeypatch, lambda path: (path.name.partition(".")[0], target.exists()))
    with to_file(target, compress=False, force=force) as output:
        output.write(b"all of it")
    assert noted == [("backup", False), (tmp_path.name, True)]


def test_a_large_backup_is_brought_to_the_disk_little_by_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_output, "_SYNC_EVERY_BYTES", 10)
    sizes = note_syncs(monkeypatch, lambda path: path.stat().st_size)
    with to_file(tmp_path / "backup", compress=False, force=False) as output:
        for _ in range(4):
            output.write(b"x" * 6)
    assert sizes[:-1] == [12, 24, 24]


def test_a_restored_folder_is_on_the_disk_before_a_broker_would_start_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"

    def there(path: Path) -> tuple[Path, list[str]]:
        return path, [name for name in ("logs", "FORMAT", "restore.part") if (data / name).exists()]

    with restore_into(data, lambda size: None) as folder:
        for name in ("logs/t/0/1.log", "FORMAT"):
            folder.begin_file(name, 1)
            folder.write(b"x")
            folder.end_file()
        noted = note_syncs(monkeypatch, there)
    everything = data / "restore.part" / "**"
    assert [each for each in noted if each[0] in {everything, data, data.parent}] == [
        (everything, ["restore.part"]),
        (data, ["logs", "restore.part"]),
        (data, ["logs", "FORMAT", "restore.part"]),
        (data, ["logs", "FORMAT"]),
        (data.parent, ["logs", "FORMAT"]),
    ]
