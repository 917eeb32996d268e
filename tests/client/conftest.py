"""A broker process that the tests of this folder share; each test has topics of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from doubles.async_tests import pytest_pyfunc_call  # noqa: F401
from doubles.timed_broker import TimedBroker

from goqueue.testing import BrokerProcess, running_broker

_numbers = count()


OVER_BOTH_PROTOCOLS = {
    "test_client_at_exit",
    "test_client_damage",
    "test_client_idempotence",
    "test_client_reading",
    "test_client_sending",
    "test_client_stalls",
    "test_client_topics",
    "test_client_transactions",
    "test_consumer_leases",
    "test_consumer_queue",
    "test_consumer_restart",
    "test_consumer_stream",
    "test_group_administration",
}
"""What a connection has to do with. All other tests are made over gRPC only, for the time that they take."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" in metafunc.fixturenames:
        module = metafunc.module.__name__.rpartition(".")[2]
        protocols = ["grpc", "native"] if module in OVER_BOTH_PROTOCOLS else ["grpc"]
        metafunc.parametrize("broker", protocols, indirect=True, scope="session")


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with running_broker(protocol=request.param, settings={"storage.min_free_bytes": 0}) as broker:
        yield broker
        assert broker.stop() == 0
    assert not [line for line in broker.log if '"level": "error"' in line or "Traceback" in line]


@pytest.fixture
def timed_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TimedBroker]:
    """A broker of the test's own, whose time passes only when the test says so.

    The consumer compares the end of a lease with its own clock. If that ran while the broker's stands still, a slow
    machine would see leases that have nearly ended, and extend them by less.
    """
    broker = TimedBroker(tmp_path / "data")
    monkeypatch.setattr("goqueue.client.consumer.queue_source.time_ns", broker.now_ns)
    yield broker
    broker.stop()


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """A topic of one partition that no other test has."""
    name = f"topic-{next(_numbers)}"
    with broker.client() as client:
        client.create_topic(name, partitions=1)
    return name


@pytest.fixture
def wide_topic(broker: BrokerProcess) -> str:
    """The same with four partitions."""
    name = f"wide-{next(_numbers)}"
    with broker.client() as client:
        client.create_topic(name, partitions=4)
    return name


@pytest.fixture
def group() -> str:
    """The name of a group that no other test has."""
    return f"group-{next(_numbers)}"
