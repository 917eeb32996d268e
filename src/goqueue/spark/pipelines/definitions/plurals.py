"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 trace file``, ``6,000 trace files``; ``many`` where an s at the end does not make it."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
