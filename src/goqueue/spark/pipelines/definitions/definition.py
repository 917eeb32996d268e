"""The pipeline definition: a name, settings, and either a flow (source, steps, rules, sink) or a ``run`` function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.definitions.yaml_lines import LineOf

if TYPE_CHECKING:
    from goqueue.spark.pipelines.running.context import Context
    from goqueue.spark.pipelines.running.summary import Summary


@dataclass(frozen=True)
class Pipeline:
    """A pipeline, with the same names in Python as in YAML. It has either ``run`` or ``source``, never both."""

    name: str
    """Also names the default checkpoint, dead-letter topic, and group (``pipeline.NAME``) that shows the lag."""
    summary: str = ""
    settings: Sequence[Setting] = ()
    run: Callable[[Context], Summary] | None = None
    plan: Callable[[Settings], Mapping[str, str]] | None = None
    """Describes what ``run`` would do, as texts by title. Called before ``run``; may raise for invalid settings."""
    source: Mapping[str, Any] | None = None
    steps: Sequence[Any] = ()
    quality: Sequence[Mapping[str, Any]] = ()
    sink: Mapping[str, Any] | None = None
    trigger: str = "available-now"
    checkpoint: str | None = None
    """The folder that stores the pipeline's progress; by default ``./checkpoints/NAME``."""
    file: str | None = None
    """The file that the pipeline was read from."""
    line_of: LineOf | None = None
    """Finds the line of a problem in that file."""
    needs_broker: Callable[[Settings], bool] | None = None
    """Whether ``run`` needs a broker with these settings: if so, it must be reachable before anything starts."""
