from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path

from doubles.async_tests import until

from goqueue.observe.process import LoopDelay, gc_collections, process_figures


def test_figures_of_this_process_are_those_that_the_system_has() -> None:
    found = process_figures()
    assert found.resident_bytes > 10 << 20
    assert found.virtual_bytes is not None
    assert found.virtual_bytes > found.resident_bytes
    assert time.time() - 86_400 * 7 < found.started_s < time.time()
    assert found.cpu_s > 0
    assert found.open_fds is not None
    assert 0 < found.open_fds < found.max_fds


def test_an_open_file_is_counted() -> None:
    before = process_figures().open_fds
    assert before is not None
    opened = os.open(os.devnull, os.O_RDONLY)
    try:
        assert process_figures().open_fds == before + 1
    finally:
        os.close(opened)


def test_a_system_without_proc_tells_less(tmp_path: Path) -> None:
    found = process_figures(tmp_path)
    assert (found.virtual_bytes, found.open_fds) == (None, None)
    assert found.resident_bytes > 10 << 20
    assert found.max_fds > 0
    assert found.started_s <= time.time()


def test_the_start_time_is_found_behind_any_name_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    fields = ["S", *(["0"] * 18), str(5 * os.sysconf("SC_CLK_TCK")), "0"]
    (tmp_path / "self/stat").write_text(f"7 (a) b (c) {' '.join(fields)}")
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1000\n")
    assert process_figures(tmp_path).started_s == 1005.0


def test_collections_are_counted_by_generation() -> None:
    before = gc_collections()
    gc.collect()
    assert gc_collections()[2] == before[2] + 1
    assert len(before) == 3


def test_a_loop_that_was_held_up_is_late() -> None:
    async def run() -> None:
        delay = LoopDelay()
        assert delay.worst_ns() == 0
        delay.start()
        await asyncio.sleep(0)
        time.sleep(0.35)  # noqa: ASYNC251
        await until(lambda: sum(delay.histogram.counts) >= 1)
        assert delay.histogram.total_s >= 0.2
        assert delay.worst_ns() >= 200_000_000
        await delay.stop()
        await delay.stop()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
