"""Writes all of something onto standard output."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def forget_output() -> None:
    """So that Python does not try to flush a pipe that is closed when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def put_all(output: bytes) -> None:
    """Flushed when it returns. Under PYTHONUNBUFFERED a signal may cut a write short; the rest is written then."""
    left = memoryview(output)
    while left:
        left = left[sys.stdout.buffer.write(left) or 0 :]
    sys.stdout.buffer.flush()


def put_text(text: str) -> None:
    """The same. Letters that the encoding of a pipe has not are escaped."""
    put_all(text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", "backslashreplace"))
