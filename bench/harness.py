"""What benches share, in one place to import from."""

from __future__ import annotations

from bench.broker_process import BrokerProcess, broker_process
from bench.child import run_module
from bench.disk_probe import fsync_ms
from bench.figure import Better, Figure, Measured, rounded
from bench.report import note
from bench.scratch import drop_from_page_cache, scratch_folder
from bench.timing import percentile, repeat

__all__ = [
    "Better",
    "BrokerProcess",
    "Figure",
    "Measured",
    "broker_process",
    "drop_from_page_cache",
    "fsync_ms",
    "note",
    "percentile",
    "repeat",
    "rounded",
    "run_module",
    "scratch_folder",
]
