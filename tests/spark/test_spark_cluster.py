"""A pipeline on a cluster: a master, two workers and their executors, each a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.testing import running_broker

MASTER = "local-cluster[2,1,1024]"
"""Two executors with a core and 1024 MiB each, started by Spark itself."""
MESSAGES, PER_BATCH = 600, 300
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONF = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}
PIPELINE = """
name: loud
source: {topics: in, maxMessagesPerTrigger: %d}
steps:
  - decode: {column: value, json: "amount DOUBLE, who STRING"}
  - select: ["key", "value.amount AS amount", "upper(value.who) AS who"]
  - sql: "SELECT /*+ REPARTITION(2, key) */ * FROM input"
quality:
  - {not_null: amount, otherwise: dead-letter}
  - {range: amount, min: 10, otherwise: drop}
sink: {topic: out}
"""


def home_of_its_own(folder: Path) -> Path:
    """Workers keep what they do where Spark is installed; this is the same Spark elsewhere."""
    home = folder / "spark"
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    return home


@pytest.mark.timeout(700)
def test_a_pipeline_runs_on_a_cluster_from_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "loud.yaml").write_text(PIPELINE % PER_BATCH)
    rows = [{"amount": number or None, "who": f"ada {number}"} for number in range(MESSAGES)]
    with running_broker() as broker, broker.client() as client:
        for topic in ("in", "out"):
            client.create_topic(topic, partitions=2)
        with client.producer() as producer:
            messages = [Outgoing(json.dumps(row).encode(), key=f"k{number}") for number, row in enumerate(rows)]
            producer.send_many("in", messages)
        command = [sys.executable, "-m", "goqueue", "pipeline", "run", "loud.yaml", "--json", "--master", MASTER]
        command += ["--brokers", broker.address, "--checkpoint", str(tmp_path / "checkpoint")]
        for name, value in CONF.items():
            command += ["--conf", f"{name}={value}"]
        environment = {**os.environ, "SPARK_HOME": str(home_of_its_own(tmp_path)), "SPARK_LOCAL_IP": "127.0.0.1"}
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=600, check=False, env=environment, cwd=tmp_path
        )
        assert ran.returncode == 0, ran.stderr[-3_000:]
        told = json.loads(ran.stdout)
        # Its executors had folders of their own, so it was a cluster indeed.
        assert sorted(each.name for each in (tmp_path / "spark" / "work").glob("app-*/*")) == ["0", "1"]
        found = sorted((record.key, record.value) for record in client.read("out"))
        dead = [record.key for record in client.read("loud.dlq")]
        assert client.transactions() == []
    assert dead == [b"k0"]
    wanted = [(b"k%d" % number, b'{"amount":%d.0,"who":"ADA %d"}' % (number, number)) for number in range(10, MESSAGES)]
    assert found == sorted(wanted)
    assert (told["numbers"]["messages_read"], told["numbers"]["rows_written"]) == (MESSAGES, MESSAGES - 10)
