"""Puts this folder on the path, so that tests import ``doubles`` and ``behaviour``; a broker for whoever wants one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from behaviour.process import broker_process


@pytest.fixture
def fresh_broker_url(tmp_path: Path) -> Iterator[str]:
    """A broker process with nothing in it."""
    with broker_process(tmp_path / "data") as broker:
        yield broker.url
