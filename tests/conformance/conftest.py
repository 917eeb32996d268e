"""A broker process for existing clients to talk to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from behaviour.process import BrokerProcess, broker_process

_names = count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("conformance")) as broker:
        yield broker
        assert not [event for event in broker.events() if event["level"] == "error"], broker.log()


@pytest.fixture
def subject() -> str:
    """One that no other test has."""
    return f"subject-{next(_names)}"
