"""What the pages about the lake and about looking back show, run as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset
import pytest
from behaviour.waiting import until
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from goqueue.cli.app import app
from goqueue.spark.pipelines.running.context import Context
from goqueue.testing import BrokerProcess, running_broker

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def own_broker() -> Iterator[BrokerProcess]:
    """The pages name their topics, and so may others."""
    with running_broker() as broker:
        yield broker


@pytest.fixture
def shown(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, dict[str, Path]], dict[str, str]]:
    """Runs every command of a page, with folders of ours for those on it; what each printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOQUEUE_BROKERS", own_broker.address)
    # The session is that of all tests.
    monkeypatch.setattr(Context, "close", lambda self: None)

    def run(page: str, folders: dict[str, Path]) -> dict[str, str]:
        text = (DOCS / page).read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL)
        printed = {}
        for command in "".join(blocks).replace("\\\n", "").splitlines():
            ours = command
            for theirs, folder in folders.items():
                ours = ours.replace(theirs, str(folder))
            result = CliRunner().invoke(app, shlex.split(ours)[1:])
            assert result.exit_code == 0, f"{ours}\n{result.stdout}\n{result.stderr}"
            printed[command] = result.stdout
        return printed

    return run


def test_the_lake(
    shown: Callable[[str, dict[str, Path]], dict[str, str]],
    spark: SparkSession,
    own_broker: BrokerProcess,
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    with own_broker.client() as client:
        for topic in ("orders", "refunds"):
            client.create_topic(topic, partitions=2)
            with client.producer() as producer:
                producer.send_many(topic, [b"%s %d" % (topic.encode(), number) for number in range(100)])
        assert len(shown("lake.md", {"/data/lake": lake})) == 3
        assert sorted(record.value for record in client.read("orders-2026")) == sorted(
            b"orders %d" % number for number in range(100)
        )
        # All of them are of the normal lane, which the filter leaves out.
        assert sum(1 for _ in client.read("orders")) == 100
    for line in re.findall(r"^((?:spark|pyarrow)\..*)$", (DOCS / "lake.md").read_text(), re.MULTILINE):
        found = eval(line.replace("/data/lake", str(lake)), {"spark": spark, "pyarrow": pyarrow})
        assert "value" in (found.columns if line.startswith("spark") else found.schema.names)


def test_looking_back(
    shown: Callable[[str, dict[str, Path]], dict[str, str]], own_broker: BrokerProcess, tmp_path: Path
) -> None:
    with own_broker.client() as client:
        for topic, group in (("parcels", "senders"), ("orders", "billing")):
            client.create_topic(topic, partitions=1)
            with client.producer() as producer:
                producer.send_many(topic, [b"%d" % number for number in range(30)])
            with client.consumer(group, [topic], kind="shared") as consumer:
                for message in consumer.poll(20, timeout=60):
                    is_lost = topic == "parcels" and message.offset % 2
                    message.reject(f"no customer {message.offset} in 'north'") if is_lost else message.ack()
        until(lambda: sum(1 for _ in client.read("parcels.dlq")) == 10)
        own_broker.stop()
    backup = tmp_path / "backup"
    shutil.copytree(own_broker.data, backup)
    with running_broker(own_broker.data, grpc_port=own_broker.grpc_port):
        printed = shown("analysis.md", {"/var/lib/goqueue": own_broker.data, "/backup/goqueue": backup})
    assert len(printed) == 6
    first, *_, last = printed.values()
    assert "no customer <n> in <text>" in first
    assert "20" in last
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")
