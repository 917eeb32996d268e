"""The summary of a run: numbers, tables, files written, notes, and whether it found problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_SLOW = 10


def per_second(count: int, seconds: float) -> float | None:
    """A rate for display: rounded to a whole number, or two digits if slow. None if there were no messages."""
    if count <= 0 or seconds <= 0:
        return None
    rate = count / seconds
    return round(rate) if rate >= _SLOW else float(f"{rate:.2g}")


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table. Cells are texts, numbers or None, as in JSON; the command formats them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(slots=True)
class Summary:
    """The result of a run, shown by the command."""

    numbers: dict[str, Any] = field(default_factory=dict)
    """Counts by title, in display order: ``{"messages read": 12}``."""
    tables: list[Table] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Files and folders that were written, charts included."""
    notes: list[str] = field(default_factory=list)
    """Remarks for the user, whole sentences."""
    failed: bool = False
    """True if the run completed and found problems: the command then exits with status 5."""

    def as_json(self) -> dict[str, Any]:
        """The summary as ``--json`` prints it."""
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
