"""A broker whose files do not change for a while."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from goqueue.testing import BrokerProcess


@contextmanager
def standing_still(broker: BrokerProcess) -> Iterator[None]:
    """Files are made, renamed and removed at any time: whoever copies them by hand has to stop the process."""
    broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.process.send_signal(signal.SIGCONT)
