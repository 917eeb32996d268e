"""The pipeline runner: calls a pipeline's ``run`` function, or executes its flow as a stream or a batch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from goqueue.model.errors import BrokerUnavailable, DeliveryTimeout, InternalError, TopicNotFound
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.flow import Flow, flow_of, identity_of
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, JavaExited, NoBroker, NoSuchTopic, SparkFailed
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.definitions.yaml_lines import with_line_numbers
from goqueue.spark.pipelines.running import rows as row_messages
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.quality import Rule
from goqueue.spark.pipelines.running.spark_errors import to_goqueue_error
from goqueue.spark.pipelines.running.steps import ORIGIN, apply_steps
from goqueue.spark.pipelines.running.streaming import AVAILABLE_NOW, Totals, run_queries
from goqueue.spark.pipelines.running.summary import Summary, Table, per_second

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_BROKER_TIMEOUT_S = 5.0
_DEAD_LETTERS = "dead-letters"
"""Subfolder of the checkpoint for the separate query that writes dead letters, if the sink is no topic."""


def describe_plan(pipeline: Pipeline, settings: Settings, checkpoint: str, brokers: str = "") -> dict[str, Any]:
    """Describe what a run would do, as texts or lists of texts by title. Uses neither Spark nor a broker."""
    if pipeline.run is not None:
        described = dict(pipeline.plan(settings)) if pipeline.plan is not None else {"runs": pipeline.summary}
        asks_broker = pipeline.needs_broker is not None and pipeline.needs_broker(settings)
        # A pipeline with a run function that declares no checkpoint uses none.
        described |= {"checkpoint": checkpoint} if pipeline.checkpoint is not None else {}
        return described | ({"brokers": brokers} if brokers and asks_broker else {})
    flow = _flow(pipeline, settings)
    plan: dict[str, Any] = {"source": _describe_source(flow)}
    if flow.steps:
        plan["steps"] = [step.describe() for step in flow.steps]
    if flow.rules:
        plan["quality"] = [_describe_rule(flow, rule) for rule in flow.rules]
    plan["sink"] = _describe_sink(flow)
    texts = {AVAILABLE_NOW: "reads what is there, then ends", "batch": "reads all of it at each run"}
    plan["trigger"] = texts.get(flow.trigger, f"every {flow.trigger}, until it is stopped")
    if not flow.is_batch:
        plan["checkpoint"] = checkpoint
    if brokers and _needs_broker(flow):
        plan["brokers"] = brokers
    return plan


def run(pipeline: Pipeline, context: Context) -> Summary:
    """Run the pipeline to its end or until the context is stopping. Spark's errors become one-line errors of ours."""
    try:
        if pipeline.run is not None:
            if pipeline.needs_broker is not None and pipeline.needs_broker(context.settings):
                find_broker(context.brokers)
            return pipeline.run(context)
        flow = _flow(pipeline, context.settings)
        if not flow.is_batch:
            context.claim(identity_of(pipeline, flow, context.settings))
        if _needs_broker(flow):
            find_broker(context.brokers)
        _make_topics(flow, context)
        return _run_batch(flow, context) if flow.is_batch else _run_stream(flow, context)
    except Exception as error:
        shown = to_goqueue_error(error)
        if type(shown) is TopicNotFound:
            shown = NoSuchTopic(str(shown))
        if isinstance(shown, SparkFailed) and context.has_lost_java:
            shown = JavaExited("Spark's Java process has ended, and so has the run")
        if shown is error:
            raise
        raise shown from error


def find_broker(brokers: str) -> None:
    """Raise ``NoBroker`` if no broker answers within seconds: starting Spark first would take far longer to fail."""
    from goqueue.client.sync import Client

    within_ms = int(_BROKER_TIMEOUT_S * 1_000)
    with closing(Client(brokers.split(","), connect_timeout_ms=within_ms, request_timeout_ms=within_ms)) as client:
        try:
            client.list_topics()
        except (BrokerUnavailable, DeliveryTimeout) as error:
            raise NoBroker(f"no broker answers at {brokers} within {_BROKER_TIMEOUT_S:g} seconds") from error
        except InternalError as error:
            # The client raises this for answers that no broker gives, such as those of a web server.
            raise NoBroker(f"what answers at {brokers} is no broker, or has failed: {error}") from error


def _flow(pipeline: Pipeline, settings: Settings) -> Flow:
    with with_line_numbers(pipeline.line_of):
        return flow_of(pipeline, settings)


def _needs_broker(flow: Flow) -> bool:
    reads = flow.source.table is None and "path" not in flow.source.options
    return reads or flow.sink.is_topic or flow.has_dead_letters


def _make_topics(flow: Flow, context: Context) -> None:
    """Create the topics to write to, with as many partitions as the first topic that is read.

    Done before Spark starts, so that an unreachable broker or a missing topic is reported at once.
    """
    names = {rule.topic or flow.dead_letter_topic for rule in flow.rules if rule.otherwise == "dead-letter"}
    if flow.sink.topic is not None:
        names.add(flow.sink.topic)
    if names:
        read = flow.source.options.get("topics", "").partition(",")[0]
        context.make_topics(names, context.partitions_of(read) if read else None)


def _run_stream(flow: Flow, context: Context) -> Summary:
    rows = _checked_rows(flow, context)
    writers: list[tuple[DataStreamWriter, str]] = []
    mode = flow.sink.mode or "append"
    if flow.sink.is_topic:
        writers.append((context.write_stream(_messages_for_sink(rows, flow)).outputMode(mode), context.checkpoint))
    else:
        files = _rows_of_table(rows, flow).writeStream.format(flow.sink.format).outputMode(mode)
        if flow.sink.partition_by:
            files = files.partitionBy(*flow.sink.partition_by)
        writers.append((files.option("path", flow.sink.table), context.checkpoint))
        if flow.has_dead_letters:
            # Files and messages cannot be committed together, so each has a query and a checkpoint, exactly once each.
            letters = row_messages.only_dead_letters(_checked_rows(flow, context, group=False, observed=False), flow)
            checkpoint = f"{context.checkpoint.rstrip('/')}/{_DEAD_LETTERS}"
            writers.append((context.write_stream(letters), checkpoint))
    totals = run_queries(context, writers, flow.trigger)[0]
    return _summary(flow, totals, totals.observed.get(row_messages.OBSERVED, {}))


def _run_batch(flow: Flow, context: Context) -> Summary:
    import time

    from pyspark.sql import Observation

    began = time.monotonic()
    context.tell(Progress(0, doing="reading and writing"))
    observation = Observation(row_messages.OBSERVED)
    rows = _checked_rows(flow, context, observation=observation)
    if flow.sink.is_topic:
        context.write(_messages_for_sink(rows, flow))
    else:
        writer = _rows_of_table(rows, flow).write.format(flow.sink.format).mode(flow.sink.mode or "errorifexists")
        if flow.sink.partition_by:
            writer = writer.partitionBy(*flow.sink.partition_by)
        writer.save(flow.sink.table)
        if flow.has_dead_letters:
            context.write(row_messages.only_dead_letters(_checked_rows(flow, context, observed=False), flow))
    observed = observation.get
    totals = Totals(messages=observed["rows"], seconds=time.monotonic() - began)
    return _summary(flow, totals, observed)


def _checked_rows(
    flow: Flow, context: Context, group: bool = True, observed: bool = True, observation: Any = None
) -> DataFrame:
    """The rows after all steps, checked by the rules, with violations counted as observed metrics."""
    rows = _read_table(flow, context) if flow.source.table is not None else _read_messages(flow, context, group)
    rows = row_messages.apply_rules(apply_steps(rows, flow.steps, context.brokers), flow.rules)
    if observed:
        return rows.observe(observation or row_messages.OBSERVED, *row_messages.rule_counts(flow.rules))
    return rows


def _read_messages(flow: Flow, context: Context, group: bool) -> DataFrame:
    options = dict(flow.source.options)
    wanted = [name.strip() for name in options.get("columns", "").split(",") if name.strip()]
    if wanted and flow.has_dead_letters:
        options["columns"] = ",".join(dict.fromkeys([*wanted, *row_messages.ORIGIN_COLUMNS]))
    if not group:
        options.pop("group", None)
    rows = context.read(**options) if flow.is_batch else context.read_stream(grouped=group, **options)
    if not flow.has_dead_letters:
        return rows
    rows = row_messages.with_origin(rows)
    return rows.select(*wanted, ORIGIN) if wanted else rows


def _read_table(flow: Flow, context: Context) -> DataFrame:
    source = flow.source
    reader = context.spark.read.format(source.format)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    if flow.is_batch:
        return reader.load(source.table)
    schema = source.schema or reader.load(source.table).schema
    return context.spark.readStream.format(source.format).schema(schema).load(source.table)


def _messages_for_sink(rows: DataFrame, flow: Flow) -> DataFrame:
    """The messages for a topic sink: valid rows, and dead letters if there are rules that produce them."""
    if flow.has_dead_letters:
        messages = row_messages.as_messages(row_messages.passing_rows(rows, flow.rules, dead_letters=True), flow.sink)
        return row_messages.with_dead_letters(messages, flow)
    good = row_messages.passing_rows(rows, flow.rules, dead_letters=False)
    return row_messages.as_messages(good, flow.sink).drop(*row_messages.INTERNAL)


def _rows_of_table(rows: DataFrame, flow: Flow) -> DataFrame:
    good = row_messages.passing_rows(rows, flow.rules, dead_letters=False)
    missing = [name for name in flow.sink.partition_by if name not in good.columns]
    if missing:
        there_are = ", ".join(name for name in good.columns if name not in row_messages.INTERNAL)
        raise InvalidPipeline(f"sink.partition_by: {missing[0]}: no such column; there are {there_are}")
    return good.drop(*row_messages.INTERNAL)


def _summary(flow: Flow, totals: Totals, observed: Mapping[str, Any]) -> Summary:
    broken = [int(observed.get(f"rule_{number}") or 0) for number in range(len(flow.rules))]
    rows = int(observed.get("rows") or 0)
    numbers: dict[str, Any] = {"messages read": totals.messages, "rows written": rows - sum(broken)}
    by_outcome = {"dead-letter": "dead letters", "drop": "dropped"}
    for outcome, title in by_outcome.items():
        counted = [count for rule, count in zip(flow.rules, broken, strict=True) if rule.otherwise == outcome]
        if counted:
            numbers[title] = sum(counted)
    left_out = flow.filtered_by_steps(totals.messages, rows)
    if left_out is not None:
        numbers["left out by steps"] = left_out
    if not flow.is_batch:
        numbers["batches"] = totals.batches
    numbers |= {"seconds": round(totals.seconds, 1), "messages per second": per_second(totals.messages, totals.seconds)}
    summary = Summary(numbers=numbers)
    if flow.rules:
        cells = [[rule.name, rule.otherwise, count] for rule, count in zip(flow.rules, broken, strict=True)]
        summary.tables.append(Table("quality", ["rule", "otherwise", "rows"], cells))
    if flow.sink.table is not None:
        summary.files.append(flow.sink.table)
    summary.notes += totals.notes()
    return summary


def _describe_source(flow: Flow) -> str:
    source = flow.source
    if source.table is not None:
        return f"{source.format} files in {source.table}"
    options = dict(source.options)
    what = f"topics {options.pop('topics')}" if "topics" in options else f"topics like {options.pop('topicPattern')}"
    start = options.pop("startingPosition", "earliest")
    end = f" to {options.pop('endingPosition', 'latest')}" if flow.is_batch else ""
    further = "".join(f", {name} {value}" for name, value in options.items())
    return f"{what} from {start}{end}{further}"


def _describe_rule(flow: Flow, rule: Rule) -> str:
    to = f" to {rule.topic or flow.dead_letter_topic}" if rule.otherwise == "dead-letter" else ""
    return f"{rule.name}: {rule.condition}, otherwise {rule.otherwise}{to}"


def _describe_sink(flow: Flow) -> str:
    sink = flow.sink
    if sink.is_topic:
        how = "all or nothing" if flow.is_batch else "exactly once"
        what = f"topic {sink.topic}, made if it is not there" if sink.topic else f"topics by {sink.topic_from}"
        return f"{what}, {how}"
    parts = f", partitioned by {', '.join(sink.partition_by)}" if sink.partition_by else ""
    return f"{sink.format} files in {sink.table}{parts}"
