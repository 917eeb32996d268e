"""How slow the disk itself is right now, to tell a slow disk from a slow broker."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

_WRITES = 100
_WRITE_BYTES = 200


def fsync_ms(folder: Path) -> float:
    """The median time of bringing a small append to the disk, with nothing of GoQueue in between."""
    path = folder / "disk-probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        times = []
        for number in range(_WRITES):
            os.pwrite(fd, b"x" * _WRITE_BYTES, number * _WRITE_BYTES)
            started = time.perf_counter()
            os.fdatasync(fd)
            times.append((time.perf_counter() - started) * 1_000)
        return median(times)
    finally:
        os.close(fd)
        path.unlink()
