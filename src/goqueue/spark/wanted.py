"""What a query's filters say of where to look."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from goqueue.client.instants import to_nanoseconds
from goqueue.spark.positions import Range
from goqueue.spark.ways import Way


class Wanted:
    """What filters say of topics, partitions, offsets and times."""

    def __init__(self) -> None:
        self._low = 0
        self._high = 1 << 62
        self._since_ns: int | None = None
        self._only: dict[str, set[Any]] = {}

    def add(self, given: Filter) -> None:
        column = getattr(given, "attribute", ("",))
        name, value = column[0] if len(column) == 1 else "", getattr(given, "value", None)
        if name == "offset" and isinstance(value, int):
            self._add_offset(given, value)
        elif name == "timestamp" and isinstance(value, datetime):
            # Producers' clocks are not in order: before the first message of that time all are older, and no more.
            if isinstance(given, GreaterThan | GreaterThanOrEqual | EqualTo):
                self._since_ns = max(self._since_ns or 0, to_nanoseconds(value))
        elif name in ("topic", "partition") and isinstance(given, EqualTo | In):
            wanted = set(given.value) if isinstance(given, In) else {value}
            self._only[name] = self._only.get(name, wanted) & wanted

    def _add_offset(self, given: Filter, value: int) -> None:
        match given:
            case EqualTo():
                self._low, self._high = max(self._low, value), min(self._high, value + 1)
            case GreaterThan():
                self._low = max(self._low, value + 1)
            case GreaterThanOrEqual():
                self._low = max(self._low, value)
            case LessThan():
                self._high = min(self._high, value)
            case LessThanOrEqual():
                self._high = min(self._high, value + 1)

    def narrowed(self, whole: list[Range], way: Way) -> list[Range]:
        found: list[Range] = []
        for place, low, high in whole:
            if any(getattr(place, name) not in wanted for name, wanted in self._only.items()):
                continue
            low, high = max(low, self._low), min(high, self._high)
            if self._since_ns is not None and low < high:
                low = max(low, way.offset_at(place, self._since_ns))
            if low < high:
                found.append(Range(place, low, high))
        return found
