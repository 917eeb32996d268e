"""Writes to standard output that survive partial writes and closed pipes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def discard_output() -> None:
    """Redirect standard output to /dev/null, so that Python does not flush a closed pipe at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_bytes(output: bytes) -> None:
    """Write and flush all of ``output``. Under PYTHONUNBUFFERED a signal may cut a write short; the rest is then
    written."""
    left = memoryview(output)
    while left:
        left = left[sys.stdout.buffer.write(left) or 0 :]
    sys.stdout.buffer.flush()


def write_text(text: str) -> None:
    """Write and flush all of ``text``. Characters that the output's encoding lacks are escaped."""
    write_bytes(text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", "backslashreplace"))
