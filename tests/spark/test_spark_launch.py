"""Where Spark runs: what spark-submit or Spark Connect were told goes before our own default."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from goqueue.testing import running_broker

JOB = """
from goqueue.spark import session

spark = session("job")
print("runs on", spark.sparkContext.master, spark.conf.get("spark.ui.showConsoleProgress"))
spark.stop()
"""
PIPELINE = """
from goqueue.spark.pipelines import Pipeline
from goqueue.spark.pipelines.running.summary import Summary

PIPELINE = Pipeline(name="where", run=lambda context: Summary({"master": context.spark.sparkContext.master}))
"""
COMMAND = "from goqueue.cli.main import main; main()"
CONNECTED = """
import sys
from goqueue.spark import session

spark = session("job")
options = {"brokers": sys.argv[1], "topics": "orders"}
orders = spark.read.format("goqueue").options(**options).load()
print("found", orders.filter("offset < 3").count(), orders.count(), type(spark).__module__)
copies = {"brokers": sys.argv[1], "topic": "copies"}
orders.limit(2).select("value").write.format("goqueue").mode("append").options(**copies).save()
spark.stop()
"""


def run(command: list[str], environment: dict[str, str]) -> str:
    paths = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **paths, **environment}
    )
    assert ran.returncode == 0, ran.stderr[-3_000:]
    return ran.stdout


@pytest.mark.usefixtures("java")
def test_a_job_runs_where_it_was_submitted_to(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    shown = "spark.ui.showConsoleProgress=true"
    said = run([submit, "--master", "local[3]", "--conf", shown, str(tmp_path / "job.py")], {})
    # The second number is how often a task may fail, which Spark takes from the master alone.
    assert "runs on local[3,4] true" in said


@pytest.mark.usefixtures("java")
def test_a_pipeline_runs_where_it_was_submitted_to_or_where_its_configuration_says(tmp_path: Path) -> None:
    (tmp_path / "where.py").write_text(PIPELINE)
    (tmp_path / "command.py").write_text(COMMAND)
    pipeline = ["pipeline", "run", str(tmp_path / "where.py"), "--checkpoint", str(tmp_path / "checkpoint")]
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[3]"]
    with running_broker() as broker:
        environment = {"GOQUEUE_BROKERS": broker.address}
        assert "local[3,4]" in run([*submit, str(tmp_path / "command.py"), *pipeline], environment)
        configured = [*pipeline, "--conf", "spark.master=local[2]"]
        assert "local[2,4]" in run([sys.executable, str(tmp_path / "command.py"), *configured], environment)


@pytest.mark.usefixtures("java")
def test_the_source_and_the_sink_work_over_spark_connect(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(CONNECTED)
    with running_broker() as broker, broker.client() as client:
        for topic in ("orders", "copies"):
            client.create_topic(topic, partitions=1)
        with client.producer() as producer:
            producer.send_many("orders", [f"value {number}" for number in range(10)])
        # Spark starts a server of its own in another process, and connects to it.
        said = run([sys.executable, str(tmp_path / "job.py"), broker.address], {"SPARK_REMOTE": "local[2]"})
        assert "found 3 10 pyspark.sql.connect.session" in said
        assert sum(1 for _ in client.read("copies")) == 2
