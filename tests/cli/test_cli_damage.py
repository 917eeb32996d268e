"""``goqueue damage`` from a flipped byte to a broker that is well again."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.testing import BrokerProcess, running_broker


def said(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["damage", *arguments], env={"GOQUEUE_SERVER": broker.url})


def test_a_message_that_readers_met_as_damaged_is_told_until_its_loss_is_accepted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_broker(data) as broker, broker.client() as client, client.producer() as producer:
        client.create_topic("orders", partitions=1)
        producer.send_many("orders", [f"order {number}" for number in range(10)])
        assert (said(broker, "list").exit_code, said(broker, "list").stderr) == (0, "nothing is lost\n")
        broker.stop()
    (segment,) = data.glob("logs/orders~*/0/*.log")
    segment.write_bytes(segment.read_bytes().replace(b"order 4", b"order $"))

    with running_broker(data) as broker:
        assert CliRunner().invoke(app, ["consume", "orders"], env={"GOQUEUE_SERVER": broker.url}).exit_code
        for arguments in (("list",), ("acknowledge", "orders", "--yes")):
            told = said(broker, *arguments)
            assert told.exit_code == 5
            assert "orders: 1 message fails its checksum; /health names the offsets" in told.stderr
            assert "goqueue doctor --repair" in told.stderr and "nothing is lost" not in told.stderr
        machine = said(broker, "list", "--json")
        assert (machine.exit_code, json.loads(machine.stdout)) == (5, {"damage": [], "total": 0})
        broker.stop()

    assert CliRunner().invoke(app, ["doctor", "--data", str(data), "--repair", "--yes"]).exit_code == 5
    with running_broker(data) as broker:
        noted = said(broker, "list")
        assert noted.exit_code == 5 and noted.stdout.splitlines()[1].split()[:4] == ["orders", "0", "4", "4"]
        assert said(broker, "acknowledge", "orders", "--yes").exit_code == 0
        assert (said(broker, "list").exit_code, said(broker, "list").stderr) == (0, "nothing is lost\n")
