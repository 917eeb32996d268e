"""Text formats of metrics: OpenMetrics 1.0, and the Prometheus text format for clients that do not accept it.

Label sets are rendered once by the code that owns them and kept, so writing a line only joins three strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from goqueue.observe.histogram import Histogram

Kind = Literal["counter", "gauge", "histogram", "info"]

OTHER = "__other"
"""Label value for the sum of all topics or groups without series of their own. No topic or group can have this name."""
OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
PLAIN_TYPE = "text/plain; version=0.0.4"
"""Content type of the Prometheus text format. The text is UTF-8, which HTTP servers add to any text type."""

_UNITS = ("seconds", "bytes")
_LINES_AT_A_TIME = 500


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family. ``name`` is the name in queries: for a counter it ends in ``_total``."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """Name of the family in OpenMetrics."""
        ends = {"counter": "_total", "info": "_info"}
        return self.name.removesuffix(ends.get(self.kind, ""))

    @property
    def unit(self) -> str:
        return next((unit for unit in _UNITS if self.stem.endswith(f"_{unit}")), "")


class Figures:
    """Samples of one scrape, by family, as text lines: one object per sample would trigger the garbage collector."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def lines(self, name: str) -> list[str]:
        """Lines of a family."""
        return self._lines.setdefault(name, [])

    def add(self, name: str, value: float, labels: str = "") -> None:
        self.lines(name).append(f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n")

    def add_histogram(self, name: str, histogram: Histogram, labels: str = "") -> None:
        lines = self.lines(name)
        before = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{"
        after = f"{{{labels}}}" if labels else ""
        count = 0
        for bound, of_range in zip(_bounds(histogram.bounds), histogram.counts, strict=True):
            count += of_range
            lines.append(f"{before}{bound}}} {count}\n")
        lines.append(f"{name}_count{after} {count}\n")
        lines.append(f"{name}_sum{after} {histogram.total_s}\n")


def labelled(names: Iterable[str], values: Iterable[object]) -> str:
    """Rendered label set, without the braces."""
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in zip(names, values, strict=True))


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def wants_openmetrics(accept: str) -> bool:
    """Whether a request's ``Accept`` header lists OpenMetrics with a quality above zero."""
    for part in accept.split(","):
        media_type, *parameters = (each.strip().lower() for each in part.split(";"))
        if media_type == OPENMETRICS:
            return not any(each.replace(" ", "") in {"q=0", "q=0.0", "q=0.00", "q=0.000"} for each in parameters)
    return False


def render(families: Iterable[Family], figures: Figures, *, openmetrics: bool) -> Iterator[str]:
    """The text in chunks, each of which takes well under a millisecond to render."""
    for family in families:
        yield _head(family, openmetrics)
        lines = figures.lines(family.name)
        for first in range(0, len(lines), _LINES_AT_A_TIME):
            yield "".join(lines[first : first + _LINES_AT_A_TIME])
    if openmetrics:
        yield "# EOF\n"


def _head(family: Family, openmetrics: bool) -> str:
    if not openmetrics:
        kind = "gauge" if family.kind == "info" else family.kind
        return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {kind}\n"
    stem = family.stem
    unit = f"# UNIT {stem} {family.unit}\n" if family.unit else ""
    return f"# HELP {stem} {family.help}\n# TYPE {stem} {family.kind}\n{unit}"


@lru_cache(maxsize=64)
def _bounds(bounds: tuple[float, ...]) -> list[str]:
    return [*(f'le="{float(bound)}"' for bound in bounds), 'le="+Inf"']
