"""DataFrames written to topics: what the rows say, where the Python client would put it, all of it or nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

from goqueue.client.consumer.reader import Record
from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.wire.key_hash import partition_of

if TYPE_CHECKING:
    from tests.spark.conftest import SharedBroker  # type: ignore[import-not-found]


PATIENCE_S = 200


def write(frame: DataFrame, broker: SharedBroker, **options: str) -> None:
    frame.write.format("goqueue").options(brokers=broker.address, **options).mode("append").save()


def stored(broker: SharedBroker, topic: str) -> dict[bytes | None, Record]:
    """By key."""
    return {record.key: record for record in broker.client.read(topic)}


def test_every_column_says_what_it_says_in_the_client(spark: SparkSession, broker: SharedBroker) -> None:
    one, other = broker.topic(4), broker.topic(1)
    frame = spark.sql(
        f"""
        SELECT * FROM VALUES
            ('a', 'one', array(named_struct('name', 'h', 'value', X'01'), named_struct('name', 'h', 'value', X'02')),
             '{one}', CAST(NULL AS INT), 'critical', timestamp'2024-02-03 04:05:06.789012Z', INTERVAL '0' SECOND),
            ('b', NULL, NULL, '{one}', NULL, NULL, NULL, NULL),
            ('c', 'three', array(), '{one}', 3, 'Background', NULL, NULL),
            ('d', 'four', NULL, '{other}', 0, 'low', NULL, INTERVAL '01:00' HOUR TO MINUTE)
        AS rows(key, value, headers, topic, partition, priority, timestamp, delay)
        """
    )
    now = datetime.now(UTC)
    write(frame, broker)
    found = stored(broker, one)
    assert {key: record.value for key, record in found.items()} == {b"a": b"one", b"b": None, b"c": b"three"}
    assert found[b"a"].headers == (("h", b"\x01"), ("h", b"\x02"))
    assert found[b"a"].timestamp == datetime(2024, 2, 3, 4, 5, 6, 789012, UTC)
    assert [found[key].priority for key in (b"a", b"b", b"c")] == [0, 2, 4]
    assert found[b"b"].headers == found[b"c"].headers == ()
    assert now - timedelta(minutes=5) < found[b"b"].timestamp < now + timedelta(minutes=5)
    assert [found[key].partition for key in (b"a", b"b", b"c")] == [partition_of(b"a", 4), partition_of(b"b", 4), 3]
    # Not to be seen for an hour.
    assert stored(broker, other) == {}
    (waiting,) = broker.client.delayed(other)
    assert timedelta(minutes=50) < waiting.deliver_at - now < timedelta(minutes=70)


def test_bytes_numbers_and_maps_will_do_as_well(spark: SparkSession, broker: SharedBroker) -> None:
    topic = broker.topic(2)
    due = datetime.now(UTC) + timedelta(hours=2)
    frame = spark.range(3).selectExpr(
        "CAST(id AS STRING) AS value",
        "CAST(CAST(id AS STRING) AS BINARY) AS key",
        "map('n', CAST(id AS STRING)) AS headers",
        "CAST(id AS TINYINT) AS priority",
        f"IF(id = 2, timestamp'{due.isoformat()}', NULL) AS deliver_at",
    )
    write(frame, broker, topic=topic)
    found = stored(broker, topic)
    assert {key: (each.value, each.headers, each.priority) for key, each in found.items()} == {
        b"0": (b"0", (("n", b"0"),), 0),
        b"1": (b"1", (("n", b"1"),), 1),
    }
    (waiting,) = broker.client.delayed(topic)
    assert waiting.deliver_at == due


def test_rule_10_rows_with_a_key_lie_where_the_client_puts_them(spark: SparkSession, broker: SharedBroker) -> None:
    by_spark, by_client = broker.topic(5), broker.topic(5)
    write(spark.range(300).selectExpr("concat('key ', id % 90) AS key", "'v' AS value"), broker, topic=by_spark)
    with broker.client.producer() as producer:
        producer.send_many(by_client, [Outgoing("v", key=f"key {number % 90}") for number in range(300)])

    def lie(topic: str) -> list[tuple[int, bytes | None]]:
        return sorted((record.partition, record.key) for record in broker.client.read(topic))

    assert lie(by_spark) == lie(by_client)


def test_a_topic_is_never_overwritten(spark: SparkSession, broker: SharedBroker) -> None:
    frame = spark.sql("SELECT 'v' AS value")
    with pytest.raises(AnalysisException, match=r"a topic cannot be overwritten; use mode\('append'\)"):
        frame.write.format("goqueue").options(brokers=broker.address, topic="any").mode("overwrite").save()


def test_what_is_committed_under_a_key_is_committed_once(spark: SparkSession, broker: SharedBroker) -> None:
    topic = broker.topic(2)
    frame = spark.range(10).selectExpr("CAST(id AS STRING) AS key", "'v' AS value")
    for _ in range(2):
        write(frame, broker, topic=topic, commitKey=f"load of {topic}")
    assert sum(1 for _ in broker.client.read(topic)) == 10
    write(frame, broker, topic=topic)
    assert sum(1 for _ in broker.client.read(topic)) == 20


def test_a_stream_writes_to_two_topics_and_tells_how_far_it_is(
    spark: SparkSession, broker: SharedBroker, tmp_path: Path
) -> None:
    source, even, odd = broker.topic(2), broker.topic(1), broker.topic(3)
    with broker.client.producer() as producer:
        producer.send_many(source, [Outgoing(f"{number}", key=f"k{number}") for number in range(100)])
    size = sum(each.size_bytes for each in broker.client.describe_topic(source).partitions)
    query = (
        spark.readStream.format("goqueue")
        .options(brokers=broker.address, topics=source, maxBytesPerTrigger=f"{size * 2 // 3}b")
        .load()
        .selectExpr("key", "value", f"IF(CAST(CAST(value AS STRING) AS INT) % 2 = 0, '{even}', '{odd}') AS topic")
        .writeStream.format("goqueue")
        .options(brokers=broker.address, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    told = [each["sources"][0] for each in query.recentProgress if each["numInputRows"]]
    counts = [each["numInputRows"] for each in told]
    assert len(counts) == 2
    assert 55 <= counts[0] <= 67
    ends: dict[str, object] = {
        str(place): each.latest_offset for place, each in enumerate(broker.client.describe_topic(source).partitions)
    }
    assert told[0]["endOffset"] == told[1]["startOffset"]
    ends["id"] = broker.client.describe_topic(source).id
    assert json.loads(told[1]["endOffset"]) == {source: ends}
    assert all(json.loads(each["latestOffset"]) == {source: ends} for each in told)
    for topic, first in ((even, 0), (odd, 1)):
        assert sorted(int(each.value) for each in broker.client.read(topic)) == list(range(first, 100, 2))


# Last, because Spark starts its workers again after tasks that failed.


def test_one_bad_row_and_nothing_is_written(spark: SparkSession, broker: SharedBroker) -> None:
    topic = broker.topic(2)
    # Two tasks: what the first has prepared must not stay either.
    frame = spark.range(0, 1_000, 1, 2).selectExpr("CAST(id AS STRING) AS value", "IF(id = 999, 9, 2) AS priority")
    with pytest.raises(PythonException, match=r"InvalidMessage: a priority is 9; there are 0 \(critical\) to 4"):
        write(frame, broker, topic=topic)
    assert stored(broker, topic) == {}
    # No transaction is left open, which would hold up readers for a minute.
    described = broker.client.describe_topic(topic).partitions
    assert [each.stable_end for each in described] == [each.latest_offset for each in described]
