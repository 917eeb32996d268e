"""Pipelines: a source, steps, quality rules and a sink, run on Spark by ``goqueue pipeline``.

Nothing here imports Spark before a pipeline runs: listing, planning and checking work without a JVM.
"""

from __future__ import annotations

from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineFailed
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.running.summary import Summary, Table

__all__ = ["InvalidPipeline", "Pipeline", "PipelineFailed", "Setting", "Settings", "Summary", "Table"]
