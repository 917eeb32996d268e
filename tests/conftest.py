"""Puts this folder on the path, so that tests import ``doubles`` and ``behaviour``; a broker for whoever wants one."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from behaviour.process import broker_process
from hypothesis import HealthCheck, settings

# Whoever runs the tests may have contexts of their own, or a broker. No test is to meet them.
os.environ["GOQUEUE_CONTEXTS"] = str(Path(__file__).parent / "no-such-folder" / "contexts.json")
os.environ.pop("GOQUEUE_SERVER", None)

# A shell that starts a job in the background has it ignore Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that is busy is no defect of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Garbage is not looked for while tests are gathered, and later only among what the tests themselves make.

    Thousands of tests stay until the end; going through them again and again would double the time of many.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def fresh_broker_url(tmp_path: Path) -> Iterator[str]:
    """A broker process with nothing in it."""
    with broker_process(tmp_path / "data") as broker:
        yield broker.url
