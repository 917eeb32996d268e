"""Where ``goqueue backup`` writes and reads and ``goqueue restore`` puts a folder: what is there already stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.commands.backup import backup_output, restore_folder
from goqueue.cli.commands.backup.backup_output import FileExists, to_file
from goqueue.storage.files.safe_paths import Beneath
from goqueue.testing import BrokerProcess, running_broker

COMMAND = (sys.executable, "-m", "goqueue")
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker() as running:
        with httpx.Client(base_url=running.url, timeout=30) as client:
            for name in ("orders", "clicks"):
                client.post("/topics", json={"name": name, "settings": {"partitions": 2}}).raise_for_status()
            messages = [{"key": str(number), "value": "x" * 1_000} for number in range(50)]
            client.post("/topics/orders/messages", json={"messages": messages}).raise_for_status()
        yield running


@pytest.fixture(scope="module")
def good(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A backup's file."""
    file = str(tmp_path_factory.mktemp("good") / "good.tar")
    assert run("backup", file, "--server", broker.url).exit_code == 0
    return file


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env={"GOQUEUE_SERVER": None})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def failed(status: int, told: str, *arguments: str) -> None:
    ended = run(*arguments)
    assert (ended.exit_code, told in " ".join(ended.stderr.replace("│", "").split())) == (status, True), ended.output


def topic_folder(data: Path, topic: str) -> Path:
    [found] = (data / "logs").glob(f"{topic}~*")
    return found


def moved_behind_a_link(place: Path, elsewhere: Path) -> None:
    shutil.move(place, elsewhere)
    place.symlink_to(elsewhere)


@pytest.mark.parametrize("which", ["logs", "topic"])
def test_a_backup_of_a_folder_follows_no_link(good: str, here: Path, which: str) -> None:
    assert run("restore", good, "data").exit_code == 0
    place = topic_folder(here / "data", "orders") if which == "topic" else here / "data" / which
    moved_behind_a_link(place, here / "elsewhere")
    failed(1, "[link_in_data_folder]", "backup", "b.tar", "--data", "data")
    assert names(here) == ["data", "elsewhere"]


def test_a_backup_of_a_folder_that_is_a_link_itself_is_taken(good: str, here: Path) -> None:
    assert run("restore", good, "elsewhere").exit_code == 0
    (here / "data").symlink_to("elsewhere")
    told = run("backup", "b.tar", "--data", "data")
    assert "2 topics with up to 50 messages in 4 partitions" in told.stdout, told.output


def test_a_backup_of_a_folder_fails_if_a_log_is_gone(good: str, here: Path) -> None:
    assert run("restore", good, "data").exit_code == 0
    away = topic_folder(here / "data", "clicks")
    shutil.move(away, here / "away")
    failed(1, "there are no files of data/logs/clicks~", "backup", "b.tar", "--data", "data")
    # Whether the points tell of it or not: the catalog does.
    (here / "data" / "checkpoint").unlink()
    failed(1, "which the broker had", "backup", "b.tar", "--data", "data")
    shutil.move(here / "away", away)
    shutil.move(here / "data" / "logs", here / "away")
    failed(1, "there are no files of", "backup", "b.tar", "--data", "data")
    assert names(here) == ["away", "data"]


def test_what_a_repair_has_set_aside_is_not_in_a_backup(broker: BrokerProcess, here: Path) -> None:
    snapshots = broker.data / "snapshots"
    (snapshots / "__metadata.damaged").write_text("set aside")
    (snapshots / "lost+found").mkdir()
    try:
        assert run("backup", "a.tar", "--server", broker.url).exit_code == 0
        assert run("restore", "a.tar", "--check").exit_code == 0
    finally:
        (snapshots / "__metadata.damaged").unlink()
        (snapshots / "lost+found").rmdir()


def test_two_backups_to_one_file_and_somebodys_own_files_do_not_meet(here: Path) -> None:
    Path("a.tar.part").write_text("mine")
    first, second = to_file(here / "a.tar", False, force=False), to_file(here / "a.tar", False, force=False)
    first.__enter__().write(b"first")
    second.__enter__().write(b"second")
    second.__exit__(None, None, None)
    with pytest.raises(FileExists, match="has appeared while"):
        first.__exit__(None, None, None)
    assert (names(here), Path("a.tar").read_bytes()) == (["a.tar", "a.tar.part"], b"second")
    assert Path("a.tar").stat().st_mode & 0o777 == 0o600


def test_where_there_are_no_links_a_file_that_is_there_is_not_replaced_either(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(backup_output.os, "link", refused)
    with to_file(here / "a.tar", False, force=False) as output:
        output.write(b"whole")
    with pytest.raises(FileExists), to_file(here / "a.tar", False, force=False) as output:
        output.write(b"another")
    assert (names(here), Path("a.tar").read_bytes()) == (["a.tar"], b"whole")


def test_only_plain_files_are_replaced(broker: BrokerProcess, here: Path) -> None:
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("dangling").symlink_to("nowhere")
    Path("real.tar").write_text("old")
    Path("link.tar").symlink_to("real.tar")
    there = names(here)
    server = ("--server", broker.url)
    failed(2, "FILE is empty", "backup", "", *server)
    failed(2, "is empty", "restore", "", "data")
    failed(2, "dangling is there already", "backup", "dangling", *server)
    for name in ("pipe", "/dev/null"):
        failed(2, "is no plain file", "backup", name, "--force", *server)
    for force in ([], ["--force"]):
        failed(2, "folder is a folder; a backup is a file", "backup", "folder", *force, *server)
    assert names(here) == there
    assert run("backup", "link.tar", "--force", *server).exit_code == 0
    assert (names(here), Path("link.tar").is_symlink()) == (there, True)
    assert run("restore", "real.tar", "--check").exit_code == 0


def test_what_cannot_be_written_is_a_sentence(broker: BrokerProcess, here: Path) -> None:
    line = f"ulimit -f 10; exec {sys.executable} -m goqueue backup u.tar --server {broker.url}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, names(here)) == (1, []), ended.stderr
    assert ended.stderr.startswith("error: ") and "u.tar cannot be written: File too large" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_reader_that_stops_is_told_of_and_facts_do_not_go_into_the_backup(broker: BrokerProcess, here: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    ended = subprocess.run(
        [*COMMAND, "backup", "-", "--server", broker.url], stdout=theirs, stderr=subprocess.PIPE, timeout=PATIENCE_S
    )
    os.close(theirs)
    assert ended.returncode == 1
    assert ended.stderr.decode().splitlines() == [
        "error: standard output was closed by who reads it; the backup is not whole [client_error]",
        "hint: Whoever reads it has stopped before the end. What it has got is no backup.",
    ]
    told = run("backup", "-", "--json", "--server", broker.url)
    assert '"messages":50' in told.stderr
    Path("a.tar").write_bytes(told.stdout_bytes)
    assert run("restore", "a.tar", "--check").exit_code == 0


def test_a_prepared_folder_stays_what_it_is(good: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = here / "data"
    data.mkdir(mode=0o750)
    (data / "lost+found").mkdir()
    before = data.stat()
    monkeypatch.chdir(data)
    assert run("restore", good, ".").exit_code == 0
    after = data.stat()
    assert (after.st_ino, after.st_mode, after.st_uid) == (before.st_ino, before.st_mode, before.st_uid)
    assert names(data) == ["FORMAT", "RESTORED", "checkpoint", "logs", "lost+found"]
    assert names(here) == ["data"]
    (here / "link").symlink_to("nowhere")
    failed(2, "leads nowhere", "restore", good, str(here / "link"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_restores_belongs_to_whom_the_folder_belongs(good: str, here: Path) -> None:
    Path("data").mkdir()
    os.chown("data", 12_345, 12_345)
    assert run("restore", good, "data").exit_code == 0
    assert {path.stat().st_uid for path in Path("data").rglob("*")} == {12_345}


@pytest.mark.parametrize("planted", ["restore.part", "restore.part/LOCK"])
def test_a_restore_follows_no_link_that_somebody_has_planted(good: str, here: Path, planted: str) -> None:
    victim = here / "elsewhere"
    victim.mkdir()
    (victim / "LOCK").write_text("somebody else's")
    before = (victim / "LOCK").stat()
    link = here / "data" / planted
    link.parent.mkdir(parents=True)
    link.symlink_to(victim if planted == "restore.part" else victim / "LOCK")
    failed(1, "[link_in_data_folder]", "restore", good, "data")
    after = (victim / "LOCK").stat()
    assert (after.st_size, after.st_uid, after.st_mode) == (before.st_size, before.st_uid, before.st_mode)
    assert names(victim) == ["LOCK"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_somebody_has_planted_in_his_folder_is_not_given_to_him(
    good: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He puts a link among the files that root has restored, before they are given to him."""
    Path("data").mkdir()
    os.chown("data", 12_345, 12_345)
    victim = here / "victim"
    victim.write_text("root's")
    give = restore_folder._give_to_owner

    def planted_before(beneath: Beneath, part: Path, data: Path) -> None:
        (part / "logs" / "planted").symlink_to(victim)
        give(beneath, part, data)

    monkeypatch.setattr(restore_folder, "_give_to_owner", planted_before)
    assert run("restore", good, "data").exit_code == 0
    assert victim.stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_for_restoring_that_somebody_else_has_made_is_refused(good: str, here: Path) -> None:
    (here / "data" / "restore.part").mkdir(parents=True)
    os.chown("data/restore.part", 12_345, 12_345)
    failed(2, "belongs to somebody else", "restore", good, "data")
    assert names(here / "data" / "restore.part") == []


def test_what_is_restored_is_for_its_owner_alone_whatever_the_umask_is(good: str, here: Path) -> None:
    before = os.umask(0)
    try:
        assert run("restore", good, "data").exit_code == 0
        modes = {path.stat().st_mode & 0o777 for path in [here / "data", *(here / "data").rglob("*")]}
    finally:
        os.umask(before)
    assert modes == {0o700, 0o600}


def test_a_restore_that_was_killed_is_begun_anew_and_no_other_is_disturbed(good: str, here: Path) -> None:
    data = here / "data"
    whole = Path(good).read_bytes()
    ours, theirs = os.pipe()
    process = subprocess.Popen([*COMMAND, "restore", "-", "data"], stdin=ours, stderr=subprocess.PIPE)
    os.close(ours)
    try:
        feeding = threading.Thread(target=lambda: os.write(theirs, whole[:40_000]))
        feeding.start()
        feeding.join()
        while not (data / "restore.part" / "logs").exists():
            assert process.poll() is None
        failed(2, "another 'goqueue restore' is filling", "restore", good, "data")
    finally:
        process.kill()
        process.communicate()
        os.close(theirs)
    # As if it had come further.
    (data / "restore.part" / "logs").rename(data / "logs")
    assert run("restore", good, "data").exit_code == 0
    assert names(data) == ["FORMAT", "RESTORED", "checkpoint", "logs"]
    failed(2, "no empty folder", "restore", good, "data")
    # Somebody's own folder without FORMAT is nobody's leftover.
    Path("mine/logs").mkdir(parents=True)
    failed(2, "no empty folder", "restore", good, "mine")
    assert names(here / "mine") == ["logs"]


def test_a_failed_restore_leaves_a_prepared_folder_empty(good: str, here: Path) -> None:
    Path("half.tar").write_bytes(Path(good).read_bytes()[:-9_000])
    Path("data").mkdir()
    failed(1, "breaks off", "restore", "half.tar", "data")
    assert names(here / "data") == []
    failed(1, "breaks off", "restore", "half.tar", "other")
    assert names(here) == ["data", "half.tar"]
