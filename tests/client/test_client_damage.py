"""A message that is damaged or lost: whoever reads it is told, and so are those who watch over the broker."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from behaviour.waiting import until
from typer.testing import CliRunner

from goqueue.cli.app import app
from goqueue.model.errors import CorruptData
from goqueue.testing import BrokerProcess, running_broker
from goqueue.wire.batch import damaged_places, parse_batch
from goqueue.wire.frame import HEADER_SIZE


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The third of five messages has a flipped bit."""
    with running_broker(tmp_path / "data") as broker:
        with broker.client() as client:
            client.create_topic("t", partitions=1)
            with client.producer() as producer:
                producer.send_many("t", [f"value {number}" for number in range(5)])
        (path,) = (broker.data / "logs").glob("t~*/0/*.log")
        path.write_bytes(path.read_bytes().replace(b"value 2", b"value 3"))
        yield broker


def health_of(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(f"{broker.url}/health", timeout=60) as answer:
        status: str = json.load(answer)["status"]
    return status


def test_the_broker_knows_of_damage_that_a_reader_has_met(damaged: BrokerProcess) -> None:
    with damaged.client() as client:
        records = client.read("t")
        assert [next(records).value, next(records).value] == [b"value 0", b"value 1"]
        with pytest.raises(CorruptData, match="offset 2 of t/0 fails its checksum"):
            next(records)
    until(lambda: health_of(damaged) == "degraded")
    assert any("messages fail their checksum" in line and "[2]" in line for line in damaged.log)


async def test_also_of_what_was_met_in_a_batch(damaged: BrokerProcess) -> None:
    async with damaged.async_client() as client:
        async for batch in client.read_batches("t"):
            with pytest.raises(CorruptData):
                batch.values()
    until(lambda: health_of(damaged) == "degraded")


FRAME = HEADER_SIZE + len("value 0")
STEP_OVER = "fails its checksum"


def published(broker: BrokerProcess) -> Path:
    """Five messages, and the file that they are in."""
    with broker.client() as client:
        client.create_topic("t", partitions=1)
        with client.producer(idempotent=False) as producer:
            producer.send_many("t", [f"value {number}" for number in range(5)])
    (path,) = (broker.data / "logs").glob("t~*/0/*.log")
    assert path.stat().st_size == 5 * FRAME
    return path


def flip(path: Path, at: int, mask: int = 0x04) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= mask
    path.write_bytes(content)


def asked(broker: BrokerProcess, path: str, **headers: str) -> tuple[bytes, dict[str, str]]:
    request = urllib.request.Request(f"{broker.url}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read(), dict(answer.headers)


def by_json(broker: BrokerProcess) -> tuple[list[int], list[int]]:
    read = json.loads(asked(broker, "/topics/t/partitions/0/messages")[0])
    assert read["next_offset"] == 5
    return [each["offset"] for each in read["messages"]], read.get("damaged", [])


def by_frames(broker: BrokerProcess) -> tuple[list[int], list[int]]:
    at, whole, damaged = 0, [], []
    while at < 5:
        path = f"/topics/t/partitions/0/messages?offset={at}"
        body, headers = asked(broker, path, Accept="application/octet-stream")
        run = parse_batch(body)
        hurt = damaged_places(run, run.columns())
        for place, offset in enumerate(run.columns()["offset"].tolist()):
            (damaged if place in hurt else whole).append(offset)
        at = int(headers["goqueue-next-offset"])
    return whole, damaged


def by_client(broker: BrokerProcess) -> tuple[list[int], list[int]]:
    at, whole, damaged = 0, [], []
    with broker.client() as client:
        while True:
            try:
                for record in client.read("t", 0, at):
                    whole.append(record.offset)
                    at = record.offset + 1
                return whole, damaged
            except CorruptData as error:
                assert STEP_OVER in str(error)
                assert f"offset {at} of" in str(error)
                damaged.append(at)
                at += 1


def by_stream(broker: BrokerProcess) -> tuple[list[int], list[int]]:
    """A consumer goes no further than where it meets damage, and commits nothing behind it."""
    whole: list[int] = []
    with broker.client() as client:
        try:
            with client.consumer("readers", "t", mode="stream", auto_commit=False) as consumer:
                for record in consumer:
                    whole.append(record.offset)
                    consumer.commit(record)
        except CorruptData:
            pass
        (committed,) = client.group_offsets("readers").values()
        assert committed == whole[-1] + 1
        client.delete_group("readers")
    return whole, [committed]


def posted(broker: BrokerProcess, path: str, body: dict[str, object]) -> Any:
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{broker.url}{path}", data, headers), timeout=60) as answer:
        return json.load(answer)


def by_http_stream(broker: BrokerProcess) -> tuple[list[int], list[int]]:
    settings = {"mode": "stream"}
    member = posted(broker, "/groups/web/join", {"client_id": "c", "topics": ["t"], "settings": settings})["member_id"]
    at, whole, damaged = 0, [], []
    while at < 5:
        found = json.loads(asked(broker, f"/groups/web/poll?member_id={member}")[0])
        whole += [each["offset"] for each in found["messages"]]
        damaged += found.get("damaged", {}).get("t", {}).get("0", [])
        at = found["next_offsets"]["t"]["0"]
    posted(broker, "/groups/web/leave", {"member_id": member})
    with broker.client() as client:
        client.delete_group("web")
    return whole, damaged


READERS: list[Callable[[BrokerProcess], tuple[list[int], list[int]]]] = [by_json, by_frames, by_client]


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x40])
def test_a_flipped_bit_in_an_offset_is_damage_to_every_reader(plain: BrokerProcess, mask: int) -> None:
    """Of 2 it makes 3, 0 or 66. The checksum does not cover it."""
    path = published(plain)
    assert [read(plain) for read in READERS] == [([0, 1, 2, 3, 4], [])] * 3
    assert health_of(plain) == "ok"
    flip(path, 2 * FRAME + 15, mask)
    assert by_stream(plain) == ([0, 1], [2])
    assert by_http_stream(plain) == ([0, 1, 3, 4], [2])
    until(lambda: health_of(plain) == "degraded")
    assert [read(plain) for read in READERS] == [([0, 1, 3, 4], [2])] * 3


def ran(broker: BrokerProcess, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["damage", *arguments, "--server", broker.url, "--json"])


def test_what_a_start_has_taken_out_is_told_of_until_somebody_accepts_it(tmp_path: Path) -> None:
    """The process is killed before and after each step of that."""
    with running_broker(tmp_path / "data") as broker:
        path = published(broker)
        broker.kill()
    # Nobody vouches for the log yet, and a torn write would look otherwise.
    flip(path, 2 * FRAME + HEADER_SIZE + 3)
    flip(path, 4 * FRAME + HEADER_SIZE + 3)
    for _ in range(2):
        with running_broker(tmp_path / "data") as broker:
            assert list(path.parent.glob("*.damaged-*"))
            assert health_of(broker) == "degraded"
            assert "t/0: offset 2 is gone" in asked(broker, "/health")[0].decode()
            assert [read(broker) for read in READERS] == [([0, 1, 3], [2, 4])] * 3
            assert by_stream(broker) == ([0, 1], [2])
            assert by_http_stream(broker) == ([0, 1, 3], [2, 4])
            listed = ran(broker, "list")
            found = [(each["first_offset"], each["last_offset"]) for each in json.loads(listed.stdout)["damage"]]
            assert (listed.exit_code, found) == (5, [(2, 2), (4, 4)])
            broker.kill()
    with running_broker(tmp_path / "data") as broker:
        accepted = ran(broker, "acknowledge", "t", "--yes")
        assert (accepted.exit_code, json.loads(accepted.stdout)["total"]) == (0, 2)
        assert health_of(broker) == "ok"
        broker.kill()
    with running_broker(tmp_path / "data") as broker:
        assert health_of(broker) == "ok"
        assert [read(broker) for read in READERS] == [([0, 1, 3], [])] * 3
        assert (ran(broker, "list").exit_code, json.loads(ran(broker, "list", "--all").stdout)["total"]) == (0, 2)
        with broker.client() as client, client.producer() as producer:
            # What is lost was given out once, and is not given out again.
            assert producer.send("t", "next").result().offset == 5
