"""``goqueue backup`` and ``goqueue restore`` against a broker in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import zstandard
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.testing import BrokerProcess, running_broker

COMMAND = (sys.executable, "-m", "goqueue")
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker() as running:
        client = httpx.Client(base_url=running.url, timeout=30)
        client.post("/topics", json={"name": "orders", "settings": {"partitions": 2}}).raise_for_status()
        messages = [{"key": str(number), "value": "x" * 1_000} for number in range(300)]
        client.post("/topics/orders/messages", json={"messages": messages}).raise_for_status()
        client.close()
        yield running


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(broker: BrokerProcess | None, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env={"GOQUEUE_SERVER": broker.url if broker else None})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_that_was_just_restored_is_healthy_and_named_in_the_same_way_everywhere(here: Path) -> None:
    with running_broker() as own, own.client() as client:
        client.create_topic("paid", partitions=1)
        with client.producer() as producer:
            for number in range(5):
                with producer.transaction() as transaction:
                    transaction.send("paid", f"{number}")
        told = run(own, "backup", "a.tar").stdout
    # A marker of each transaction lies beside its message.
    assert told.startswith("a.tar: 1 topic with up to 10 messages in 1 partition, ")
    assert run(None, "restore", "a.tar", "--data", "restored").exit_code == 0
    # Only what a backup leaves out is missing.
    assert not list(Path("restored/logs/").glob("paid~*/0/*.timeindex"))
    for arguments in (["--data", "restored"], ["restored"]):
        checked = run(None, "doctor", *arguments)
        assert checked.exit_code == 0
        assert checked.stdout.endswith("\nhealthy\n") and "note" not in checked.stdout
    Path("restored/RESTORED").unlink()
    assert "healthy (" in run(None, "doctor", "--data", "restored").stdout
    for command in (["doctor", "restored"], ["restore", "a.tar", "again"]):
        twice = run(None, *command, "--data", "other")
        assert (twice.exit_code, "DATA and --data name the same thing; use one of them" in twice.stderr) == (2, True)
    assert run(None, "restore", "a.tar", "again").exit_code == 0


def test_a_backup_is_restored_and_tells_what_is_in_it(broker: BrokerProcess, here: Path) -> None:
    told = run(broker, "backup", "a.tar")
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("a.tar: 1 topic with up to 300 messages in 2 partitions, ")
    facts = json.loads(run(broker, "backup", "a.tar.zst", "--json").stdout)
    assert (facts["topics"], facts["partitions"], facts["messages"], facts["compressed"]) == (1, 2, 300, True)
    assert facts["file_bytes"] == Path("a.tar.zst").stat().st_size < facts["bytes"] < Path("a.tar").stat().st_size
    restored = json.loads(run(None, "restore", "a.tar.zst", "deep/data", "--json").stdout)
    assert restored["messages"] == 300 and restored["instant"] == facts["instant"]
    told = run(None, "restore", "a.tar", "empty")
    assert told.stdout.splitlines()[1] == "Start a broker on it: goqueue serve --data empty"
    assert sorted(path.name for path in (here / "deep").iterdir()) == ["data"]
    assert names(here / "deep" / "data") == ["FORMAT", "RESTORED", "checkpoint", "logs"]
    assert names(here) == ["a.tar", "a.tar.zst", "deep", "empty"]


def test_a_stopped_broker_is_backed_up_from_its_folder(broker: BrokerProcess, here: Path) -> None:
    locked = run(None, "backup", "b.tar", "--data", str(broker.data))
    assert (locked.exit_code, names(here)) == (1, [])
    assert "is in use by a broker" in locked.stderr and "hint: Leave out --data: " in locked.stderr
    assert run(broker, "backup", "a.tar").exit_code == 0
    assert run(None, "restore", "a.tar", "data").exit_code == 0
    facts = json.loads(run(None, "backup", "b.tar", "--data", "data", "--json").stdout)
    assert (facts["topics"], facts["messages"], facts["partitions"]) == (1, 300, 2)
    assert run(None, "restore", "b.tar", "again").exit_code == 0
    for path in (here / "data").rglob("*.log"):
        assert (here / "again" / path.relative_to(here / "data")).read_bytes() == path.read_bytes()


def test_what_cannot_be_is_refused_and_leaves_nothing(broker: BrokerProcess, here: Path) -> None:
    Path("there.tar").write_text("mine")
    Path("full").mkdir()
    Path("full/x").touch()
    run(broker, "backup", "good.tar")
    for status, told, *arguments in (
        (2, "there already", "backup", "there.tar"),
        (1, "cannot be written", "backup", "no/such/folder.tar"),
        (2, "is not a data folder", "backup", "x.tar", "--data", "full"),
        (2, "is not a data folder", "backup", "x.tar", "--data", "nowhere"),
        (2, "give one of them", "backup", "x.tar", "--data", "full", "--server", "http://127.0.0.1:1"),
        (3, "no broker can be reached", "backup", "x.tar", "--server", "http://127.0.0.1:1"),
        (2, "no empty folder", "restore", "good.tar", "full"),
        (2, "no empty folder", "restore", "good.tar", "good.tar"),
        (2, "cannot be read", "restore", "nothing.tar", "data"),
        (1, "no tar header", "restore", "full.txt", "data"),
        (2, "--check to make none", "restore", "good.tar"),
        (2, "--check to make none", "restore", "good.tar", "data", "--check"),
    ):
        Path("full.txt").write_text("not a backup " * 100)
        ended = run(broker, *arguments)
        assert ended.exit_code == status, (arguments, ended.output)
        assert told in " ".join(ended.stderr.replace("│", "").split()), arguments
        assert names(here) == ["full", "full.txt", "good.tar", "there.tar"], arguments
    assert Path("there.tar").read_text() == "mine"
    assert run(broker, "backup", "there.tar", "--force").exit_code == 0
    assert run(None, "restore", "there.tar", "--check").exit_code == 0


def test_a_damaged_or_cut_backup_is_refused_with_what_is_wrong(broker: BrokerProcess, here: Path) -> None:
    run(broker, "backup", "good.tar")
    good = Path("good.tar").read_bytes()
    at = good.index(b"x" * 900) + 100
    Path("bad.tar").write_bytes(good[:at] + b"y" + good[at + 1 :])
    Path("cut.tar").write_bytes(good[: len(good) // 2])
    packed = zstandard.compress(good)
    Path("cut.tar.zst").write_bytes(packed[: len(packed) // 2])
    for file, told in (("bad.tar", ".log is damaged"), ("cut.tar", "breaks off"), ("cut.tar.zst", "breaks off")):
        for more in (["data"], ["--check"]):
            ended = run(None, "restore", file, *more)
            assert (ended.exit_code, told in ended.stderr, ended.stdout) == (1, True, ""), ended.output
    assert names(here) == ["bad.tar", "cut.tar", "cut.tar.zst", "good.tar"]


def test_pipes_carry_backups(broker: BrokerProcess, here: Path) -> None:
    environment = os.environ | {"GOQUEUE_SERVER": broker.url}
    line = f"{sys.executable} -m goqueue backup - --compress | {sys.executable} -m goqueue restore - data"
    piped = subprocess.run(line, shell=True, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    assert piped.returncode == 0, piped.stderr
    assert "data: 1 topic with up to 300 messages" in piped.stdout
    assert "standard output: 1 topic with up to 300 messages" in piped.stderr
    assert names(here) == ["data"]


@contextmanager
def stalling(first: bytes, *, ends: bool) -> Iterator[str]:
    """Something that answers with the beginning of a backup, and then with nothing, or hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(10_000)
            head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % len(first)
            connection.sendall(head + first + b"\r\n")
            if ends:
                connection.close()
            else:
                held.append(connection)

        held: list[socket.socket] = []
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join()
            for connection in held:
                connection.close()


def test_a_broker_that_breaks_off_leaves_no_file(broker: BrokerProcess, here: Path) -> None:
    run(broker, "backup", "good.tar")
    with stalling(Path("good.tar").read_bytes()[:50_000], ends=True) as server:
        ended = run(None, "backup", "half.tar", "--server", server)
    assert ended.exit_code == 3
    assert "broke after 50,000 bytes of the backup" in ended.stderr
    assert names(here) == ["good.tar"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_it_leaves_no_half_file_although_the_broker_sends_nothing(
    broker: BrokerProcess, here: Path, number: signal.Signals
) -> None:
    run(broker, "backup", "good.tar")
    with stalling(Path("good.tar").read_bytes()[:50_000], ends=False) as server:
        ours, theirs = pty.openpty()
        command = [*COMMAND, "backup", "half.tar", "--server", server]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        try:
            drawn = b""
            # The bar counts bytes: from then on there is a half file.
            while b"50.0 KB" not in drawn:
                drawn += os.read(ours, 10_000)
            assert [name.startswith("half.tar.part-") for name in names(here)] == [False, True]
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 130
            while b"nothing was kept" not in drawn:
                drawn += os.read(ours, 10_000)
        finally:
            process.kill()
            process.communicate()
            os.close(ours)
    assert names(here) == ["good.tar"]
