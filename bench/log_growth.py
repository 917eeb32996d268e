"""Whether a log becomes slower as it grows: the last 100,000 of ten million appends against the first.

Side by side, because a machine changes while ten million messages are written (a virtual one is slower, for one, on
memory that it touches for the first time): each of the last windows of the large log is paired with the first window of
a fresh log, written a moment before or after it. The plain ratio within the large log is among the details; it also
shows what the pairs cannot, a process that becomes slower as a whole.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import uvloop

from bench.harness import Measured, repeat, rounded, scratch_folder
from bench.log_under_test import LogUnderTest, open_log_synced_by_interval, open_log_under_test
from bench.workload import BATCH_MESSAGES, wire_batches

_MESSAGES = 10_000_000
_WINDOW_MESSAGES = 100_000
_PAIRS = 20
_WARM_UP_WINDOWS = 3
_METHOD = (
    f"median over the last {_PAIRS} windows of 100,000 messages, each divided by the first window of a fresh log "
    "written beside it; CPU seconds of the thread"
)


@dataclass(frozen=True, slots=True)
class _Window:
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class _Growth:
    """The windows of one large log, and those of the fresh logs beside the last of them."""

    windows: list[_Window]
    fresh: list[_Window]

    @property
    def last(self) -> list[_Window]:
        return self.windows[-len(self.fresh) :]

    def ratio(self) -> float:
        return median(late.cpu_s / early.cpu_s for late, early in zip(self.last, self.fresh, strict=True))

    def wall_ratio(self) -> float:
        return median(late.wall_s / early.wall_s for late, early in zip(self.last, self.fresh, strict=True))

    def ratio_within_log(self) -> float:
        """The machine's noise only ever adds time, so the fastest windows near both ends are compared."""
        first = self.windows[: len(self.fresh)]
        return min(each.wall_s for each in self.last) / min(each.wall_s for each in first)


def measure() -> Measured:
    wires = wire_batches()
    found: list[_Growth] = []

    def once() -> float:
        with scratch_folder() as folder:
            found.append(uvloop.run(_grow(folder, wires)))
        return found[-1].ratio()

    runs = repeat("log_growth", once, times=3, budget_s=45)
    return Measured(
        runs,
        {
            "messages": _MESSAGES,
            "method": _METHOD,
            "fsync": "interval",
            "wall_ratios": [rounded(each.wall_ratio()) for each in found],
            "fastest_windows_within_log_ratios": [rounded(each.ratio_within_log()) for each in found],
            "fresh_window_ms": [rounded(median(each.cpu_s for each in growth.fresh) * 1_000) for growth in found],
            "last_window_ms": [rounded(median(each.cpu_s for each in growth.last) * 1_000) for growth in found],
        },
    )


async def _grow(folder: Path, wires: list[bytes]) -> _Growth:
    async with open_log_under_test(folder / "warm-up") as warm_up:
        for _ in range(_WARM_UP_WINDOWS):
            await _write_window(warm_up, wires)
    async with open_log_synced_by_interval(folder / "large") as large:
        alone = _MESSAGES // _WINDOW_MESSAGES - _PAIRS
        windows = [await _write_window(large, wires) for _ in range(alone)]
        fresh: list[_Window] = []
        for number in range(_PAIRS):
            # Each goes first every other time, so that neither gains by its place.
            if number % 2:
                windows.append(await _write_window(large, wires))
                fresh.append(await _write_first_window(folder / f"fresh-{number}", wires))
            else:
                fresh.append(await _write_first_window(folder / f"fresh-{number}", wires))
                windows.append(await _write_window(large, wires))
    return _Growth(windows, fresh)


async def _write_first_window(folder: Path, wires: list[bytes]) -> _Window:
    async with open_log_under_test(folder) as fresh:
        return await _write_window(fresh, wires)


async def _write_window(under: LogUnderTest, wires: list[bytes]) -> _Window:
    wall, cpu = time.perf_counter(), time.thread_time()
    for number in range(_WINDOW_MESSAGES // BATCH_MESSAGES):
        under.publish(wires[number % len(wires)])
        await asyncio.sleep(0)
    return _Window(time.perf_counter() - wall, time.thread_time() - cpu)
