"""Errors of pipeline definitions and runs.

A class has a ``remedy`` only if it holds for every error of the class; otherwise the message says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.model.errors import BrokerUnavailable, ClientError, InvalidRequest, TopicNotFound


class InvalidPipeline(InvalidRequest):
    """A pipeline's definition or its settings are invalid."""

    remedy = ""


class PipelineProblems(InvalidPipeline):
    """Problems in a pipeline's file or its settings, all listed in one error."""

    remedy = "Correct every line that the message names; 'goqueue pipeline plan' checks it without running it."

    def __init__(self, message: str, title: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.title = title
        self.problems = tuple(problems)


class QueryRejected(InvalidPipeline):
    """Spark rejects a query at analysis, before it runs."""

    remedy = "--debug shows all that Spark says."


class PipelineFailed(ClientError):
    """A pipeline ended before it was finished. Committed work stays."""

    remedy = ""


class SparkFailed(PipelineFailed):
    """Spark failed during a run."""

    remedy = "--debug shows all that Spark says."


class JavaExited(SparkFailed):
    """Spark's Java process exited or was killed during a run."""

    remedy = (
        "Run it again: it goes on where it stopped. If the system has killed it for want of memory, give it fewer "
        "cores (--master 'local[1]') or less memory (--conf spark.driver.memory=512m)."
    )


class WorkerStartTimeout(SparkFailed):
    """A Python worker did not connect within ten seconds, a timeout that Spark does not let users configure."""

    remedy = "The machine is busy. Run it again, it goes on where it stopped; or use fewer cores: --master 'local[1]'."


class QueryFailed(SparkFailed):
    """A streaming query failed."""

    remedy = "Mend the cause and run it again: it goes on where it stopped. --debug shows all that Spark says."


class SparkNotStarted(PipelineFailed):
    """Spark could not be started, so nothing was run."""

    remedy = "Check --master and --conf; nothing was begun. --debug shows all that Spark says."


class RuleBroken(PipelineFailed):
    """A message violated a rule with ``otherwise: stop``."""

    remedy = (
        "Nothing of this micro-batch was written. Mend the rule or the steps, or let the rule drop or dead-letter; "
        "the next run goes on with the same message."
    )


class NoBroker(BrokerUnavailable):
    """No broker is reachable, so nothing was run."""

    remedy = "Start the broker, or say where it is: --brokers HOST:PORT, or GOQUEUE_BROKERS."


class NoSuchTopic(TopicNotFound):
    """A topic that a pipeline needs does not exist."""

    remedy = "Correct its name, or create it first."


def problem_list(title: str, problems: Sequence[str]) -> PipelineProblems:
    """One error that lists all problems, a line each, with a hint to ``goqueue pipeline plan``."""
    return PipelineProblems(_lines(title, problems), title, problems)


def plain_problems(title: str, problems: Sequence[str]) -> InvalidPipeline:
    """One error that lists all problems, for those that ``goqueue pipeline plan`` does not check."""
    return InvalidPipeline(_lines(title, problems))


def _lines(title: str, problems: Sequence[str]) -> str:
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n  ".join([f"{title} has {count}:", *problems])
