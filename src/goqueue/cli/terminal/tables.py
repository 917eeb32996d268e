"""Plain text tables whose columns are as wide as their contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from goqueue.cli.terminal.output import Line
from goqueue.observe.logs import escape

GAP = "  "


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    """A line of titles, then one for each row. Unprintable characters are escaped."""
    cells = [titles, *([escape(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(titles))]
    for number, row in enumerate(cells):
        padded = [set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)]
        yield [(GAP.join(padded).rstrip(), "bold" if number == 0 else "")]


def shortened(text: str, width: int, ellipsis: str) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - cell_len(ellipsis), 0)) + ellipsis
