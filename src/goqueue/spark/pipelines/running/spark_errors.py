"""What Spark raises, in one line: its errors are pages of stack traces around the sentence that matters."""

from __future__ import annotations

import re

from goqueue.model.errors import GoQueueError
from goqueue.spark.pipelines.definitions.problems import (
    NotUnderstood,
    QueryFailed,
    RuleBroken,
    SparkFailed,
    WorkersLate,
)
from goqueue.spark.pipelines.running.quality import STOP_MARK

_OURS = re.compile(r"^(?:[A-Za-z_.]*\.)?([A-Z][A-Za-z]+): (.+)$", re.MULTILINE)
_STOPPED = re.compile(re.escape(STOP_MARK) + r"(.+)")
_CONDITION = re.compile(r"\[([A-Z][A-Z_.0-9]+)\] (.+)")
_NOISE = re.compile(r"\s*SQLSTATE: \w+.*$")
_JAVA = re.compile(r'^(?:Exception in thread "[^"]*" )?(?:Caused by: )?(?:(?:[a-z_][\w$]*\.)+[A-Z][\w$]*: ?)*')
_LATE = "Python worker failed to connect back"
_LONGEST = 500


def in_one_line(error: BaseException) -> GoQueueError:
    """The error to tell a user of. One of ours is told as it is, wherever in Spark's words it stands."""
    if isinstance(error, GoQueueError):
        return error
    text = str(error)
    stopped = _STOPPED.search(text)
    if stopped:
        return RuleBroken(f"a rule stopped the pipeline: {_short(stopped[1])}")
    ours = _ours_in(text)
    if ours is not None:
        return ours
    if _LATE in text:
        return WorkersLate("Spark failed: its Python workers did not start in time")
    kind = type(error).__name__
    condition = _conditions(text)
    if kind in ("AnalysisException", "ParseException"):
        return NotUnderstood(f"Spark does not understand it: {_short(condition or text)}")
    failed = QueryFailed if kind == "StreamingQueryException" else SparkFailed
    return failed(f"Spark failed: {_short(condition or text or kind)}")


def without_java(line: str) -> str:
    """A line of the JVM without the names of threads and classes before its sentence."""
    sentence = _JAVA.sub("", line.strip())
    condition = _CONDITION.search(sentence)
    return _short(condition[2] if condition else sentence) or line.strip()


def _ours_in(text: str) -> GoQueueError | None:
    """An error that was raised in one of Spark's Python processes: the last line of its traceback names it."""
    kinds = {kind.__name__: kind for kind in _subclasses(GoQueueError)}
    for match in reversed(list(_OURS.finditer(text))):
        kind = kinds.get(match[1])
        if kind is not None:
            return kind(_short(match[2]))
    return None


def _subclasses(kind: type[GoQueueError]) -> list[type[GoQueueError]]:
    found: list[type[GoQueueError]] = []
    for each in kind.__subclasses__():
        found += [each, *_subclasses(each)]
    return found


def _conditions(text: str) -> str:
    """The innermost of Spark's own sentences, which says most; the outer ones say that a job or a stage was aborted."""
    found = [match[2] for match in _CONDITION.finditer(text) if match[1] not in ("STREAM_FAILED", "FAILED_EXECUTE_UDF")]
    return _NOISE.sub("", found[0]) if found else ""


def _short(text: str) -> str:
    line = _NOISE.sub("", text.strip().partition("\n")[0].strip())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
