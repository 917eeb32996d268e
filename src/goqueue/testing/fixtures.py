"""For pytest: ``pytest_plugins = ["goqueue.testing.fixtures"]`` in your ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from goqueue.client.sync import Client
from goqueue.testing.process import BrokerProcess, running_broker


@pytest.fixture(scope="session")
def goqueue_broker() -> Iterator[BrokerProcess]:
    """One broker for the whole session; give each test a topic of its own."""
    with running_broker() as broker:
        yield broker


@pytest.fixture
def goqueue_client(goqueue_broker: BrokerProcess) -> Iterator[Client]:
    with goqueue_broker.client() as client:
        yield client
