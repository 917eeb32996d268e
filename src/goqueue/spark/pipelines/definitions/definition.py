"""What a pipeline is: a name, settings, and either a flow (source, steps, rules, sink) or a function that runs."""

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
    """In Python as in YAML: the names are the same. With ``run`` there is no source, and the other way around."""

    name: str
    """Also the default for the checkpoint, the dead letters, and the group (``pipeline.NAME``) that shows the lag."""
    summary: str = ""
    settings: Sequence[Setting] = ()
    run: Callable[[Context], Summary] | None = None
    plan: Callable[[Settings], Mapping[str, str]] | None = None
    """What ``run`` would do, in words, by title; it is asked first, and may refuse the settings."""
    source: Mapping[str, Any] | None = None
    steps: Sequence[Any] = ()
    quality: Sequence[Mapping[str, Any]] = ()
    sink: Mapping[str, Any] | None = None
    trigger: str = "available-now"
    checkpoint: str | None = None
    """Where it keeps how far it is; unless set, ``./checkpoints/NAME``."""
    file: str | None = None
    """The file that it was read from."""
    line_of: LineOf | None = None
    """Where in that file a problem is."""
    needs_broker: Callable[[Settings], bool] | None = None
    """Whether ``run`` asks a broker: then one must answer before anything is begun."""
