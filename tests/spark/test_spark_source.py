"""Topics read by Spark, over gRPC and from their files: the same rows as the Python client reads."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from behaviour.waiting import until
from doubles.standing_still import standing_still
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from goqueue.client.consumer.reader import Record
from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.client.sync import Client
from goqueue.model.errors import GoQueueError, GroupConflict, OffsetOutOfRange, TopicNotFound
from goqueue.spark.source.file_transport import FileSplit
from goqueue.spark.source.options import source_options
from goqueue.spark.source.positions import Range, TopicPartition
from goqueue.spark.source.reading import StreamReader
from goqueue.spark.source.source import SCHEMA, GoQueueSource
from goqueue.spark.source.transports import BrokerSplit, Split
from goqueue.storage.reader.reader import FolderReader
from goqueue.testing import BrokerProcess, running_broker

if TYPE_CHECKING:
    from tests.spark.conftest import SharedBroker  # type: ignore[import-not-found]

BEGIN_NS = 1_700_000_000 * 10**9
BEGIN = "2023-11-14T22:13:20Z"
LATER = "2023-11-14T22:14:20Z"
COUNT = 200
PATIENCE_S = 200
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def messages(count: int = COUNT) -> list[Outgoing]:
    """Of every kind, one a second, by turns in partitions 0 and 1."""
    return [
        Outgoing(
            None if number % 50 == 49 else f"value {number}",
            key=f"key-{number % 50}" if number % 50 == 49 or number % 2 else None,
            headers=[("traceparent", PARENT), ("n", str(number))] if number % 3 == 0 else None,
            priority=number % 5,
            timestamp=BEGIN_NS + number * 10**9 + number,
            partition=number % 2,
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def orders(broker: SharedBroker) -> str:
    topic: str = broker.topic(2)
    with broker.client.producer() as producer:
        producer.send_many(topic, messages())
    return topic


class Reading:
    """Reads with Spark what a broker has."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        self.spark = spark
        self.address = address

    def frame(self, schema: str | None = None, **options: object) -> DataFrame:
        reader = self.spark.read.format("goqueue").options(**{"brokers": self.address} | options)  # type: ignore[arg-type]
        return (reader.schema(schema) if schema else reader).load()

    def offsets(self, **options: object) -> list[tuple[int, int]]:
        return places(self.frame(columns="partition,offset", **options).collect())


@pytest.fixture
def reading(spark: SparkSession, broker: SharedBroker) -> Reading:
    return Reading(spark, broker.address)


def places(rows: list[Row]) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows)


def by_place(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def by_the_client(client: Client, *topics: str, **options: Any) -> list[Row]:
    return by_place([_row(record) for topic in topics for record in client.read(topic, **options)])


def _row(record: Record) -> Row:
    # Spark hands out times without a zone, in that of the process.
    return Row(*SCHEMA.fieldNames())(
        record.key,
        record.value,
        [Row(name=name, value=value) for name, value in record.headers],
        record.topic,
        record.partition,
        record.offset,
        record.timestamp.astimezone().replace(tzinfo=None),
        record.priority,
        record.trace_id,
    )


# Batches


def test_a_batch_holds_every_message_as_the_client_reads_it(
    reading: Reading, broker: SharedBroker, orders: str
) -> None:
    frame = reading.frame(topics=orders)
    assert frame.schema == SCHEMA
    rows = by_place(frame.collect())
    assert rows == by_the_client(broker.client, orders)
    assert len(rows) == COUNT
    assert [row.value for row in rows].count(None) == COUNT // 50


def test_columns_are_chosen_by_schema_or_by_option(reading: Reading, orders: str) -> None:
    frame = reading.frame("offset BIGINT, trace_id STRING, value BINARY", topics=orders)
    rows = frame.filter("offset = 0").collect()
    assert frame.columns == ["offset", "trace_id", "value"]
    assert {row.value for row in rows} == {b"value 0", b"value 1"}
    assert PARENT.split("-")[1] in {row.trace_id for row in rows}
    assert reading.frame(topics=orders, columns="priority,key").columns == ["priority", "key"]


def test_a_range_is_given_by_offsets_or_by_instants(reading: Reading, orders: str) -> None:
    half = COUNT // 2
    given = {
        "startingPosition": f'{{"{orders}": {{"0": 90, "1": 97}}}}',
        "endingPosition": f'{{"{orders}": {{"0": 92}}}}',
    }
    # A partition that is not named is read to its end.
    assert reading.offsets(topics=orders, **given) == [(0, 90), (0, 91), (1, 97), (1, 98), (1, 99)]
    by_time = reading.offsets(topics=orders, startingPosition=LATER, endingPosition="2023-11-14T22:14:24Z")
    assert by_time == [(0, 30), (0, 31), (1, 30), (1, 31)]
    assert reading.offsets(topics=orders, endingPosition="1970-01-01T00:00:00Z") == []
    assert reading.offsets(topics=orders, startingPosition="latest") == []
    assert len(reading.offsets(topics=orders, startingPosition="1960-01-01T00:00:00Z")) == 2 * half


def test_what_cannot_be_read_is_refused_with_what_would_be_right(broker: SharedBroker, orders: str) -> None:
    def refused(schema: StructType = SCHEMA, **options: str) -> str:
        source = GoQueueSource({"brokers": broker.address, "topics": orders} | options)
        with pytest.raises(GoQueueError) as error:
            source.reader(schema).partitions()
        return str(error.value)

    assert "topic 'nope' does not exist" in refused(topics="nope")
    back = {"startingPosition": f'{{"{orders}": {{"0": 9}}}}', "endingPosition": f'{{"{orders}": {{"0": 5}}}}'}
    assert f"{orders}/0 would be read from offset 9 back to 5" in refused(**back)
    far = f'{{"{orders}": {{"0": 5000}}}}'
    assert f"{orders}/0 ends at offset 100 and 5000 is asked for" in refused(startingPosition=far)
    wrong = StructType([StructField("value", StringType())])
    assert "column value is binary, and the schema says string; read it as it is and cast it" in refused(wrong)
    never_null = StructType([StructField("value", BinaryType(), nullable=False)])
    assert "column value can be null (of a tombstone), and the schema says NOT NULL; leave that out" in refused(
        never_null
    )
    unknown = StructType([StructField("valeu", BinaryType())])
    assert "there is no column 'valeu'; there are key, value" in refused(unknown)


def test_an_error_of_the_source_is_readable_in_what_spark_raises(reading: Reading, spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r"TopicNotFound: no topic fits the pattern 'nope-\.\*'"):
        reading.frame(topicPattern="nope-.*").collect()


def test_a_pattern_reads_all_topics_that_fit_it_as_a_whole(reading: Reading, broker: SharedBroker) -> None:
    for name in ("fits-1", "fits-2", "fits-2-not"):
        broker.client.create_topic(name, partitions=1)
        with broker.client.producer() as producer:
            producer.send_many(name, [name])
    found = reading.frame(topicPattern="fits-.|__.*").select("topic", "value").collect()
    assert sorted(tuple(row) for row in found) == [("fits-1", b"fits-1"), ("fits-2", b"fits-2")]


def test_partitions_are_split_over_as_many_tasks_as_are_asked_for(reading: Reading, orders: str) -> None:
    """Ten for two partitions."""
    frame = reading.frame(topics=orders, minPartitions=10).filter("partition = 0")
    rows = frame.selectExpr("spark_partition_id() AS task", "partition", "offset").collect()
    assert places(rows) == [(0, offset) for offset in range(100)]
    assert list(Counter(row.task for row in rows).values()) == [20] * 5


# Transactions, gaps and files: a broker that cleans up every moment, and what it leaves behind


@pytest.fixture(scope="module")
def cleaning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Client]]:
    settings = {
        "storage.cleanup_interval_ms": "100ms",
        "storage.checkpoint_interval_ms": "100ms",
        "storage.compaction_min_dirty_ratio": "0.01",
    }
    with running_broker(tmp_path_factory.mktemp("cleaning"), settings=settings) as process, process.client() as client:
        yield process, client


def is_compacted(process: BrokerProcess, client: Client, topic: str) -> bool:
    """Whether no key occurs twice below the segment that is written to: nothing changes until that is sealed."""
    folder = FolderReader(process.data).topic(topic).folder / "0"
    active = max(int(path.stem) for path in folder.glob("*.log"))
    keys = [record.key for record in client.read(topic) if record.offset < active]
    return bool(keys) and len(keys) == len(set(keys))


def test_files_and_broker_give_the_same_rows_of_transactions_and_compacted_topics(
    spark: SparkSession, cleaning: tuple[BrokerProcess, Client], tmp_path: Path
) -> None:
    process, client = cleaning
    client.create_topic("deeds", partitions=1)
    client.create_topic("states", partitions=1, segment_bytes="64KiB", cleanup="compact")
    with client.producer() as producer:
        for _ in range(4):
            # A batch each, and so a segment each: only what is sealed is compacted.
            producer.send_many("states", [Outgoing(bytes(900), key=f"k{number % 7}") for number in range(100)])
        producer.send_many("deeds", ["plain"])
        with producer.transaction() as done:
            done.send_many("deeds", ["committed 1", "committed 2"])
        called_off = producer.begin()
        called_off.send_many("deeds", ["aborted"])
        called_off.abort()
        producer.send_many("deeds", ["behind"])
    # Compaction goes on, as segments are sealed, until only the last one has more than one message of a key.
    until(lambda: is_compacted(process, client, "states"))
    undecided = client.producer()
    still_open = undecided.begin()
    still_open.send_many("deeds", ["open"])
    grpc = Reading(spark, process.address)
    beside = {"topics": "deeds,states", "path": process.data}
    try:
        committed = [b"plain", b"committed 1", b"committed 2", b"behind"]
        shown = by_place(grpc.frame(topics="deeds,states").collect())
        assert shown == by_the_client(client, "deeds", "states")
        assert [row.value for row in shown if row.topic == "deeds"] == committed
        assert by_place(grpc.frame(**beside).collect()) == shown
        everything = by_the_client(client, "deeds", isolation="read_uncommitted")
        assert [row.value for row in everything] == [*committed[:3], b"aborted", b"behind", b"open"]
        for way in ({"topics": "deeds"}, beside | {"topics": "deeds"}):
            assert by_place(grpc.frame(**way, isolation="read_uncommitted").collect()) == everything
        # Only the broker knows how far its files may be read.
        with pytest.raises(AnalysisException, match=r"a broker is using .*; give its address in the option brokers"):
            spark.read.format("goqueue").options(**beside).load().collect()
        copy = tmp_path / "copy"
        with standing_still(process):
            shutil.copytree(process.data, copy, ignore=shutil.ignore_patterns("LOCK"))
        alone = spark.read.format("goqueue").options(path=copy, topics="deeds,states", minPartitions=6).load()
        assert by_place(alone.collect()) == shown
    finally:
        still_open.abort()
        undecided.close()


def numbers(offsets: Any) -> dict[str, dict[str, int]]:
    """Without the ids of the topics."""
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {topic: {at: each for at, each in of.items() if at != "id"} for topic, of in found.items()}


def planned(reader: StreamReader, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[int]:
    """The offsets that tasks would read, by the reader's own means and without Spark."""
    found = []
    for split in reader.partitions(start, end):
        assert isinstance(split, Split)
        found += [offset for run in split.read() for offset in run.columns()["offset"].tolist()]
    return found


def test_a_loss_that_was_accepted_is_no_news_to_the_group(
    broker: SharedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.topic(1)
    with broker.client.producer() as producer:
        producer.send_many(topic, ["a", "b", "c"])
    broker.client.purge_topic(topic)
    given = {"brokers": broker.address, "topics": topic, "group": f"shown-{topic}", "failOnDataLoss": "false"}
    reader = StreamReader(source_options(given, streaming=True), SCHEMA)
    assert numbers(reader.latestOffset({topic: {"0": 1}, "gone": {"0": 1}}, ReadAllAvailable()))[topic] == {"0": 3}
    assert [each.committed for each in broker.client.describe_group(f"shown-{topic}").partitions] == [3]
    assert caplog.text == ""


def test_messages_that_retention_took_fail_a_stream_or_are_passed_over(
    spark: SparkSession, cleaning: tuple[BrokerProcess, Client], tmp_path: Path
) -> None:
    process, client = cleaning
    client.create_topic("short", partitions=1, segment_bytes="64KiB", retention_bytes="1MiB")
    with client.producer() as producer:
        producer.send_many("short", [bytes(9_000)] * 300)
    # Retention goes on, a few segments at a time, until a mebibyte is left: only then does the earliest offset stay.
    until(lambda: client.describe_topic("short").partitions[0].earliest_offset > 300 - (1 << 20) // 9_000)
    bounds = client.describe_topic("short").partitions[0]
    earliest, end = bounds.earliest_offset, bounds.latest_offset
    text = f"messages of short/0 are gone: offset 7 is asked for and the earliest is {earliest} .*failOnDataLoss=false"

    def reader(**options: str) -> StreamReader:
        given = {"brokers": process.address, "topics": "short", "maxMessagesPerTrigger": "10"} | options
        return StreamReader(source_options(given, streaming=True), SCHEMA)

    start = {"short": {"0": 7}}
    with pytest.raises(OffsetOutOfRange, match=text):
        reader().latestOffset(start, ReadMaxRows(10))
    with pytest.raises(OffsetOutOfRange, match=text):
        reader().partitions(start, {"short": {"0": end}})
    for way in ({}, {"path": str(process.data)}):
        lenient = reader(failOnDataLoss="false", **way)
        # The first trigger is spent on what is there, not on what is gone.
        first = lenient.latestOffset(start, ReadMaxRows(10))
        assert numbers(first) == {"short": {"0": earliest + 10}}
        assert planned(lenient, start, first) == list(range(earliest, earliest + 10))
    query = stream(spark, tmp_path, [], brokers=process.address, topics="short", startingPosition='{"short": {"0": 7}}')
    with pytest.raises(StreamingQueryException, match=text):
        query.awaitTermination(PATIENCE_S)


def test_rule_3_another_topic_of_the_same_name_is_not_taken_for_the_one_that_was_read(broker: SharedBroker) -> None:
    """Be it as long as the first one was."""
    topic = broker.topic(1)
    given = {"brokers": broker.address, "topics": topic}
    with broker.client.producer() as producer:
        producer.send_many(topic, ["old"] * 3)
        reader = StreamReader(source_options(given, streaming=True), SCHEMA)
        read = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        broker.client.delete_topic(topic)
        broker.client.create_topic(topic, partitions=1)
        producer.send_many(topic, ["new"] * 5)
    with pytest.raises(OffsetOutOfRange, match=f"topic '{topic}' was deleted and made anew"):
        reader.latestOffset(read, ReadAllAvailable())
    lenient = StreamReader(source_options(given | {"failOnDataLoss": "false"}, streaming=True), SCHEMA)
    assert planned(lenient, read, lenient.latestOffset(read, ReadAllAvailable())) == [0, 1, 2, 3, 4]


def test_a_query_does_not_move_a_group_that_others_read_by(broker: SharedBroker) -> None:
    topic = broker.topic(1)
    with broker.client.consumer("readers-of-their-own", [topic], mode="stream"):
        given = {"brokers": broker.address, "topics": topic, "group": "readers-of-their-own"}
        with pytest.raises(GroupConflict, match="in use by members; a query shows its offsets in a group of its own"):
            StreamReader(source_options(given, streaming=True), SCHEMA).initialOffset()


def test_a_topic_that_was_made_anew_is_noticed_at_once(broker: SharedBroker) -> None:
    """Else nothing would be read until it is as long as it was, and then not from its beginning."""
    topic = broker.topic(1)
    with broker.client.producer() as producer:
        producer.send_many(topic, ["a", "b", "c"])

    def reader(**options: str) -> StreamReader:
        given = {"brokers": broker.address, "topics": topic} | options
        return StreamReader(source_options(given, streaming=True), SCHEMA)

    read = {topic: {"0": 10}}
    with pytest.raises(GoQueueError, match=f"{topic}/0 ends at offset 3 and 10 is asked for: the topic was made anew"):
        reader().latestOffset(read, ReadAllAvailable())
    lenient = reader(failOnDataLoss="false")
    assert numbers(lenient.latestOffset(read, ReadAllAvailable())) == {topic: {"0": 3}}
    assert planned(lenient, read, {topic: {"0": 3}}) == []
    with broker.client.producer() as producer:
        producer.send_many(topic, ["d"])
    assert planned(lenient, {topic: {"0": 3}}, lenient.latestOffset({topic: {"0": 3}}, ReadAllAvailable())) == [3]


def test_a_topic_that_is_made_anew_while_it_is_read_fails_the_task(broker: SharedBroker) -> None:
    topic = broker.topic(1)
    with broker.client.producer() as producer:
        producer.send_many(topic, ["a", "b", "c"])
        called_off = producer.begin()
        called_off.send_many(topic, ["d"])
        called_off.abort()
    # What nobody sees lies behind the last message.
    until(lambda: broker.client.describe_topic(topic).partitions[0].stable_end >= 4)
    end = broker.client.describe_topic(topic).partitions[0].stable_end

    def read(high: int, strict: bool) -> list[int]:
        split = BrokerSplit((broker.address,), Range(TopicPartition(topic, 0), 0, high), False, strict)
        return [offset for run in split.read() for offset in run.columns()["offset"].tolist()]

    assert read(end, True) == read(9, False) == [0, 1, 2]
    with pytest.raises(OffsetOutOfRange, match=f"{topic}/0 was to be read up to offset 9 and ends at {end}"):
        read(9, True)
    folder = FolderReader(broker.process.data).topic(topic).folder / "0"
    short = FileSplit(folder, Range(TopicPartition(topic, 0), 0, end), ((3, 4),), False, True)
    assert sum(map(len, short.read())) == 3
    with pytest.raises(OffsetOutOfRange, match=f"{topic}/0 .* up to offset 9, and its files end at {end} as they are"):
        list(replace(short, range=Range(TopicPartition(topic, 0), 0, 9)).read())


def test_a_deleted_topic_does_not_stop_a_stream_that_may_lose_data(broker: SharedBroker) -> None:
    client = broker.client
    for name in ("going-1", "going-2"):
        client.create_topic(name, partitions=1)
        with client.producer() as producer:
            producer.send_many(name, ["a"])
    given = {"brokers": broker.address, "topicPattern": "going-.*", "failOnDataLoss": "false", "group": "going"}
    reader = StreamReader(source_options(given, streaming=True), SCHEMA)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert planned(reader, start, first) == [0, 0]
    client.delete_topic("going-1")
    with client.producer() as producer:
        producer.send_many("going-2", ["b"])
    second = reader.latestOffset(first, ReadAllAvailable())
    assert numbers(second) == {"going-1": {"0": 1}, "going-2": {"0": 2}}
    assert planned(reader, first, second) == [1]
    assert reader.latestOffset(second, ReadAllAvailable()) == second
    assert [(each.topic, each.lag) for each in client.describe_group("going").partitions] == [("going-2", 0)]
    strict = StreamReader(source_options(given | {"failOnDataLoss": "true"}, streaming=True), SCHEMA)
    with pytest.raises(TopicNotFound, match=r"has going-1/0, and it is not among what is read: .*failOnDataLoss=false"):
        strict.partitions(first, second)


# Streams


def stream(spark: SparkSession, folder: Path, batches: list[list[Row]], **options: Any) -> StreamingQuery:
    """What there is now, into ``batches``."""
    return (
        spark.readStream.format("goqueue")
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda frame, _: batches.append(frame.collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_reads_everything_once_in_small_batches_and_goes_on_where_it_was(
    spark: SparkSession, broker: SharedBroker, tmp_path: Path
) -> None:
    client = broker.client
    client.create_topic("flow-1", partitions=2)
    with client.producer() as producer:
        producer.send_many("flow-1", messages(60))
    options = {
        "brokers": broker.address,
        "topicPattern": "flow-.*",
        "maxMessagesPerTrigger": "25",
        "minPartitions": "4",
        "group": "flow",
    }
    batches: list[list[Row]] = []
    query = stream(spark, tmp_path, batches, **options)
    assert query.awaitTermination(PATIENCE_S)
    assert [len(batch) for batch in batches] == [24, 24, 12]
    assert by_place([row for batch in batches for row in batch]) == by_the_client(client, "flow-1")
    told = [each["sources"][0] for each in query.recentProgress if each["numInputRows"]]
    # Of the first batch Spark tells no start.
    assert [numbers(each["startOffset"]) for each in told[1:]] == [{"flow-1": {"0": at, "1": at}} for at in (12, 24)]
    assert [numbers(each["endOffset"]) for each in told] == [{"flow-1": {"0": at, "1": at}} for at in (12, 24, 30)]
    assert all(numbers(each["latestOffset"]) == {"flow-1": {"0": 30, "1": 30}} for each in told)
    group = client.describe_group("flow")
    assert [(each.committed, each.lag) for each in group.partitions] == [(30, 0), (30, 0)]

    client.create_topic("flow-2", partitions=1)
    with client.producer() as producer:
        producer.send_many("flow-1", [Outgoing("more", partition=1)])
        producer.send_many("flow-2", ["of another topic"])
    assert [each.lag for each in client.describe_group("flow").partitions] == [0, 1]
    batches.clear()
    query = stream(spark, tmp_path, batches, **options)
    assert query.awaitTermination(PATIENCE_S)
    found = [(row.topic, row.partition, row.offset, row.value) for batch in batches for row in batch]
    assert sorted(found) == [("flow-1", 1, 30, b"more"), ("flow-2", 0, 0, b"of another topic")]
    places = client.describe_group("flow").partitions
    assert [(each.topic, each.partition, each.lag) for each in places] == [
        ("flow-1", 0, 0),
        ("flow-1", 1, 0),
        ("flow-2", 0, 0),
    ]
