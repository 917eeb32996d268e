"""Lists as code hosts read them.

What belongs to an item of a list is set in there by the width of its mark: two for ``- ``, three for ``1. ``. The
renderer of the site wants four, and an empty line ahead of a list.
"""

from __future__ import annotations

import re

_MARK = re.compile(r"(?:[-*+]|\d+\.) +(?=\S)")
_WIDTH = 4


def with_lists(markdown: str) -> str:
    """The same text with what belongs to an item set in by four."""
    lines: list[str] = []
    width = 0
    has_parts = is_code = False
    for line in markdown.splitlines():
        if width and line.startswith(" " * width):
            lines.append(" " * (_WIDTH - width) + line)
            continue
        if not line:
            has_parts = has_parts or width > 0
            lines.append(line)
            continue
        mark = None if is_code else _MARK.match(line)
        if mark and lines and lines[-1] and (has_parts if width else _begins_a_list(mark[0])):
            lines.append("")
        if line.startswith("```"):
            is_code = not is_code
        if not mark or not width:
            has_parts = False
        width = min(len(mark[0]), _WIDTH) if mark else 0
        lines.append(line)
    return "\n".join(lines) + "\n"


def _begins_a_list(mark: str) -> bool:
    """Whether a list can begin in the line behind a paragraph: a sentence can, too, with a number and a full stop."""
    return not mark[0].isdigit() or mark.startswith("1.")
