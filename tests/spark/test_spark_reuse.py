"""One DataFrame, used in every way that Spark knows: each use sees all rows, whatever was used before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from tests.spark.conftest import SharedBroker  # type: ignore[import-not-found]

COUNT = 1_000
SETTING = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def orders(broker: SharedBroker) -> str:
    topic: str = broker.topic(1)
    with broker.client.producer() as producer:
        producer.send_many(topic, [f"value {number}" for number in range(COUNT)])
    return topic


@pytest.fixture(params=["push-down on", "push-down off", "push-down as Spark has it"])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """Sessions in which Spark pushes filters down to sources that take them, and others."""
    if request.param.endswith("it"):
        yield spark
        return
    spark.conf.set(SETTING, "true" if request.param.endswith("on") else "false")
    yield spark
    spark.conf.unset(SETTING)


@pytest.fixture
def frame(session: SparkSession, broker: SharedBroker, orders: str) -> DataFrame:
    return session.read.format("goqueue").options(brokers=broker.address, topics=orders).load()


def test_a_filter_does_not_reach_the_next_use(frame: DataFrame) -> None:
    assert frame.filter("offset < 100").count() == 100
    assert frame.count() == COUNT
    assert frame.filter("offset >= 900").count() == 100
    assert frame.filter("partition = 0 AND timestamp > timestamp'2020-01-01'").count() == COUNT
    assert frame.filter("topic = 'another'").count() == 0
    assert frame.filter("offset IN (1, 2, 3)").filter("offset > 1").count() == 2
    assert frame.count() == COUNT


def test_halves_make_a_whole(frame: DataFrame) -> None:
    low, high = frame.filter("offset < 100"), frame.filter("offset >= 100")
    assert low.union(high).count() == COUNT
    assert high.unionByName(low).select("offset").distinct().count() == COUNT
    assert frame.subtract(low).count() == COUNT - 100
    assert frame.intersect(high).count() == COUNT - 100


def test_joins_see_both_sides(frame: DataFrame) -> None:
    small = frame.filter("offset < 10").select("offset")
    large = frame.filter("offset >= 5").select("offset")
    assert small.join(large, "offset").count() == 5
    assert small.join(large, "offset", "full").count() == COUNT
    assert frame.alias("a").join(frame.alias("b"), on="offset").where("a.offset < 3").count() == 3
    assert large.join(small, "offset", "left_anti").count() == COUNT - 10


def test_subqueries_and_views_see_all_rows(session: SparkSession, frame: DataFrame) -> None:
    frame.createOrReplaceTempView("reused")
    query = (
        "SELECT (SELECT count(*) FROM reused WHERE offset < 100) AS few, (SELECT count(*) FROM reused) AS all, "
        "(SELECT max(offset) FROM reused WHERE offset < 50) AS most"
    )
    [row] = session.sql(query).collect()
    assert (row.few, row.all, row.most) == (100, COUNT, 49)
    among = "SELECT * FROM reused WHERE offset IN (SELECT offset + 1 FROM reused WHERE offset < 10)"
    assert session.sql(among).count() == 10
    union = "SELECT * FROM reused WHERE offset < 10 UNION ALL SELECT * FROM reused"
    assert session.sql(union).count() == COUNT + 10


def test_a_cached_frame_holds_all_rows(frame: DataFrame) -> None:
    assert frame.filter("offset < 100").count() == 100
    frame.cache()
    try:
        assert frame.filter("offset < 100").count() == 100
        assert frame.count() == COUNT
    finally:
        frame.unpersist()
    assert frame.filter("offset >= 100").count() == COUNT - 100


def test_all_uses_of_a_load_see_what_was_there_at_the_first(spark: SparkSession, broker: SharedBroker) -> None:
    topic = broker.topic(1)
    source = spark.read.format("goqueue").options(brokers=broker.address, topics=topic)
    options = f"brokers '{broker.address}', topics '{topic}'"
    with broker.client.producer() as producer:
        producer.send_many(topic, ["a", "b"])
        first = source.load()
        first.createOrReplaceTempView("early")
        spark.sql(f"CREATE TABLE anew USING goqueue OPTIONS ({options})")
        try:
            counts = "SELECT (SELECT count(*) FROM early) AS kept, (SELECT count(*) FROM anew) AS now"
            assert spark.sql(counts).first() == (2, 2)
            producer.send_many(topic, ["c"])
            assert (first.count(), first.filter("offset >= 0").count(), source.load().count()) == (2, 2, 3)
            assert spark.sql(counts).first() == (2, 3)
        finally:
            spark.sql("DROP TABLE anew")
