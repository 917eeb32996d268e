"""A broker for each module: commands look at all that it has, and must not meet what another module left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from goqueue.testing import BrokerProcess, running_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker() as running:
        yield running
