"""What tests of the benchmarks share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def keep_handler() -> Iterator[None]:
    """A run takes over SIGTERM; the tests want theirs back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
