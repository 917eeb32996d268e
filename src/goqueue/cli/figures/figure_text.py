"""Figures as a broker shows them at ``/metrics``, read back: only those that are asked for, and never without limit."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from goqueue.model.errors import BrokerUnavailable

Labels = tuple[tuple[str, str], ...]
"""Names and values, in the order of the text."""
Series = dict[Labels, float]

MOST_BYTES = 64 << 20
MOST_SERIES = 500_000
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?', re.ASCII)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class StrangeFigures(BrokerUnavailable):
    """What came is not what a broker shows."""

    remedy = "Look at it with: curl -s URL/metrics. A proxy may answer in the broker's stead."


def parse(text: str, wanted: Collection[str]) -> dict[str, Series]:
    """By the name of a sample, as a line begins with it. What is not wanted is not looked at; nor is what is no number.

    Of a histogram the samples are called ``NAME_bucket``, ``NAME_count`` and ``NAME_sum``.
    """
    if len(text) > MOST_BYTES:
        raise StrangeFigures(f"the figures are {len(text):,} bytes; at most {MOST_BYTES:,} are read")
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
                raise StrangeFigures(f"there are more than {MOST_SERIES:,} figures; no more are read")
    return found


def _labels(rest: str, line: str) -> tuple[Labels, int]:
    """They, and where the value begins."""
    labels = []
    at = 0
    while match := _LABEL.match(rest, at):
        labels.append((match[1], _unescaped(match[2])))
        at = match.end()
    if rest[at : at + 1] != "}":
        raise StrangeFigures(f"the figures have a line that cannot be read: {line[:100]!r}")
    return tuple(labels), at + 1


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], value)


def _number(text: str, line: str) -> float:
    """A time stamp may follow."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        raise StrangeFigures(f"the figures have a line that cannot be read: {line[:100]!r}") from None
