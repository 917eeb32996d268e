"""The built-in pipelines by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.settings import Settings

NAMES = ("archive", "restore", "backfill", "rollup", "replay", "dlq-triage", "trace-stats", "audit")
_NEEDS_BROKER: dict[str, Callable[[Settings], bool]] = {
    "trace-stats": lambda _: False,
    "audit": lambda settings: not settings["offline"],
}
"""Whether a pipeline needs a broker with given settings; pipelines not listed always do."""


def builtin(name: str) -> Pipeline:
    """The built-in pipeline with this name, one of ``NAMES``."""
    found: Pipeline = import_module(f"goqueue.spark.pipelines.{name.replace('-', '_')}").PIPELINE
    return replace(found, needs_broker=found.needs_broker or _NEEDS_BROKER.get(name, lambda _: True))
