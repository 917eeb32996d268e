"""Selection of span exporters from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from goqueue.model.config import TraceConfig
from goqueue.model.errors import InvalidConfiguration
from goqueue.model.fields import did_you_mean, shown
from goqueue.observe.jaeger import JaegerExporter
from goqueue.observe.otlp import OtlpExporter
from goqueue.observe.spans import SpanExporter
from goqueue.observe.stdout import StdoutExporter

FILE: Final = "file"
_MAKERS: Final[dict[str, Callable[[TraceConfig, str], SpanExporter]]] = {
    "stdout": lambda config, node_id: StdoutExporter(),
    "otlp": OtlpExporter,
    "jaeger": JaegerExporter,
}
EXPORTERS: Final = (FILE, *_MAKERS)


def exporter_names(exporters: str) -> list[str]:
    """The distinct names in ``trace.exporters``."""
    names = list(dict.fromkeys(name.strip().lower() for name in exporters.split(",")))
    problems = [
        f"trace.exporters: there is no {shown(name)}; use some of {', '.join(EXPORTERS)}, separated by commas, "
        f"or nothing{did_you_mean(name, EXPORTERS)}"
        for name in names
        if name and name not in EXPORTERS
    ]
    if problems:
        raise InvalidConfiguration("\n  ".join(problems))
    return [name for name in names if name]


def span_exporters(config: TraceConfig, node_id: str) -> list[tuple[str, SpanExporter]]:
    """The configured exporters by name, except ``file``, which takes events instead of spans."""
    made: list[tuple[str, SpanExporter]] = []
    problems: list[str] = []
    for name in exporter_names(config.exporters):
        if name == FILE:
            continue
        try:
            made.append((name, _MAKERS[name](config, node_id)))
        except InvalidConfiguration as error:
            problems.append(str(error))
    if problems:
        for _, exporter in made:
            exporter.close()
        raise InvalidConfiguration("\n  ".join(problems))
    return made
