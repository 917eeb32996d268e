"""Line numbers of problems in a YAML text, found by following a problem's path (``steps[0]: decode.colum: …``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from goqueue.spark.pipelines.definitions.problems import PipelineProblems, problem_list

_PART = re.compile(r"[^.\[\]]+|\[\d+\]")
LineOf = Callable[[str], int | None]
"""Maps a problem to its line, counted from 1; None if it has no line, such as a missing key."""


def lines_of(text: str) -> LineOf:
    """A function that finds the lines of problems in this text, which must be valid YAML."""
    import yaml

    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)

    def line_of(problem: str) -> int | None:
        node, line = root, None
        for path in problem.split(": "):
            whole, node, found = _follow(node, path)
            line = line if found is None else found
            if not whole:
                break
        return line

    return line_of


def with_lines(problems: Sequence[str], line_of: LineOf | None) -> list[str]:
    """Problems prefixed with their lines, in the order of the file; those without a line come last."""
    if line_of is None:
        return list(problems)
    with_lines = [(line_of(problem), problem) for problem in problems]
    with_lines.sort(key=lambda each: (each[0] is None, each[0] or 0))
    return [problem if line is None else f"line {line}: {problem}" for line, problem in with_lines]


@contextmanager
def with_line_numbers(line_of: LineOf | None) -> Iterator[None]:
    """Add line numbers to ``PipelineProblems`` raised in this context."""
    try:
        yield
    except PipelineProblems as error:
        if line_of is None:
            raise
        raise problem_list(error.title, with_lines(error.problems, line_of)) from None


def _follow(node: Any, path: str) -> tuple[bool, Any, int | None]:
    """Follow a path: whether all of it exists, the node where it ends, and the line of its last existing part."""
    key = _child(node, path)
    if key is not None:
        # A key that contains dots, such as kafka.bootstrap.servers.
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
    """A child of a node, and the line where it or its key begins; ``None`` if there is no such child."""
    kind, below = getattr(node, "id", None), getattr(node, "value", ())
    if kind == "sequence" and part.startswith("["):
        number = int(part[1:-1])
        return (below[number], below[number].start_mark.line + 1) if number < len(below) else None
    if kind == "mapping":
        for key, value in below:
            if key.value == part:
                return value, key.start_mark.line + 1
    return None
