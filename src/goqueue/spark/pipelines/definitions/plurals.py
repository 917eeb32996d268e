"""Plural forms of counted nouns."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 trace file``, ``6,000 trace files``; ``many`` is the plural if it is not formed by adding an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
