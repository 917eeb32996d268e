"""What a pipeline's ``run`` function gets: its settings, Spark, the broker, and someone to tell how far it is."""

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
from goqueue.spark.pipelines.running.checkpoint_identity import Asked, check_claim, local_folder, write_claim
from goqueue.spark.pipelines.running.jvm_logging import quiet_end, quiet_start
from goqueue.spark.pipelines.running.progress import Progress, say_nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from goqueue.client.keywords import TopicOptions
    from goqueue.client.sync import Client
    from goqueue.spark.pipelines.running.streaming import Totals, Until

_JAVA_IS_REAPED_WITHIN_S = 1.0


def _nothing() -> None:
    return


@dataclass
class Context:
    """One run of one pipeline."""

    name: str
    settings: Settings
    brokers: str
    checkpoint: str
    """A folder of this pipeline's own; what is in it decides where the next run goes on."""
    master: str | None = None
    """None: what Spark was told elsewhere, else all cores of this machine."""
    conf: dict[str, str] = field(default_factory=dict)
    tell: Callable[[Progress], None] = say_nothing
    """Call it as often as you like: whoever shows it sees to it that it is not too often."""
    stopping: Event = field(default_factory=Event)
    """Set when the run is to end (SIGTERM, Ctrl-C): finish what is begun, begin nothing new, return the summary."""
    trust_committed: bool = False
    """Whether a micro-batch that was committed before counts although it has other rows now."""
    quiet: bool = False
    """Whether Spark's own words are kept from the standard error."""
    when_started: Callable[[], None] = _nothing
    """Called once Spark is there, which takes signals for itself."""
    given_session: SparkSession | None = None
    """A session that somebody else made and will stop."""
    told_group: str | None = field(default=None, init=False)
    """The group that shows how far the streams of this run are, once there is one."""
    _asked: Asked | None = field(default=None, init=False)
    """What this run wants the checkpoint for."""

    @property
    def group(self) -> str:
        """The group in which streams show their lag. Its prefix keeps it apart from groups that services go by."""
        return f"pipeline.{self.name}"

    @cached_property
    def spark(self) -> SparkSession:
        """Started when it is first asked for."""
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
        with quiet_start() if self.quiet else nullcontext():
            made = session(f"goqueue {self.name}", self.master, self.conf or None)
        if self.quiet:
            quiet_end(made)
        self.when_started()
        return made

    def starting(self) -> None:
        """Called when Spark is about to be started, and all that it needs was found."""

    @property
    def has_lost_java(self) -> bool:
        """Whether Spark's Java process is gone, without which nothing of Spark answers. To be asked if it does not."""
        gateway = self.spark.sparkContext._gateway if "spark" in self.__dict__ else None
        # One that others have launched has no process that is known here.
        process = getattr(gateway, "proc", None)
        if process is None:
            return False
        try:
            # Its sockets are closed a moment before it is gone.
            process.wait(_JAVA_IS_REAPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Stop Spark, if this run has started it."""
        if self.given_session is None and "spark" in self.__dict__:
            try:
                self.spark.stop()
            except Exception:
                if not self.has_lost_java:
                    raise

    def read(self, **options: str | int) -> DataFrame:
        """Messages as they are now, as a batch. ``options`` are those of the source ``goqueue``."""
        return self.spark.read.format("goqueue").options(brokers=self.brokers, **options).load()

    def read_stream(self, *, grouped: bool = True, **options: str | int) -> DataFrame:
        """Messages as a stream. Its group is the pipeline's, unless ``group`` says otherwise or it has none."""
        named = {**({"group": self.group} if grouped else {}), **options}
        if grouped:
            self.told_group = str(named["group"])
        return self.spark.readStream.format("goqueue").options(brokers=self.brokers, **named).load()

    def write(self, messages: DataFrame, **options: str) -> None:
        """Publish a batch: all of it, or nothing."""
        messages.write.format("goqueue").mode("append").options(**self._sink_options(options)).save()

    def write_stream(self, messages: DataFrame, **options: str) -> DataStreamWriter:
        """A writer of messages, exactly once; give it a trigger and then to ``run_query``."""
        return messages.writeStream.format("goqueue").options(**self._sink_options(options))

    def _sink_options(self, given: dict[str, str]) -> dict[str, str]:
        return {"brokers": self.brokers, "trustCommitted": str(self.trust_committed).lower(), **given}

    def run_query(
        self, writer: DataStreamWriter, trigger: str = "available-now", part: str = "", until: Until | None = None
    ) -> Totals:
        """Start a query, tell of its progress until it ends or the run is to stop, and return what it did.

        ``trigger`` is ``available-now`` or an interval such as ``10 seconds``. The query's checkpoint is this
        context's; a pipeline of several queries gives each a ``part``, a folder below it. ``until`` is asked about
        each progress report, as JSON has it, and ends the query by saying true. A checkpoint that was begun with
        other settings is refused, see ``claim``.
        """
        from goqueue.spark.pipelines.running.streaming import run_query

        self.claim()
        place = f"{self.checkpoint.rstrip('/')}/{part}" if part else self.checkpoint
        return run_query(self, writer, trigger, place, until)

    def claim(self, asked: Asked | None = None, *, is_begun: bool | None = None) -> bool:
        """Ask for the checkpoint, or refuse: then it was begun with something else.

        Unless told, what is asked are all settings but those that may change. A checkpoint that is no folder of this
        machine is taken as it is. Nothing is written: ``keep_claim`` does that, which every query does before it
        starts. False if something else was meant to be done in it, and nothing of that was.
        """
        if asked is None:
            fixed = [name for name, each in self.settings.declared.items() if not each.may_change]
            asked = Asked(self.name, {name: self.settings.formatted(name) for name in fixed})
        folder = local_folder(self.checkpoint)
        is_ours = folder is None or check_claim(folder, asked, is_begun=is_begun)
        self._asked = asked
        return is_ours

    def keep_claim(self) -> None:
        """Write into the checkpoint what it is for, once topics and all else were found to be well."""
        folder = local_folder(self.checkpoint)
        if self._asked is not None and folder is not None:
            write_claim(folder, self._asked)

    def client(self) -> closing[Client]:
        """A client of the broker: ``with context.client() as client: …``."""
        from goqueue.client.sync import Client

        return closing(Client(self.brokers.split(",")))

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; the broker says so at once if there is no such topic."""
        with self.client() as client:
            return len(client.describe_topic(topic).partitions)

    def make_topics(self, names: Iterable[str], partitions: int | None = None) -> None:
        """Make the topics that are not there yet; those that are stay as they are."""
        given: TopicOptions = {} if partitions is None else {"partitions": partitions}
        with self.client() as client:
            for name in sorted(set(names).difference(client.list_topics())):
                client.create_topic(name, if_not_exists=True, **given)

    def local_checkpoint(self) -> Path:
        """The checkpoint as a folder of this machine. It is made by what is first written into it."""
        folder = local_folder(self.checkpoint)
        if folder is None:
            raise InvalidPipeline(
                f"the checkpoint {self.checkpoint} is no folder of this machine; {self.name} needs one"
            )
        return folder
