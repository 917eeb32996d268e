"""Topics under names of SQL: tables and views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from goqueue.testing import running_broker

if TYPE_CHECKING:
    from tests.spark.conftest import SharedBroker  # type: ignore[import-not-found]

COUNT = 100


@pytest.fixture(scope="module")
def orders(broker: SharedBroker) -> str:
    topic: str = broker.topic(1)
    with broker.client.producer() as producer:
        producer.send_many(topic, [f"value {number}" for number in range(COUNT)])
    return topic


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    yield "stored"
    spark.sql("DROP TABLE IF EXISTS stored")


def test_a_table_is_read_with_the_options_that_it_was_created_with(
    spark: SparkSession, broker: SharedBroker, orders: str, table: str
) -> None:
    options = f"OPTIONS (brokers '{broker.address}', topics '{orders}', columns 'offset,value')"
    spark.sql(f"CREATE TABLE {table} USING goqueue {options} COMMENT 'orders' TBLPROPERTIES ('team' = 'shop')")
    assert spark.table(table).columns == ["offset", "value"]
    assert spark.sql(f"SELECT value FROM {table} WHERE offset < 10").count() == 10
    assert spark.sql(f"SELECT count(*) AS found FROM {table}").collect()[0].found == COUNT
    query = spark.readStream.table(table).writeStream.format("memory").queryName("seen").trigger(availableNow=True)
    assert query.start().awaitTermination(300)
    assert spark.table("seen").count() == COUNT


def test_a_table_over_files_reads_them_and_leaves_them(
    spark: SparkSession, table: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    with running_broker(folder) as own, own.client() as client:
        client.create_topic("orders", partitions=1)
        with client.producer() as producer:
            producer.send_many("orders", ["a", "b", "c"])
    before = sorted(folder.rglob("*"))
    spark.sql(f"CREATE TABLE {table} USING goqueue OPTIONS (path '{folder}', topics 'orders')")
    assert [bytes(row.value) for row in spark.sql(f"SELECT * FROM {table}").collect()] == [b"a", b"b", b"c"]
    spark.sql(f"DROP TABLE {table}")
    assert sorted(folder.rglob("*")) == before


def test_a_view_is_read_with_its_options(spark: SparkSession, broker: SharedBroker, orders: str) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW shown USING goqueue OPTIONS (brokers '{broker.address}', topics '{orders}')")
    assert spark.table("shown").count() == COUNT


def test_writing_to_a_table_is_refused_and_says_what_to_do(
    spark: SparkSession, broker: SharedBroker, orders: str, table: str
) -> None:
    options = f"OPTIONS (brokers '{broker.address}', topics '{orders}')"
    spark.sql(f"CREATE TABLE {table} USING goqueue {options}")
    words = r"INSERT INTO and CREATE TABLE … AS do not hand the table's options"
    with pytest.raises(AnalysisException, match=words):
        spark.sql(f"INSERT INTO {table} SELECT * FROM {table}")
    with pytest.raises(AnalysisException, match=words):
        spark.sql(f"CREATE TABLE another USING goqueue {options} AS SELECT 'a' AS value")


def test_a_table_with_columns_of_its_own_says_when_it_is_read_that_it_has_lost_its_options(
    spark: SparkSession, broker: SharedBroker, orders: str, table: str
) -> None:
    options = f"OPTIONS (brokers '{broker.address}', topics '{orders}')"
    spark.sql(f"CREATE TABLE {table} (value BINARY) USING goqueue {options}")
    with pytest.raises(AnalysisException, match="leave them out, and use the option columns"):
        spark.table(table).count()


def test_a_misspelt_option_of_a_table_is_refused(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="the source has no option 'topcs'; did you mean 'topics'"):
        spark.sql("CREATE TABLE wrong USING goqueue OPTIONS (topcs 'orders')")
