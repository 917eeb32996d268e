"""One Spark session and one broker for all tests here: starting either takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from goqueue.client.sync import Client
from goqueue.model.errors import MissingDependency
from goqueue.spark.startup.spark_session import check_java, session
from goqueue.testing import BrokerProcess, running_broker

PATIENCE_S = 400
"""Starting Spark, or its first query, may take a minute where others are at work."""
_names = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE_S))


class SharedBroker:
    """A broker process, a client of it, and names that no other test has."""

    def __init__(self, process: BrokerProcess, client: Client) -> None:
        self.process = process
        self.client = client
        self.address = process.address

    def topic(self, partitions: int = 2, **settings: object) -> str:
        """A new topic."""
        name = f"topic-{next(_names)}"
        self.client.create_topic(name, partitions=partitions, **settings)
        return name


@pytest.fixture(scope="session")
def java() -> None:
    """What Spark needs is there, or who asks for it is skipped."""
    try:
        check_java()
    except MissingDependency as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    made = session(
        "tests",
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            # Starts in two thirds of the time.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.streaming.stopTimeout": "60s",
        },
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[SharedBroker]:
    with running_broker() as process, process.client() as client:
        yield SharedBroker(process, client)
