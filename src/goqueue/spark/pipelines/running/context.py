"""The context of a run, passed to a pipeline's ``run`` function: settings, Spark, broker, checkpoint and progress."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from goqueue.model.errors import MissingDependency
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running.checkpoint_identity import (
    CheckpointIdentity,
    check_identity,
    local_folder,
    write_identity,
)
from goqueue.spark.pipelines.running.jvm_logging import capture_stderr, silence_py4j
from goqueue.spark.pipelines.running.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from goqueue.client.keywords import TopicOptions
    from goqueue.client.sync import Client
    from goqueue.spark.pipelines.running.streaming import Totals, Until

_JAVA_EXIT_TIMEOUT_S = 1.0


@dataclass
class Context:
    """One run of one pipeline."""

    name: str
    settings: Settings
    brokers: str
    checkpoint: str
    """The pipeline's own folder; its content decides where the next run continues."""
    master: str | None = None
    """None: the master that Spark is configured with elsewhere, else all cores of this machine."""
    conf: dict[str, str] = field(default_factory=dict)
    tell: Callable[[Progress], None] = lambda _: None
    """Reports progress. May be called at any rate: the display limits how often it is updated."""
    stopping: Event = field(default_factory=Event)
    """Set when the run shall end (SIGTERM, Ctrl-C): finish work in progress, start nothing new, return the summary."""
    trust_committed: bool = False
    """Whether to accept an earlier commit of a micro-batch although its number of rows differs now."""
    quiet: bool = False
    """Whether to keep Spark's own output off the standard error."""
    when_started: Callable[[], None] = lambda: None
    """Called once Spark has started; a place to install signal handlers, since Spark replaces them."""
    given_session: SparkSession | None = None
    """An existing session to use. The run does not stop it."""
    lag_group: str | None = field(default=None, init=False)
    """The group that shows the lag of this run's streams, once one is started with a group."""
    _identity: CheckpointIdentity | None = field(default=None, init=False)
    """The identity that this run has claimed the checkpoint with."""

    @property
    def group(self) -> str:
        """The group that shows the lag of streams. The prefix separates it from groups of other consumers."""
        return f"pipeline.{self.name}"

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session, started on first use."""
        if self.given_session is not None:
            return self.given_session
        try:
            from goqueue.spark.startup.spark_session import check_java, session
        except ModuleNotFoundError as error:
            raise MissingDependency(
                f"{error.name} is not installed; pipelines need it: pip install 'goqueue[spark]'"
            ) from None
        check_java()
        self.starting()
        with capture_stderr() if self.quiet else nullcontext():
            spark_session = session(f"goqueue {self.name}", self.master, self.conf or None)
        if self.quiet:
            silence_py4j(spark_session)
        self.when_started()
        return spark_session

    def starting(self) -> None:
        """Hook called right before Spark is started, after its requirements were found."""

    @property
    def has_lost_java(self) -> bool:
        """Whether Spark's Java process has exited. May wait up to a second, so check it only after an error."""
        gateway = self.spark.sparkContext._gateway if "spark" in self.__dict__ else None
        # A gateway launched elsewhere, such as by spark-submit, has no known process.
        process = getattr(gateway, "proc", None)
        if process is None:
            return False
        try:
            # Its sockets close a moment before the process exits.
            process.wait(_JAVA_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Stop Spark if this run started it."""
        if self.given_session is None and "spark" in self.__dict__:
            try:
                self.spark.stop()
            except Exception:
                if not self.has_lost_java:
                    raise

    def read(self, **options: str | int) -> DataFrame:
        """Read the current messages as a batch. ``options`` are those of the data source ``goqueue``."""
        return self.spark.read.format("goqueue").options(brokers=self.brokers, **options).load()

    def read_stream(self, *, grouped: bool = True, **options: str | int) -> DataFrame:
        """Read messages as a stream. Its lag is shown in the pipeline's group, or in ``group`` if that is among the
        options; with ``grouped=False`` in none."""
        named = {**({"group": self.group} if grouped else {}), **options}
        if grouped:
            self.lag_group = str(named["group"])
        return self.spark.readStream.format("goqueue").options(brokers=self.brokers, **named).load()

    def write(self, messages: DataFrame, **options: str) -> None:
        """Publish a batch atomically."""
        messages.write.format("goqueue").mode("append").options(**self._sink_options(options)).save()

    def write_stream(self, messages: DataFrame, **options: str) -> DataStreamWriter:
        """An exactly-once writer of messages, to be passed to ``run_query``."""
        return messages.writeStream.format("goqueue").options(**self._sink_options(options))

    def _sink_options(self, given: dict[str, str]) -> dict[str, str]:
        return {"brokers": self.brokers, "trustCommitted": str(self.trust_committed).lower(), **given}

    def run_query(
        self, writer: DataStreamWriter, trigger: str = "available-now", part: str = "", until: Until | None = None
    ) -> Totals:
        """Run a query, reporting progress, until it ends or the run shall stop; return its totals.

        ``trigger`` is ``available-now`` or an interval such as ``10 seconds``. The query uses this context's
        checkpoint; a pipeline with several queries gives each a ``part``, a folder below it. ``until`` is called with
        each progress report, parsed from JSON, and ends the query by returning true. Raises if the checkpoint was
        started with other settings, see ``claim``.
        """
        from goqueue.spark.pipelines.running.streaming import run_queries

        self.claim()
        query_checkpoint = f"{self.checkpoint.rstrip('/')}/{part}" if part else self.checkpoint
        return run_queries(self, [(writer, query_checkpoint)], trigger, until)[0]

    def claim(self, identity: CheckpointIdentity | None = None, *, is_begun: bool | None = None) -> bool:
        """Claim the checkpoint for this job; raises if another job has started on it.

        The default identity is all settings except those that may change. A checkpoint that is no folder of this
        machine is not checked. Nothing is written: ``keep_claim`` does that, and every query calls it before it
        starts. False if the checkpoint was written for another job that has not started.
        """
        if identity is None:
            fixed = [name for name, each in self.settings.declared.items() if not each.may_change]
            identity = CheckpointIdentity(self.name, {name: self.settings.formatted(name) for name in fixed})
        folder = local_folder(self.checkpoint)
        is_ours = folder is None or check_identity(folder, identity, is_begun=is_begun)
        self._identity = identity
        return is_ours

    def keep_claim(self) -> None:
        """Store the claimed identity in the checkpoint. To be called after all other checks."""
        folder = local_folder(self.checkpoint)
        if self._identity is not None and folder is not None:
            write_identity(folder, self._identity)

    def client(self) -> closing[Client]:
        """A client of the broker: ``with context.client() as client: …``."""
        from goqueue.client.sync import Client

        return closing(Client(self.brokers.split(",")))

    def partitions_of(self, topic: str) -> int:
        """The number of partitions of a topic; raises ``TopicNotFound`` if it does not exist."""
        with self.client() as client:
            return len(client.describe_topic(topic).partitions)

    def make_topics(self, names: Iterable[str], partitions: int | None = None) -> None:
        """Create the topics that do not exist yet; existing ones are not changed."""
        given: TopicOptions = {} if partitions is None else {"partitions": partitions}
        with self.client() as client:
            for name in sorted(set(names).difference(client.list_topics())):
                client.create_topic(name, if_not_exists=True, **given)

    def local_checkpoint(self) -> Path:
        """The checkpoint as a folder of this machine; raises if it is none. The first write creates it."""
        folder = local_folder(self.checkpoint)
        if folder is None:
            raise InvalidPipeline(
                f"the checkpoint {self.checkpoint} is no folder of this machine; {self.name} needs one"
            )
        return folder
