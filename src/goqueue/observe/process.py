"""Metrics of the process: memory, CPU, open files, garbage collection, and the delay of the event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.observe.histogram import Histogram

_PROC = Path("/proc")
_LOADED_AT_S = time.time()
_EVERY_S = 0.1
_LATELY = 100
"""Number of timer samples kept: ten seconds."""
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_RSS_IN_KB = sys.platform != "darwin"


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Metrics of the process; ``None`` where the system does not provide them."""

    cpu_s: float
    resident_bytes: int
    virtual_bytes: int | None
    open_fds: int | None
    max_fds: int
    started_s: float


def process_figures(proc: Path = _PROC) -> ProcessFigures:
    """Read the metrics. Takes some milliseconds with thousands of open files, so it should run in a thread."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    virtual_bytes, resident_bytes = _memory(proc)
    if resident_bytes is None:
        # Peak memory is the closest value available on every system.
        resident_bytes = used.ru_maxrss * 1_024 if _RSS_IN_KB else used.ru_maxrss
    return ProcessFigures(
        used.ru_utime + used.ru_stime,
        resident_bytes,
        virtual_bytes,
        _open_fds(proc),
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        _started_s(proc),
    )


def gc_collections() -> list[int]:
    """Garbage collections per generation."""
    return [generation["collections"] for generation in gc.get_stats()]


def _memory(proc: Path) -> tuple[int | None, int | None]:
    with suppress(OSError, ValueError, IndexError):
        pages = (proc / "self/statm").read_text().split()
        page_bytes = resource.getpagesize()
        return int(pages[0]) * page_bytes, int(pages[1]) * page_bytes
    return None, None


def _open_fds(proc: Path) -> int | None:
    with suppress(OSError):
        # The descriptor used for listing is included.
        return len(os.listdir(proc / "self/fd")) - 1  # noqa: PTH208
    return None


@cache
def _started_s(proc: Path) -> float:
    """Start time of the process; import time of this module if the system does not provide it.

    Read once: the kernel's own boot time may shift by a second, and this must not look like a restart.
    """
    with suppress(OSError, ValueError, IndexError, StopIteration):
        # The command name may contain any characters, and is enclosed in parentheses.
        behind_name = (proc / "self/stat").read_text().rpartition(")")[2].split()
        lines = (proc / "stat").read_text().splitlines()
        booted_s = int(next(line for line in lines if line.startswith("btime ")).split()[1])
        return booted_s + int(behind_name[19]) / os.sysconf("SC_CLK_TCK")
    return _LOADED_AT_S


class LoopDelay:
    """Measures how late the event loop runs its timers. Must be stopped by the code that starts it."""

    def __init__(self) -> None:
        self.histogram = Histogram(_BOUNDS_S)
        self._lately: deque[float] = deque(maxlen=_LATELY)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._measure(), name="measure the event loop's delay")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def worst_ns(self) -> int:
        """Largest delay in the last ten seconds."""
        return int(max(self._lately, default=0.0) * NANOS_PER_SECOND)

    async def _measure(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due = now() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            late_s = now() - due
            self.histogram.observe(late_s)
            self._lately.append(late_s)
