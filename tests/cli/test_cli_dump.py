"""``goqueue dump``: what lies in the files of a data folder, beside a running broker."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from behaviour.busy import SETTINGS, files_of, use_everything
from behaviour.host import config_for
from behaviour.waiting import until
from typer.testing import CliRunner, Result

from goqueue.broker.broker import Broker
from goqueue.broker.runtime.shard_placement import shard_of_group
from goqueue.cli.app import app
from goqueue.delivery.delay_index import PendingDelays
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.data_folder import FORMAT_VERSION
from goqueue.storage.files.files import OsFiles
from goqueue.testing import running_broker

EARLIER = Path(__file__).parents[1] / "behaviour" / "earlier_folders" / "format-4.tar.gz"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a broker that runs, when what it does by itself is done: delays, recovery points, traces."""
    root = tmp_path_factory.mktemp("dump") / "data"
    with running_broker(root, settings=SETTINGS) as broker:
        use_everything(broker)
        with broker.client() as client:
            until(lambda: client.delay_stats().delivered >= 20)
        until(
            lambda: (root / "checkpoint").exists() and any(is_of_orders(each) for each in dumped(root / "checkpoint"))
        )
        until(lambda: any(b'"publish"' in each.read_bytes() for each in root.glob("traces/*.jsonl")))
        yield root


def is_of_orders(point: dict[str, Any]) -> bool:
    return bool(point["log"].startswith("logs/orders~") and point["count"])


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["dump", *map(str, arguments)])


def dumped(*arguments: str | Path) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def partition(data: Path, topic: str = "orders", number: int = 0) -> Path:
    return next(data.glob(f"logs/{topic}~*/{number}"))


def test_every_message_of_a_partition_is_shown_in_order(data: Path) -> None:
    frames = dumped(partition(data))
    assert [each["offset"] for each in frames] == list(range(len(frames)))
    first = frames[0]
    assert first["key"] == "k0" and first["headers"] == {"shop": "north"} and first["value"].endswith("bytes)")
    assert {each["lane"] for each in frames} == {"low", "normal", "high", "critical"}
    # All of one key were delayed and have come, in whichever partition that is.
    words = {word for each in [*frames, *dumped(partition(data, "orders", 1))] for word in each["flags"]}
    assert {"transactional", "delayed", "was delayed", "control: commit", "control: abort"} <= words
    stamps = [each["headers"]["goqueue-producer"] for each in frames if "goqueue-producer" in each["headers"]]
    assert {"producer_id", "epoch", "first_sequence", "message_count"} == stamps[0].keys()
    assert any(each["headers"].get("goqueue-due-at", "").endswith("Z") for each in frames)
    assert any("tombstone" in each["flags"] and each["value"] is None for each in dumped(partition(data, "profiles")))


def test_a_part_of_it_can_be_asked_for(data: Path) -> None:
    folder = partition(data)
    assert [each["offset"] for each in dumped(folder, "--from", "300", "--limit", "3")] == [300, 301, 302]
    (whole,) = dumped(folder, "--from", "3", "--limit", "1", "--full")
    assert len(whole["value"]) > 400
    (line,) = run(folder, "--from", "3", "-n", "1").stdout.splitlines()
    assert line.startswith(f"3  at byte {whole['position']}, {whole['size']} bytes  2") and '{"shop":"north"}' in line


def test_index_files_are_readable(data: Path) -> None:
    base = sorted(partition(data).glob("*.log"))[0]
    frames = dumped(base)
    *positions, end = dumped(base.with_suffix(".index"))
    assert [each["position"] for each in positions] == [each["position"] for each in frames]
    assert end["closed"] is True
    *times, _ = dumped(base.with_suffix(".timeindex"))
    assert times[-1]["last_offset"] == frames[-1]["offset"]
    *lanes, _ = dumped(base.with_suffix(".lanes"))
    assert lanes[0] == {"kind": "lane", "from_place": 0, "lane": frames[0]["lane"]} and lanes[-1]["lane"] == "end"


def test_journals_are_told_as_events(data: Path) -> None:
    own = shard_of_group("billing")
    records = dumped(data / f"logs/__shards/{own}")
    assert records[0]["events"][0]["type"] == "group_made" and records[0]["durable_below"] == 0
    made = [each["type"] for record in dumped(data / "logs/__metadata/0") for each in record["events"]]
    assert {"topic_created", "topic_deleted", "receipt_key_made"} <= set(made)
    assert '"type":"group_made"' in run(data / f"logs/__shards/{own}", "-n", "1").stdout


def test_the_key_that_signs_receipts_is_shown_only_if_all_is_wanted(data: Path, tmp_path: Path) -> None:
    def key_in(*arguments: str) -> str:
        events = [each for record in dumped(data / "logs/__metadata/0", *arguments) for each in record["events"]]
        return next(str(each["key"]) for each in events if each["type"] == "receipt_key_made")

    key = key_in("--full")
    assert len(key) > 30 and key_in() == "(hidden; --full shows it)"
    snapshot = tmp_path / "snapshots" / "__metadata"
    snapshot.parent.mkdir()
    state = {"offset": 3, "state": {"receipt_key": key, "topics": {"a": [1]}}}
    write_atomically(OsFiles(), snapshot, json.dumps(state).encode())
    assert key not in run(snapshot).stdout and key in run(snapshot, "--full").stdout
    assert dumped(snapshot)[0]["content"]["state"]["topics"] == {"a": [1]}


def test_neither_is_the_key_that_proves_producer_ids(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def make() -> None:
        broker = Broker(config_for(data))
        await broker.start()
        await broker._catalog.snapshot()
        await broker.close()

    asyncio.run(make())
    journal, (snapshot,) = data / "logs/__metadata/0", data.glob("snapshots/__metadata")
    (made,) = [
        each for record in dumped(journal, "--full") for each in record["events"] if each["type"] == "id_key_made"
    ]
    for place in (journal, snapshot):
        assert made["key"] in run(place, "--full").stdout
        assert made["key"] not in run(place).stdout
        assert "(hidden; --full shows it)" in run(place).stdout


def test_nor_when_it_comes_from_an_earlier_version(tmp_path: Path) -> None:
    with tarfile.open(EARLIER) as archive:
        archive.extractall(tmp_path, filter="data")
    data = tmp_path / "data"

    async def convert() -> None:
        broker = Broker(config_for(data))
        await broker.start()
        await broker.close()

    asyncio.run(convert())
    journal = data / "logs/__metadata/0"
    (made,) = [
        each for record in dumped(journal, "--full") for each in record["events"] if each["type"] == "ids_converted"
    ]
    [key] = [each for each in made["ids"] if isinstance(each, str)]
    assert len(key) > 30 and key in run(journal, "--full").stdout
    assert key not in run(journal).stdout and "(hidden; --full shows it)" in run(journal).stdout


def test_files_that_are_none_of_a_data_folder_are_refused_and_an_empty_partition_is_not(
    data: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.tar").write_bytes(bytes(10_240))
    (tmp_path / "x.log").write_bytes(b"some other log")
    for path in (data / "LOCK", tmp_path / "a.tar", Path("/dev/null")):
        refused = run(path)
        assert refused.exit_code == 2 and "is not a file that dump knows" in refused.stderr, path
        assert "hint: Give a partition's folder" in refused.stderr
    folder = run(tmp_path)
    assert folder.exit_code == 2 and "is no partition's folder" in folder.stderr
    segment = sorted(partition(data).glob("*.log"))[0]
    (tmp_path / segment.name).write_bytes(segment.read_bytes())
    assert dumped(tmp_path) == dumped(segment)
    (tmp_path / "logs" / "__shards" / "0").mkdir(parents=True)
    empty = run(tmp_path / "logs" / "__shards" / "0")
    assert (empty.exit_code, empty.stdout) == (0, "") and "is empty" in empty.stderr


def test_small_files_are_readable(data: Path) -> None:
    points = dumped(data / "checkpoint")
    assert any(map(is_of_orders, points))
    assert dumped(data / "FORMAT") == [{"kind": "FORMAT", "content": FORMAT_VERSION}]
    # Its last line may be half written.
    traced = [each for path in data.glob("traces/*.jsonl") for each in dumped(path) if each["kind"] != "torn"]
    assert {each["event"] for each in traced} >= {"publish"}


def test_files_of_delays_and_producers_are_readable(data: Path, tmp_path: Path) -> None:
    pending = PendingDelays()
    pending.add(7, 1_800_000_000_000_000_000)
    write_atomically(OsFiles(), tmp_path / "delays", pending.dump(9))
    assert dumped(tmp_path / "delays") == [{"kind": "delay", "offset": 7, "due": "2027-01-15T08:00:00.000Z"}]


def test_what_is_damaged_is_shown_in_its_place(data: Path, tmp_path: Path) -> None:
    source = sorted(partition(data, "clicks").glob("*.log"))[-2]
    content = bytearray(source.read_bytes())
    right = dumped(source)
    content[right[2]["position"] + 60] ^= 1
    path = tmp_path / source.name
    path.write_bytes(content[:-1])
    result = run(path, "--json")
    assert result.exit_code == 5
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["kind"] for each in found[:4]] == ["message", "message", "damaged", "message"]
    assert (found[2]["position"], found[2]["size"]) == (right[2]["position"], right[2]["size"])
    assert found[-1]["kind"] == "torn" and found[-1]["position"] == right[-1]["position"]
    assert "damaged: " in run(path).stdout


def test_what_cannot_be_dumped_is_told_and_nothing_is_changed(data: Path, tmp_path: Path) -> None:
    missing = run(tmp_path / "nothing")
    assert missing.exit_code == 4 and "there is no file" in missing.stderr
    empty = run(tmp_path)
    assert empty.exit_code == 2 and "has no segments" in empty.stderr
    (tmp_path / "checkpoint").write_bytes(b"nonsense")
    assert run(tmp_path / "checkpoint").exit_code == 1
    (tmp_path / "copy").mkdir()
    segment = tmp_path / "copy" / "00000000000000000000.log"
    segment.write_bytes(sorted(partition(data).glob("*.log"))[0].read_bytes())
    before = files_of(tmp_path)
    dumped(tmp_path / "copy")
    assert files_of(tmp_path) == before
