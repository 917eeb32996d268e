"""Brokers for the behaviour suite: those that many tests share, and one of a test's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from behaviour.clock import ManualClock
from behaviour.driver import Driver
from behaviour.in_process import InProcessDriver
from behaviour.over_grpc import GrpcDriver
from behaviour.over_http import HttpDriver

WAYS_IN: dict[str, type[Driver]] = {"in_process": InProcessDriver, "http": HttpDriver, "grpc": GrpcDriver}
_names = count()


@pytest.fixture(scope="session", params=WAYS_IN)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A broker for tests that only touch their own topics."""
    driver = WAYS_IN[request.param](tmp_path_factory.mktemp("shared"))
    yield driver
    driver.close()


@pytest.fixture(scope="session", params=WAYS_IN)
def shared_timed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    driver = WAYS_IN[request.param](tmp_path_factory.mktemp("timed"), clock=ManualClock(time.time_ns()))
    yield driver
    driver.close()


@pytest.fixture
def timed(shared_timed: Driver) -> Driver:
    """The same, where time passes only when a test says so (``let_pass``).

    It begins at a tick of the broker's clockwork: what is due after a whole number of ticks is seen to exactly then.
    """
    shared_timed.clock.advance_to_tick()
    return shared_timed


@pytest.fixture
def name() -> str:
    """A topic's name that no other test has."""
    return f"topic-{next(_names)}"


@pytest.fixture(params=WAYS_IN)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts a broker of the test's own, on the test's folder."""
    started: list[Driver] = []

    def begin(**options: Any) -> Driver:
        driver = WAYS_IN[request.param](tmp_path / "data", **options)
        started.append(driver)
        return driver

    yield begin
    for driver in started:
        driver.close()
