"""What a run tells at its end: numbers, tables, files that it wrote, and whether all is well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_SLOW = 10


def per_second(count: int, seconds: float) -> float | None:
    """A rate to show: whole, but for a slow one, which is not to be told as none. None if there was nothing."""
    if count <= 0 or seconds <= 0:
        return None
    rate = count / seconds
    return round(rate) if rate >= _SLOW else float(f"{rate:.2g}")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with titles. Cells are texts, numbers or None, as JSON has them; the command formats them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(slots=True)
class Summary:
    """The result of a run."""

    numbers: dict[str, Any] = field(default_factory=dict)
    """What is counted, by its name in words, in the order to be shown: ``{"messages read": 12}``."""
    tables: list[Table] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Files and folders that were written, charts among them."""
    notes: list[str] = field(default_factory=list)
    """Sentences worth telling."""
    failed: bool = False
    """True if the run did its work and found something wrong: the command then ends with 5."""

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "numbers": {name.replace(" ", "_"): value for name, value in self.numbers.items()},
            "tables": [
                {"title": each.title, "rows": [dict(zip(each.columns, row, strict=True)) for row in each.rows]}
                for each in self.tables
            ],
            "files": self.files,
            "notes": self.notes,
            "failed": self.failed,
        }
