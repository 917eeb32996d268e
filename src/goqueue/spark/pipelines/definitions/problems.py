"""What may be wrong with a pipeline, or go wrong while it runs.

A hint stands only where it is true of every error of its kind; else the message itself says what would be right.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.model.errors import BrokerUnavailable, ClientError, InvalidRequest, TopicNotFound


class InvalidPipeline(InvalidRequest):
    """A pipeline, or what it is asked to do, cannot be."""

    remedy = ""


class PipelineProblems(InvalidPipeline):
    """A pipeline's file or its settings have problems; all of them are listed."""

    remedy = "Correct every line that the message names; 'goqueue pipeline plan' checks it without running it."

    def __init__(self, message: str, title: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.title = title
        self.problems = tuple(problems)


class NotUnderstood(InvalidPipeline):
    """Spark refuses a query before it runs."""

    remedy = "--debug shows all that Spark says."


class PipelineFailed(ClientError):
    """A pipeline stopped before it was done. What it has committed stays."""

    remedy = ""


class SparkFailed(PipelineFailed):
    """Spark gave up while it worked."""

    remedy = "--debug shows all that Spark says."


class JavaGone(SparkFailed):
    """Spark's Java process was killed, or gave up, while a pipeline ran."""

    remedy = (
        "Run it again: it goes on where it stopped. If the system has killed it for want of memory, give it fewer "
        "cores (--master 'local[1]') or less memory (--conf spark.driver.memory=512m)."
    )


class WorkersLate(SparkFailed):
    """Spark waits ten seconds for a Python process that it starts, and nothing makes it wait longer."""

    remedy = "The machine is busy. Run it again, it goes on where it stopped; or use fewer cores: --master 'local[1]'."


class QueryFailed(SparkFailed):
    """A stream ended before it was done."""

    remedy = "Mend the cause and run it again: it goes on where it stopped. --debug shows all that Spark says."


class SparkNotStarted(PipelineFailed):
    """There is no Spark to run on; nothing was begun."""

    remedy = "Check --master and --conf; nothing was begun. --debug shows all that Spark says."


class RuleBroken(PipelineFailed):
    """A message broke a rule that says stop."""

    remedy = (
        "Nothing of this micro-batch was written. Mend the rule or the steps, or let the rule drop or dead-letter; "
        "the next run goes on with the same message."
    )


class NoBroker(BrokerUnavailable):
    """No broker answers, and so nothing was begun."""

    remedy = "Start the broker, or say where it is: --brokers HOST:PORT, or GOQUEUE_BROKERS."


class NoSuchTopic(TopicNotFound):
    """A topic that a pipeline asks for is not there."""

    remedy = "Correct its name, or create it first."


def listed(title: str, problems: Sequence[str]) -> PipelineProblems:
    """One error of all problems, a line each."""
    return PipelineProblems(_lines(title, problems), title, problems)


def refused(title: str, problems: Sequence[str]) -> InvalidPipeline:
    """The same for what ``goqueue pipeline plan`` does not check."""
    return InvalidPipeline(_lines(title, problems))


def _lines(title: str, problems: Sequence[str]) -> str:
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n  ".join([f"{title} has {count}:", *problems])
