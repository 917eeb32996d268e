"""Tasks that fail, tasks that run twice, and queries that die around their commit: every message is written once.

A writer that fails on purpose stands in for kills, which take much longer; ``test_spark_kills`` has real ones.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StructField, StructType

from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.model.errors import InvalidRequest, TransactionConflict
from goqueue.spark.source.clients import client_for
from goqueue.spark.source.options import sink_options
from goqueue.spark.source.sink import BatchWriter, PreparedWrite, StreamWriter
from goqueue.spark.source.source import GoQueueSource

if TYPE_CHECKING:
    from tests.spark.conftest import SharedBroker  # type: ignore[import-not-found]

# Workers do not find this file: what is in it goes to them as it is.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MESSAGES, PER_BATCH = 300, 100
PATIENCE_S = 30.0


class Unlucky(StreamWriter):
    """Fails where ``plan`` says so, each time once: what is in ``folder`` tells what has happened already."""

    def __init__(self, *arguments: object, plan: str, folder: str) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._plan = plan.split()
        self._folder = Path(folder)

    def _is_time_for(self, what: str) -> bool:
        if what not in self._plan:
            return False
        try:
            (self._folder / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = list(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.getLocalProperty("streaming.sql.batchId") == "1":
            if self._is_time_for("die-after-sending"):
                return super().write(self._dying(batches))
            if self._is_time_for("fail-after-sending"):
                return super().write(_broken(batches))
            if self._is_time_for("run-twice"):
                super().write(iter(batches))
        return super().write(iter(batches))

    def _dying(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Its transaction is left open."""
        yield from batches
        client, deadline = client_for(self._options.brokers), time.monotonic() + PATIENCE_S
        while not any(
            each.state == "ongoing" and self._options.topic in {touched.topic for touched in each.partitions}
            for each in client.transactions()
        ):
            assert time.monotonic() < deadline, "nothing of what was sent has arrived"
        os._exit(1)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if batchId == 1 and self._is_time_for("die-before-the-commit"):
            raise RuntimeError("died before the commit")
        super().commit(messages, batchId)
        if batchId == 1 and self._is_time_for("die-behind-the-commit"):
            raise RuntimeError("died behind the commit")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        # Who was killed aborts nothing.
        if "abort-nothing" not in self._plan:
            super().abort(messages, batchId)


def _broken(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise RuntimeError("failed after everything was sent")


class UnluckySource(GoQueueSource):
    @classmethod
    def name(cls) -> str:
        return "unlucky"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        options = {name: value for name, value in self.options.items() if name not in ("plan", "folder")}
        return Unlucky(sink_options(options), schema, plan=self.options["plan"], folder=self.options["folder"])


class Copying:
    """A query that copies one topic to another, three micro-batches long."""

    def __init__(self, spark: SparkSession, broker: SharedBroker, folder: Path) -> None:
        spark.dataSource.register(UnluckySource)
        self.spark, self.broker, self.folder = spark, broker, folder
        self.source, self.out = broker.topic(), broker.topic()
        self.values = [b"%d" % number for number in range(MESSAGES)]
        with broker.client.producer() as producer:
            producer.send_many(self.source, [Outgoing(value, partition=int(value) % 2) for value in self.values])

    def run(self, plan: str) -> StreamingQuery:
        rows = (
            self.spark.readStream.format("goqueue")
            .options(brokers=self.broker.address, topics=self.source, maxMessagesPerTrigger=str(PER_BATCH))
            .load()
        )
        query = (
            rows.select("key", "value")
            .writeStream.format("unlucky")
            .options(brokers=self.broker.address, topic=self.out, plan=plan, folder=str(self.folder))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def happened(self) -> set[str]:
        return {each.name for each in self.folder.iterdir()} - {"checkpoint"}

    def open(self) -> list[str]:
        """Transactions that were meant for a micro-batch of the query, and have not ended."""
        return [
            each.state
            for each in self.broker.client.transactions()
            if self.out in {touched.topic for touched in each.partitions}
        ]

    def seen(self) -> tuple[int, list[str]]:
        """How many messages readers see, and what is open."""
        return len(list(self.broker.client.read(self.out))), self.open()

    def check(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while left := self.open():
            assert time.monotonic() < deadline, left
        assert sorted(record.value for record in self.broker.client.read(self.out)) == sorted(self.values)


@pytest.fixture
def copying(spark: SparkSession, broker: SharedBroker, tmp_path: Path) -> Copying:
    return Copying(spark, broker, tmp_path)


def test_rule_20_tasks_that_fail_or_die_or_run_twice_write_once(copying: Copying) -> None:
    plan = "die-after-sending fail-after-sending run-twice"
    copying.run(plan)
    assert copying.happened() == set(plan.split())
    copying.check()


def test_a_query_that_dies_around_its_commit_and_is_started_again_writes_once(copying: Copying) -> None:
    before, behind = "die-before-the-commit", "die-behind-the-commit"
    with pytest.raises(StreamingQueryException, match="died before the commit"):
        copying.run(before)
    assert copying.seen() == (PER_BATCH, [])
    (copying.folder / before).unlink()
    with pytest.raises(StreamingQueryException, match="died before the commit"):
        copying.run(f"{before} abort-nothing")
    assert copying.seen() == (PER_BATCH, ["prepared"] * 2)
    with pytest.raises(StreamingQueryException, match="died behind the commit"):
        # Spark aborts what is committed: that must change nothing.
        copying.run(behind)
    assert copying.seen() == (2 * PER_BATCH, [])
    copying.run("")
    copying.check()


# Without Spark: what attempts do that are too late


def written(broker: SharedBroker, topic: str, key: str, batches: Iterator[pa.RecordBatch]) -> PreparedWrite:
    """By one attempt of one task."""
    found = writer(broker, topic, key).write(batches)
    assert isinstance(found, PreparedWrite)
    return found


def writer(broker: SharedBroker, topic: str, key: str) -> BatchWriter:
    options = sink_options({"brokers": broker.address, "topic": topic, "commitkey": key})
    return BatchWriter(options, StructType([StructField("value", BinaryType())]))


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values)})


def test_an_attempt_that_is_overtaken_while_it_writes_is_passed_over(broker: SharedBroker) -> None:
    topic, taken = broker.topic(), []

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows(b"a", b"b")
        # Another run of the same is done with it all.
        won = written(broker, topic, topic, iter([rows(b"a", b"b"), rows(b"c")]))
        writer(broker, topic, topic).commit([won])
        taken.append(1)
        yield rows(b"c")
        taken.append(2)

    late = written(broker, topic, topic, slow())
    assert (late.transactions, taken) == ((), [1, 2])
    writer(broker, topic, topic).commit([late])
    assert sorted(record.value for record in broker.client.read(topic)) == [b"a", b"b", b"c"]


def test_an_attempt_that_comes_behind_the_commit_writes_nothing_and_takes_all_rows(broker: SharedBroker) -> None:
    topic = broker.topic()
    made = [written(broker, topic, topic, iter([rows(value)])) for value in (b"a", b"b")]
    writer(broker, topic, topic).commit([*made])
    again = iter([rows(b"a"), rows(b"b")])
    assert written(broker, topic, topic, again) == PreparedWrite(topic, (), 2)
    assert list(again) == []
    # Neither another commit nor an abort of what is committed changes anything.
    writer(broker, topic, topic).commit([*made])
    writer(broker, topic, topic).abort([*made, None])
    uncommitted = broker.client.read(topic, isolation="read_uncommitted")
    assert sorted(record.value for record in uncommitted) == [b"a", b"b"]


def test_other_rows_under_a_key_that_was_used_are_an_error_and_not_lost_without_a_word(broker: SharedBroker) -> None:
    """As when a checkpoint was restored from an older copy: its micro-batches have the same numbers and other rows."""
    topic, key = broker.topic(), f"{broker.topic()}#7"
    writer(broker, topic, key).commit([written(broker, topic, key, iter([rows(b"a", b"b")]))])
    other = written(broker, topic, key, iter([rows(b"c", b"d", b"e")]))
    with pytest.raises(InvalidRequest, match=r"2 messages were committed .* there are 3 rows: the checkpoint"):
        writer(broker, topic, key).commit([other])
    options = sink_options({"brokers": broker.address, "topic": topic, "commitKey": key, "trustCommitted": "true"})
    BatchWriter(options, StructType([StructField("value", BinaryType())])).commit([other])
    with pytest.raises(TransactionConflict, match="a later micro-batch of this query was written"):
        written(broker, topic, key.replace("#7", "#6"), iter([rows(b"x")]))
    assert [record.value for record in broker.client.read(topic)] == [b"a", b"b"]


def test_a_write_that_is_given_up_leaves_no_room_for_tasks_that_are_still_at_work(broker: SharedBroker) -> None:
    topic = broker.topic()
    options = sink_options({"brokers": broker.address, "topic": topic})
    given_up = BatchWriter(options, StructType([StructField("value", BinaryType())]))
    unfinished = given_up.write(iter([rows(b"a")]))
    given_up.abort([None])
    assert isinstance(unfinished, PreparedWrite) and unfinished.transactions
    late = given_up.write(iter([rows(b"b")]))
    assert isinstance(late, PreparedWrite) and not late.transactions
    uncommitted = broker.client.read(topic, isolation="read_uncommitted")
    assert b"b" not in {record.value for record in uncommitted}
    assert not list(broker.client.read(topic))
