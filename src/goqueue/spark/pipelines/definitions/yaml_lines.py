"""Where in a YAML text a problem is: its path (``steps[0]: decode.colum: …``) is followed as far as it goes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from goqueue.spark.pipelines.definitions.problems import PipelineProblems, listed

_PART = re.compile(r"[^.\[\]]+|\[\d+\]")
LineOf = Callable[[str], int | None]
"""From a problem to its line, counted from 1; None if it is nowhere, as something that is missing."""


def lines_of(text: str) -> LineOf:
    """Tells the lines of problems of this text, which must be YAML."""
    import yaml

    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)

    def line_of(problem: str) -> int | None:
        node, line = root, None
        for path in problem.split(": "):
            whole, node, found = _followed(node, path)
            line = line if found is None else found
            if not whole:
                break
        return line

    return line_of


def located(problems: Sequence[str], line_of: LineOf | None) -> list[str]:
    """Problems with their lines, in the order of the file; what has no line comes last."""
    if line_of is None:
        return list(problems)
    with_lines = [(line_of(problem), problem) for problem in problems]
    with_lines.sort(key=lambda each: (each[0] is None, each[0] or 0))
    return [problem if line is None else f"line {line}: {problem}" for line, problem in with_lines]


@contextmanager
def told_by_line(line_of: LineOf | None) -> Iterator[None]:
    """Problems that are raised meanwhile are raised with their lines."""
    try:
        yield
    except PipelineProblems as error:
        if line_of is None:
            raise
        raise listed(error.title, located(error.problems, line_of)) from None


def _followed(node: Any, path: str) -> tuple[bool, Any, int | None]:
    """Whether the whole path is there, where it ends, and the line of its last part that is there."""
    key = _child(node, path)
    if key is not None:
        # A key with dots in it, such as kafka.bootstrap.servers.
        return True, *key
    line = None
    parts = _PART.findall(path)
    for number, part in enumerate(parts):
        rest = _child(node, ".".join(parts[number:])) if not part.startswith("[") else None
        if rest is not None:
            return True, *rest
        found = _child(node, part)
        if found is None:
            return False, node, line
        node, line = found
    return bool(parts), node, line


def _child(node: Any, part: str) -> tuple[Any, int] | None:
    """A value below a node and the line where it begins, or that of its key."""
    kind, below = getattr(node, "id", None), getattr(node, "value", ())
    if kind == "sequence" and part.startswith("["):
        number = int(part[1:-1])
        return (below[number], below[number].start_mark.line + 1) if number < len(below) else None
    if kind == "mapping":
        for key, value in below:
            if key.value == part:
                return value, key.start_mark.line + 1
    return None
