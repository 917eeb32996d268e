"""Launch of Spark's Java process so that it ignores SIGTERM and ends only when Python does."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import java_gateway


@contextmanager
def java_ignoring_sigterm() -> Iterator[None]:
    """Make Java processes launched inside this context ignore SIGTERM.

    Stopping a service or a shell job sends SIGTERM to all of its processes, which would end Java in the middle of the
    micro-batch that Python lets finish. Java ends when Python does, because its standard input is closed then. Spark
    itself makes Java ignore Ctrl-C only, and offers no hook between fork and exec, so ``Popen`` is replaced.
    """
    gateway: Any = java_gateway
    plain = gateway.Popen

    def popen(command: list[str], preexec_fn: Callable[[], None], **kwargs: Any) -> Any:
        def before_exec() -> None:
            preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        return plain(command, preexec_fn=before_exec, **kwargs)

    gateway.Popen = popen
    try:
        yield
    finally:
        gateway.Popen = plain
