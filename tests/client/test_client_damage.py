"""A message that fails its checksum: whoever reads it is told, and so are those who watch over the broker."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from behaviour.waiting import until

from goqueue.model.errors import CorruptData
from goqueue.testing import BrokerProcess, running_broker


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
