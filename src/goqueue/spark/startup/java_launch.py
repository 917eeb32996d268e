"""Starts Spark's Java process so that only Python decides when it ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import java_gateway


@contextmanager
def sheltered_java() -> Iterator[None]:
    """A Java process that is launched meanwhile ignores SIGTERM.

    Who ends a service or a shell's job sends it to all of its processes, and Java would be gone in the middle of the
    micro-batch that Python lets finish. It ends when Python does, because its standard input ends then. Spark itself
    shelters it from Ctrl-C alone, and leaves nobody else a say in what the new process does before it becomes Java.
    """
    gateway: Any = java_gateway
    plain = gateway.Popen

    def launched(command: list[str], preexec_fn: Callable[[], None], **kwargs: Any) -> Any:
        def before_it_is_java() -> None:
            preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        return plain(command, preexec_fn=before_it_is_java, **kwargs)

    gateway.Popen = launched
    try:
        yield
    finally:
        gateway.Popen = plain
