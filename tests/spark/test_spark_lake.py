"""Topics to a lake and back, with kills in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.spark.pipelines import archive, backfill, restore
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import PipelineFailed
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.lake import restoring
from goqueue.spark.pipelines.lake.lake import Lake
from goqueue.spark.pipelines.lake.lake_files import staged_files
from goqueue.spark.pipelines.lake.lake_log import TopicMark
from goqueue.spark.pipelines.lake.lake_tables import DeltaLake, IcebergLake, find_lake
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.summary import Summary

Messages = list[tuple[Any, ...]]


class Runs:
    """Runs pipelines against one lake."""

    def __init__(self, spark: SparkSession, broker: Any, folder: Path) -> None:
        self.spark, self.broker, self.lake = spark, broker, folder / "lake"
        self._jobs = folder / "jobs"

    def run(self, pipeline: Pipeline, **given: str) -> Summary:
        settings = Settings(pipeline.settings, {"lake": str(self.lake), **given})
        context = Context(pipeline.name, settings, self.broker.address, str(self._jobs), given_session=self.spark)
        assert pipeline.run is not None
        return pipeline.run(context)

    def send(self, topic: str, first: int, count: int) -> None:
        with self.broker.client.producer() as producer:
            producer.send_many(topic, [_message(number) for number in range(first, first + count)])

    def messages(self, topic: str) -> Messages:
        return [
            (each.partition, each.key, each.value, each.headers, each.priority, each.timestamp)
            for each in self.broker.client.read(topic)
        ]


def _message(number: int) -> Outgoing:
    headers = [("number", b"%d" % number), ("empty", b"")] if number % 3 else None
    value = None if number % 50 == 49 else b"value-%d" % number
    return Outgoing(value, key=b"key-%d" % (number % 7), headers=headers, priority=number % 5)


@pytest.fixture
def runs(spark: SparkSession, broker: Any, tmp_path: Path) -> Runs:
    return Runs(spark, broker, tmp_path)


def places(runs: Runs) -> list[tuple[str, int, int]]:
    """As any reader of Parquet files sees the lake: topic, partition, offset."""
    found = ds.dataset(runs.lake, format="parquet", partitioning="hive").to_table(["topic", "partition", "offset"])
    return sorted(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


def offsets(runs: Runs, topic: str) -> list[tuple[str, int, int]]:
    return sorted((topic, each.partition, each.offset) for each in runs.broker.client.read(topic))


def test_what_was_archived_over_kills_and_compacted_comes_back_as_it_was(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = runs.broker.topic(), runs.broker.topic(partitions=1)
    runs.send(topic, 0, 100)
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "finish", _fail_once_it_is_logged)
        with pytest.raises(Exception, match="killed here"):
            runs.run(archive.PIPELINE, topics=topic)
    assert not list(runs.lake.glob("topic=*"))

    # Another choice of topics, and the first one again: where a run begins is told by the lake and nothing else.
    runs.send(topic, 100, 40)
    runs.send(other, 0, 10)
    both = runs.run(archive.PIPELINE, topics=f"{topic},{other}", compact="false")
    assert both.numbers["messages archived"] == 40 + 10
    assert places(runs) == sorted(offsets(runs, topic) + offsets(runs, other))
    runs.send(topic, 140, 5)
    small = list(runs.lake.glob(f"topic={topic}/day=*/*/*.parquet"))
    merged = runs.run(archive.PIPELINE, pattern=topic)
    assert merged.numbers["messages archived"] == 5
    assert merged.numbers["small files merged"] > len(small)
    assert len(list(runs.lake.glob(f"topic={topic}/day=*/*/*.parquet"))) == 1
    assert places(runs) == sorted(offsets(runs, topic) + offsets(runs, other))
    assert not list((runs.lake / "_staging").iterdir())

    summary = runs.run(restore.PIPELINE, topic=topic, to=f"{topic}-back")
    assert summary.numbers["messages written"] == 145
    assert runs.messages(f"{topic}-back") == runs.messages(topic)
    done = runs.run(restore.PIPELINE, topic=topic, to=f"{topic}-back")
    assert done.numbers["messages written"] == 0
    assert "done before" in done.notes[0]
    with pytest.raises(PipelineFailed, match="not empty"):
        runs.run(restore.PIPELINE, topic=topic, to=f"{topic}-back", job="2")


def test_a_backfill_takes_what_fits_and_a_step_that_was_committed_is_not_written_again(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, target = runs.broker.topic(partitions=1), runs.broker.topic(partitions=3)
    runs.broker.client.schemas.register(f"{topic}-value", json.dumps(_ORDER), "JSON")
    with runs.broker.client.producer() as producer:
        producer.send_many(topic, [Outgoing(b'{"id": %d}' % number, key=b"%d" % (number % 4)) for number in range(20)])
    runs.run(archive.PIPELINE, topics=topic)
    columns = ds.dataset(runs.lake, format="parquet", partitioning="hive").schema.names
    assert {"decoded", "_corrupt", "value"} <= set(columns)
    chosen = {"topic": topic, "to": target, "filter": "get_json_object(string(value), '$.id') >= 5", "rate": "100000"}
    monkeypatch.setattr(restoring, "_STEP_MESSAGES", 10)
    with monkeypatch.context() as patch:
        patch.setattr(restoring.JobFile, "write", _fail_after_a_step(restoring.JobFile.write))
        with pytest.raises(RuntimeError, match="killed here"):
            runs.run(backfill.PIPELINE, **chosen)
    summary = runs.run(backfill.PIPELINE, **chosen)
    assert summary.numbers["steps"] == "2 of 2"
    found = [json.loads(each.value)["id"] for each in runs.broker.client.read(target)]
    assert sorted(found) == list(range(5, 20))


def test_a_topic_that_is_made_anew_while_a_run_goes_on_does_not_get_into_the_lake(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = runs.broker.topic(partitions=1)
    runs.send(topic, 0, 10)

    def made_anew_meanwhile(*given: Any) -> Any:
        runs.broker.client.delete_topic(topic)
        runs.broker.client.create_topic(topic, partitions=1)
        return staged_files(*given)

    monkeypatch.setattr(archive, "staged_files", made_anew_meanwhile)
    with pytest.raises(
        PipelineFailed, match=f"topic '{topic}' was deleted and made anew.*Archive it to another folder"
    ):
        runs.run(archive.PIPELINE, topics=topic, fail_on_data_loss="false")
    assert Lake(runs.lake).files(topic) == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_have_what_was_archived_and_know_how_far_it_goes(
    runs: Runs, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg", reason=f"{kind} is not installed")
    table_lake = DeltaLake if kind == "delta" else IcebergLake
    topic = runs.broker.topic()
    runs.send(topic, 0, 30)
    monkeypatch.setattr(table_lake, "_commit", _then_fail(table_lake._commit))
    with pytest.raises(Exception, match="killed here"):
        runs.run(archive.PIPELINE, topics=topic, format=kind)
    lake = find_lake(runs.lake)
    assert isinstance(lake, table_lake)
    table = lake._table(topic)
    rows = table.to_pyarrow_table() if kind == "delta" else table.scan().to_arrow()
    found = sorted(zip(*(rows[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True))
    assert found == offsets(runs, topic)
    assert sum(file.rows for file in lake.files(topic)) == 30
    info = runs.broker.client.describe_topic(topic)
    wanted = {number: part.latest_offset for number, part in enumerate(info.partitions)}
    assert lake.ends({topic: TopicMark(info.id, 2)}) == {topic: wanted}, "so the next run begins behind them"


_ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}}


def _fail_once_it_is_logged(self: Lake) -> None:
    if self.state.version:
        raise RuntimeError("killed here")


def _then_fail(function: Any) -> Any:
    def both(*given: Any) -> None:
        function(*given)
        raise RuntimeError("killed here")

    return both


def _fail_after_a_step(function: Any) -> Any:
    def either(self: Any, job: Any) -> None:
        if job.done:
            raise RuntimeError("killed here")
        function(self, job)

    return either
