"""Parser for the Prometheus text that a broker serves at ``/metrics``: reads the wanted series only, within limits."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from goqueue.model.errors import BrokerUnavailable

Labels = tuple[tuple[str, str], ...]
"""Label names and values, in the order of the text."""
Series = dict[Labels, float]

MOST_BYTES = 64 << 20
MOST_SERIES = 500_000
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?', re.ASCII)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class UnexpectedMetrics(BrokerUnavailable):
    """The response is not a broker's metrics."""

    remedy = "Look at it with: curl -s URL/metrics. A proxy may answer in the broker's stead."


def parse_metrics(text: str, wanted: Collection[str]) -> dict[str, Series]:
    """Series by sample name. Samples that are not wanted or not finite are skipped.

    The samples of a histogram are called ``NAME_bucket``, ``NAME_count`` and ``NAME_sum``.
    """
    if len(text) > MOST_BYTES:
        raise UnexpectedMetrics(f"the figures are {len(text):,} bytes; at most {MOST_BYTES:,} are read")
    found: dict[str, Series] = {name: {} for name in wanted}
    count = 0
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        head, brace, rest = line.partition("{")
        if not brace:
            head, _, rest = line.partition(" ")
        series = found.get(head)
        if series is None:
            continue
        labels, value_at = _labels(rest, line) if brace else ((), 0)
        value = _number(rest[value_at:], line)
        if math.isfinite(value):
            series[labels] = value
            count += 1
            if count > MOST_SERIES:
                raise UnexpectedMetrics(f"there are more than {MOST_SERIES:,} figures; no more are read")
    return found


def _labels(rest: str, line: str) -> tuple[Labels, int]:
    """The labels, and the index at which the value begins."""
    labels = []
    at = 0
    while match := _LABEL.match(rest, at):
        labels.append((match[1], _unescape(match[2])))
        at = match.end()
    if rest[at : at + 1] != "}":
        raise UnexpectedMetrics(f"the figures have a line that cannot be read: {line[:100]!r}")
    return tuple(labels), at + 1


def _unescape(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], value)


def _number(text: str, line: str) -> float:
    """Parse the value; a timestamp may follow it."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        raise UnexpectedMetrics(f"the figures have a line that cannot be read: {line[:100]!r}") from None
