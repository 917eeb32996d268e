"""Conversion of Spark's errors, pages of stack traces around one relevant sentence, to one-line errors."""

from __future__ import annotations

import re

from goqueue.model.errors import GoQueueError
from goqueue.spark.pipelines.definitions import problems
from goqueue.spark.pipelines.running.quality import STOP_MARK

_GOQUEUE_ERROR = re.compile(r"^(?:[A-Za-z_.]*\.)?([A-Z][A-Za-z]+): (.+)$", re.MULTILINE)
_STOPPED = re.compile(re.escape(STOP_MARK) + r"(.+)")
_CONDITION = re.compile(r"\[([A-Z][A-Z_.0-9]+)\] (.+)")
_NOISE = re.compile(r"\s*SQLSTATE: \w+.*$")
_JAVA = re.compile(r'^(?:Exception in thread "[^"]*" )?(?:Caused by: )?(?:(?:[a-z_][\w$]*\.)+[A-Z][\w$]*: ?)*')
_LATE = "Python worker failed to connect back"
_LONGEST = 500


def to_goqueue_error(error: BaseException) -> GoQueueError:
    """The error to show to a user. A GoQueue error is found wherever it occurs inside Spark's error text."""
    if isinstance(error, GoQueueError):
        return error
    text = str(error)
    stopped = _STOPPED.search(text)
    if stopped:
        return problems.RuleBroken(f"a rule stopped the pipeline: {_short(stopped[1])}")
    own_error = _goqueue_error_in(text)
    if own_error is not None:
        return own_error
    if _LATE in text:
        return problems.WorkerStartTimeout("Spark failed: its Python workers did not start in time")
    kind = type(error).__name__
    condition = _innermost_condition(text)
    if kind in ("AnalysisException", "ParseException"):
        return problems.QueryRejected(f"Spark does not understand it: {_short(condition or text)}")
    failed = problems.QueryFailed if kind == "StreamingQueryException" else problems.SparkFailed
    return failed(f"Spark failed: {_short(condition or text or kind)}")


def jvm_sentence(line: str) -> str:
    """The sentence in a line of JVM output, without the names of threads and classes before it."""
    sentence = _JAVA.sub("", line.strip())
    condition = _CONDITION.search(sentence)
    return _short(condition[2] if condition else sentence) or line.strip()


def _goqueue_error_in(text: str) -> GoQueueError | None:
    """A GoQueue error raised in one of Spark's Python workers, from the last line of the worker's traceback."""
    kinds = {kind.__name__: kind for kind in _subclasses(GoQueueError)}
    for match in reversed(list(_GOQUEUE_ERROR.finditer(text))):
        kind = kinds.get(match[1])
        if kind is not None:
            return kind(_short(match[2]))
    return None


def _subclasses(kind: type[GoQueueError]) -> list[type[GoQueueError]]:
    found: list[type[GoQueueError]] = []
    for each in kind.__subclasses__():
        found += [each, *_subclasses(each)]
    return found


def _innermost_condition(text: str) -> str:
    """Spark's innermost error condition, the most specific; outer ones only say that a job or stage was aborted."""
    found = [match[2] for match in _CONDITION.finditer(text) if match[1] not in ("STREAM_FAILED", "FAILED_EXECUTE_UDF")]
    return _NOISE.sub("", found[0]) if found else ""


def _short(text: str) -> str:
    line = _NOISE.sub("", text.strip().partition("\n")[0].strip())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
