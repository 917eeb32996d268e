"""``goqueue doctor`` on folders of real brokers: no false alarms, every damage found, and what --repair leaves."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from behaviour.busy import BIG, SETTINGS, answered, files_of, use_everything
from behaviour.waiting import until
from doubles.messages import read_run
from typer.testing import CliRunner, Result

from goqueue.broker.broker import Broker
from goqueue.broker.runtime.shard_placement import shard_of_group
from goqueue.cli.app import app
from goqueue.model.errors import DataFolderLocked
from goqueue.storage.files.checkpoint import CheckpointFile
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.testing import running_broker
from goqueue.wire.decoding import decode_run

EARLIER = Path(__file__).parents[1] / "behaviour" / "earlier_folders"
Served = dict[tuple[str, int, int], bytes]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def found_in(root: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = run(root, "--json", *arguments)
    assert result.exit_code in {0, 5}, result.output
    return result.exit_code, json.loads(result.stdout)


def content_of(root: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file but the one that says who uses the folder."""
    return {name: held for name, held in files_of(root).items() if name.name != "LOCK"}


def rest_of(terminal: int) -> str:
    """What is still to be read of a terminal that nobody draws on any more; it may come in pieces."""
    said = b""
    try:
        while chunk := os.read(terminal, 65_536):
            said += chunk
    except OSError:
        pass  # Linux ends the reading of a closed terminal with an error.
    return said.decode()


def severities(report: dict[str, Any]) -> set[str]:
    return {each["severity"] for each in report["findings"]}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """When retention was done: of what it removed, only the message that is delayed for long is still there."""
    root = tmp_path_factory.mktemp("stopped") / "data"
    with running_broker(root, settings=SETTINGS) as broker:
        use_everything(broker)
        until(lambda: [int(each.stem) for each in sorted(root.glob("logs/clicks~*/0/*.log"))] == [600, 701, 801, 901])
    return root


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("killed") / "data"
    with running_broker(root, settings=SETTINGS) as broker:
        use_everything(broker)
        broker.kill()
    return root


@pytest.fixture(scope="module")
def purged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a broker that was killed after a purge. Its topics are compacted unless they say otherwise."""
    root = tmp_path_factory.mktemp("purged") / "data"
    settings = {"topic.cleanup": "compact", "topic.segment_bytes": 65_536, "topic.partitions": 1}
    never = {"storage.checkpoint_interval_ms": 3_600_000, "storage.cleanup_interval_ms": 3_600_000}
    with running_broker(root, settings={**settings, **never, "storage.min_free_bytes": 0}) as broker:
        with httpx.Client(base_url=broker.url, timeout=30) as client:
            for name, own in (("sent", {"cleanup": "delete"}), ("plain", {"cleanup": "delete"}), ("states", {})):
                answered(client.post("/topics", json={"name": name, "settings": own}))
            for turn in range(4):
                numbers = range(turn * 200, turn * 200 + 200)
                # Few are the last of their key.
                states = [{"key": f"s{n if n % 50 == 0 else n % 5}", "value": BIG * 2} for n in numbers]
                answered(client.post("/topics/states/messages", json={"messages": states}))
            answered(client.post("/topics/plain/messages", json={"messages": [{"value": BIG}] * 300}))
            with broker.client() as library, library.producer() as producer:
                for number in range(400):
                    producer.send("sent", f"{number} {BIG}")
                producer.flush()
            # It leaves recovery points of all logs.
            for name in ("sent", "plain"):
                answered(client.post(f"/admin/topics/{name}/purge", json={}))
        broker.kill()
    return root


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Iterator[Path]:
    yield shutil.copytree(stopped, tmp_path / "data")


def served(root: Path) -> Served:
    """Every message that a broker on the folder serves."""

    async def look() -> Served:
        answer: Served = {}
        async with Broker(root) as broker:
            for name in broker.topic_names():
                for number, partition in enumerate(broker.topic(name).partitions):
                    at = partition.log.start_offset
                    while (found := read_run(partition.log, at, 1 << 20)) is not None:
                        messages, _ = decode_run(found)
                        answer |= {(name, number, each.offset): each.value for each in messages}
                        at = found.offset_at(-1) + 1
        return answer

    return asyncio.run(look())


def test_a_folder_that_was_used_for_everything_and_stopped_has_no_finding(stopped: Path) -> None:
    before = files_of(stopped)
    status, report = found_in(stopped)
    assert report["findings"] == []
    assert (status, report["healthy"]) == (0, True)
    assert files_of(stopped) == before
    counted = {each["topic"]: sum(part["messages"] for part in each["partitions"]) for each in report["topics"]}
    assert counted["orders"] > 1_200 and counted["__shards"] > 50 and counted["__schemas"]
    assert "__transactions" not in counted
    kinds = {each.name.split(".")[-1] for each in before}
    assert {"FORMAT", "checkpoint", "log", "index", "timeindex", "lanes", "delays", "producers", "jsonl"} <= kinds


def test_a_folder_whose_broker_was_killed_has_notes_at_most(killed: Path) -> None:
    before = files_of(killed)
    status, report = found_in(killed)
    assert severities(report) <= {"note"}, report["findings"]
    assert status == 0
    assert files_of(killed) == before


def test_what_is_shown_is_a_table_and_a_verdict(stopped: Path) -> None:
    result = run(stopped)
    assert result.exit_code == 0
    titles, *rows = result.stdout.splitlines()
    assert titles.split() == ["topic", "partitions", "segments", "records", "size", "findings"]
    assert next(row for row in rows if row.startswith("orders ")).endswith("ok")
    assert rows[-1] == "healthy"
    assert re.search(r"^orders +\d+ +\d+ +[\d,]+ +[\d.]+ KB +ok$", result.stdout, re.M)
    narrowed = json.loads(run(stopped, "--topic", "orders", "--json").stdout)
    assert {each["topic"] for each in narrowed["topics"]} == {"__metadata", "orders"}
    assert run(stopped, "--quick").stdout.splitlines()[-1] == "healthy"


def test_a_topic_that_is_not_in_the_folder_is_told_with_those_that_are(stopped: Path) -> None:
    result = run(stopped, "--topic", "nope")
    assert result.exit_code == 4
    error, hint = result.stderr.splitlines()
    assert "has no topic 'nope'; it has " in error and "orders" in error and "__" not in error
    assert hint == "hint: Name one of these, or leave out --topic to check all of them."


def test_notes_that_say_the_same_are_one_and_programs_get_them_all(copy: Path) -> None:
    indexes = sorted(copy.glob("logs/*~*/*/*.timeindex"))
    for path in indexes:
        path.unlink()
    told = [line for line in run(copy).stdout.splitlines() if "index of times" in line]
    assert len(indexes) > 2
    assert len(told) == 1 and f".timeindex and {len(indexes) - 1} more like it: " in told[0]
    found = [each["path"] for each in found_in(copy)[1]["findings"]]
    assert {str(path.relative_to(copy)) for path in indexes} <= set(found)


@pytest.mark.parametrize("version", [3, 4])
def test_a_folder_of_an_earlier_version_is_healthy_before_and_after_it_is_converted(
    tmp_path: Path, version: int
) -> None:
    with tarfile.open(EARLIER / f"format-{version}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    data = tmp_path / "data"
    for is_converted in (False, True):
        status, report = found_in(data)
        assert (status, severities(report) <= {"note"}) == (0, True), report["findings"]
        assert ("__transactions" in {each["topic"] for each in report["topics"]}) is not is_converted
        served(data)
    journal = next(data.glob("logs/__metadata/0/*.log"))
    assert b'"ids_converted"' in journal.read_bytes()


def test_damage_to_a_journal_that_is_yet_to_be_converted_is_found(tmp_path: Path) -> None:
    with tarfile.open(EARLIER / "format-4.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    path = tmp_path / "data" / "logs" / "__transactions" / "0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x80
    path.write_bytes(content)
    status, report = found_in(tmp_path / "data")
    assert status == 5 and "damage" in severities(report)


DAMAGES = {
    # What is damaged: how bad that is when a byte is wrong, when it is cut in half, and when it is gone.
    "FORMAT": ("damage", "damage", "damage"),
    "checkpoint": ("repairable", "repairable", "note"),
    "logs/orders~*/0/00000000000000000000.log": ("damage", "damage", "damage"),
    "logs/orders~*/0/00000000000000000000.index": ("repairable", "repairable", "note"),
    "logs/orders~*/0/00000000000000000000.timeindex": ("repairable", "repairable", "note"),
    "logs/orders~*/0/00000000000000000000.lanes": ("repairable", "repairable", "note"),
    "logs/orders~*/0/delays": ("repairable", "repairable", None),
    "logs/orders~*/0/producers": ("repairable", "repairable", None),
    "logs/profiles~*/0/00000000000000000000.log": ("damage", "damage", "damage"),
    "logs/clicks~*/0/*600.log": ("damage", "damage", "damage"),
    "logs/clicks~*/0/delays": ("damage", "damage", "damage"),
    "logs/__metadata/0/00000000000000000000.log": ("damage", "damage", "damage"),
    f"logs/__shards/{shard_of_group('billing')}/00000000000000000000.log": ("damage", "damage", "damage"),
    "logs/__schemas/0/00000000000000000000.log": ("damage", "damage", "damage"),
    "traces/*.jsonl": ("note", None, None),
}


@pytest.mark.parametrize("pattern", DAMAGES)
def test_damage_of_every_kind_is_found_and_nothing_is_changed(copy: Path, pattern: str) -> None:
    path = sorted(copy.glob(pattern))[0]
    right = path.read_bytes()
    wrong = bytearray(right)
    # Lines of JSON have checksums nowhere: there it must be a byte that makes one no JSON.
    wrong[0 if path.suffix == ".jsonl" else len(right) // 2] ^= 0x80
    for content, expected in zip((bytes(wrong), right[: len(right) // 2], None), DAMAGES[pattern], strict=True):
        path.unlink() if content is None else path.write_bytes(content)
        before = files_of(copy)
        status, report = found_in(copy)
        worst = next((each for each in ("damage", "repairable", "note") if each in severities(report)), None)
        assert worst == expected, report["findings"]
        assert status == (5 if worst in {"damage", "repairable"} else 0)
        assert files_of(copy) == before
        if expected is not None and "~" in pattern:
            topic = pattern.split("/")[1].split("~")[0]
            assert [each for each in report["findings"] if each["topic"] == topic and each["meaning"]]


def test_after_a_repair_a_broker_serves_everything_that_was_undamaged(copy: Path, tmp_path: Path) -> None:
    everything = served(Path(shutil.copytree(copy, tmp_path / "right")))
    orders = next(copy.glob("logs/orders~*/0"))
    sealed, active = sorted(orders.glob("*.log"))[1], sorted(orders.glob("*.log"))[-1]
    for path in (sealed, active, sorted(orders.glob("*.index"))[0], next(copy.glob("logs/orders~*/1/*.lanes"))):
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        if path.suffix == ".log":
            # In a value: what a frame begins with is counted below. Where they lie is not the same each time.
            value = b"x" * 100
            middle = max(content.find(value, middle), content.rfind(value, 0, middle)) + 50
        content[middle] ^= 1
        path.write_bytes(content)
    path = orders / "producers"
    path.write_bytes(path.read_bytes()[:-1])
    status, report = found_in(copy)
    assert status == 5
    lost = {
        ("orders", 0, offset)
        for each in report["findings"]
        if each["severity"] == "damage"
        for offset in range(each["first_offset"], each["last_offset"] + 1)
    }
    # A producer's batch is there as a whole or not at all.
    assert len(lost) >= 2
    before = content_of(copy)
    refused = run(copy, "--repair")
    assert refused.exit_code == 2 and content_of(copy) == before, "nobody was asked"
    status, report = found_in(copy, "--repair", "--yes")
    # They are out of the way, and nobody has accepted that they are gone.
    assert status == 5 and {each["what"][-4:] for each in report["findings"] if each["severity"] != "note"} == {"lost"}
    assert report["repaired"]
    assert (orders / "producers.damaged").exists()
    kept = b"".join(each.read_bytes() for each in orders.glob("*.damaged-*"))
    assert kept.count(b"GQ\x01") == len(lost), "their bytes are kept"
    now = served(copy)
    assert everything.keys() - now.keys() == lost
    assert all(now[place] == value for place, value in everything.items() if place not in lost)

    async def accept() -> None:
        async with Broker(copy) as broker:
            assert broker.damage()
            accepted = await broker.acknowledge_losses("orders")
            assert sum(each.range.end - each.range.first for each in accepted) == len(lost)
            assert not broker.damage()

    asyncio.run(accept())
    status, report = found_in(copy)
    assert severities(report) <= {"note"} and status == 0


def test_a_lost_snapshot_is_made_up_for_if_the_journal_has_everything(copy: Path) -> None:
    async def snapshot() -> None:
        async with Broker(copy) as broker:
            await broker._catalog.snapshot()

    asyncio.run(snapshot())
    assert found_in(copy)[1]["findings"] == []
    path = copy / "snapshots" / "__metadata"
    path.write_bytes(path.read_bytes()[:-1])
    status, report = found_in(copy)
    assert (status, severities(report)) == (5, {"repairable"}), report["findings"]
    status, report = found_in(copy, "--repair", "--yes")
    assert status == 0, report["findings"]
    assert any(name == "orders" for name, _, _ in served(copy))


def test_a_journal_that_has_lost_facts_is_left_as_it_is(copy: Path) -> None:
    path = copy / "logs/__metadata/0/00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    before = content_of(copy)
    status, report = found_in(copy, "--repair", "--yes")
    assert status == 5 and "damage" in severities(report)
    assert content_of(copy) == before


def test_folders_that_belong_to_nobody_are_told_of(copy: Path) -> None:
    orders = next(copy.glob("logs/orders~*"))
    shutil.copytree(orders, orders.with_name("stranger~" + "0" * 32))
    (copy / "logs" / ("new~" + "1" * 32) / "0").mkdir(parents=True)
    (copy / "orphans" / ("old~" + "2" * 32)).mkdir(parents=True)
    (copy / "checkpoint.tmp").write_bytes(b"half")
    shutil.rmtree(orders / "1")
    status, report = found_in(copy)
    by_path = {each["path"].split("~")[0]: each["severity"] for each in report["findings"]}
    expected = {"logs/stranger": "damage", "logs/new": "note", "orphans/old": "note", "checkpoint.tmp": "note"}
    assert by_path == {**expected, "logs/orders": "damage"} and status == 5


def test_a_folder_that_is_in_use_is_refused_and_one_that_is_not_there_not_found(copy: Path, tmp_path: Path) -> None:
    lock = OsFiles().lock(copy / "LOCK")
    in_use = run(copy)
    assert in_use.exit_code == 1 and "is in use" in in_use.stderr and "hint: Stop the broker" in in_use.stderr
    assert run(copy, "--repair", "--yes").exit_code == 1
    del lock
    missing = run(tmp_path / "nowhere")
    assert missing.exit_code == 4 and "there is no folder" in missing.stderr
    other = run(tmp_path)
    assert other.exit_code == 4 and "is no data folder" in other.stderr
    assert run(copy, "--topic", "nobody").exit_code == 4


def test_on_a_terminal_a_repair_asks_while_no_broker_can_start_and_a_no_changes_nothing(copy: Path) -> None:
    path = next(copy.glob("logs/orders~*/0/00000000000000000000.index"))
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    before = content_of(copy)
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "goqueue", "doctor", str(copy), "--repair"]
    asked = subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, text=True)
    os.close(terminal)
    said = ""
    while "Repair 1 of these" not in said:
        said += os.read(controller, 65_536).decode()
    with pytest.raises(DataFolderLocked):
        OsFiles().lock(copy / "LOCK")
    os.write(controller, b"n\n")
    shown, _ = asked.communicate(timeout=60)
    said = rest_of(controller)
    os.close(controller)
    assert asked.returncode == 1 and "repairable: " in shown
    assert "nothing was changed" in said
    assert content_of(copy) == before
    assert OsFiles().lock(copy / "LOCK"), "it was let go"


def test_what_producers_did_before_a_purge_is_missed_if_their_file_is_gone(purged: Path, tmp_path: Path) -> None:
    root = shutil.copytree(purged, tmp_path / "data")
    (root / "RESTORED").write_bytes(b"from a backup")
    status, report = found_in(root)
    assert severities(report) <= {"note"} and status == 0, report["findings"]
    assert not list(root.glob("logs/plain~*/0/producers")), "nobody needs one there"
    path = next(root.glob("logs/sent~*/0/producers"))
    right = path.read_bytes()
    for content in (None, right[:-1]):
        path.unlink() if content is None else path.write_bytes(content)
        status, report = found_in(root)
        (found,) = (each for each in report["findings"] if each["severity"] != "note")
        assert (status, found["severity"], found["path"]) == (5, "damage", str(path.relative_to(root)))
        assert "begins at offset 400" in found["meaning"] and "may be stored twice" in found["meaning"]
    # Without recovery points nobody can tell whether there was one.
    (root / "checkpoint").unlink()
    path.unlink()
    assert found_in(root, "--topic", "sent")[0] == 0


def test_a_log_that_a_default_compacts_is_not_called_damaged(purged: Path, tmp_path: Path) -> None:
    root = shutil.copytree(purged, tmp_path / "data")
    folder = next(root.glob("logs/states~*/0"))
    files = OsFiles()
    point = CheckpointFile(files, root / "checkpoint").load()[str(folder.relative_to(root))]
    assert point.segments == 4 and not point.cleaned_to
    log = open_log(OpenFiles(files, 100), folder, LogOptions(65_536, compacted=True), time.time_ns, point)
    for step in compact(log, CompactionRules(log.durable_offset, 0, 1_000)):
        if step is not None:
            step()
    assert len(log.segments) < point.segments, "and no recovery point tells of it"
    log.close()
    for how in ((), ("--quick",)):
        status, report = found_in(root, "--topic", "states", *how)
        assert status == 0, report["findings"]
        assert any(
            "is compacted, and the topic itself has no such setting" in each["what"] for each in report["findings"]
        )
    (tmp_path / "with.toml").write_text('[topic]\ncleanup = "compact"\n')
    status, report = found_in(root, "--topic", "states", "--config", str(tmp_path / "with.toml"))
    assert status == 0 and not any("no such setting" in each["what"] for each in report["findings"])
    # Nothing is left that shows it.
    for path in folder.glob(f"{0:020d}.*"):
        path.unlink()
    status, report = found_in(root, "--topic", "states")
    (found,) = (each for each in report["findings"] if each["severity"] == "damage")
    assert status == 5 and "unless the topic is compacted" in found["meaning"] and "--config" in found["meaning"]
