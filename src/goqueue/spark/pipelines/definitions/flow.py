"""The flow of a declarative pipeline: source, steps, rules, sink and trigger, validated, with settings substituted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from goqueue.model.errors import GoQueueError, InvalidTopicName
from goqueue.model.fields import did_you_mean, shown
from goqueue.model.names import check_topic_name
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.keys import unknown_key
from goqueue.spark.pipelines.definitions.problems import problem_list
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running.checkpoint_identity import CheckpointIdentity
from goqueue.spark.pipelines.running.quality import Rule, parse_rules
from goqueue.spark.pipelines.running.steps import Step, decode_rules, is_row_preserving, parse_steps
from goqueue.spark.pipelines.running.streaming import AVAILABLE_NOW

BATCH = "batch"
_INTERVAL = re.compile(r"\d+ (milliseconds?|seconds?|minutes?|hours?|days?)")
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
_MESSAGE_OPTIONS = (
    "topics", "topicPattern", "path", "startingPosition", "endingPosition", "isolation", "columns", "group",
    "maxMessagesPerTrigger", "maxBytesPerTrigger", "minPartitions", "failOnDataLoss",
)  # fmt: skip
_MAY_CHANGE = ("path", "group", "maxMessagesPerTrigger", "maxBytesPerTrigger", "minPartitions", "failOnDataLoss")
"""Options that may differ between runs on one checkpoint, since they do not change which messages are read."""
_TABLE_KEYS = ("table", "format", "schema")
_SINK_KEYS = {
    "topic": ("topic", "mode"),
    "topic_from": ("topic_from", "mode"),
    "table": ("table", "format", "partition_by", "mode"),
}
FORMATS = ("parquet", "json", "csv", "orc", "delta")
MODES = ("append", "update", "complete")
BATCH_MODES = ("append", "overwrite")


@dataclass(frozen=True, slots=True)
class Source:
    """Either messages (``options`` of the data source ``goqueue``) or the rows of files below ``table``."""

    options: Mapping[str, str]
    table: str | None = None
    format: str = "parquet"
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    """A topic, a topic per row (the SQL expression ``topic_from``), or files below ``table``."""

    topic: str | None = None
    topic_from: str | None = None
    table: str | None = None
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    mode: str | None = None

    @property
    def is_topic(self) -> bool:
        return self.table is None


@dataclass(frozen=True, slots=True)
class Flow:
    """The parsed and validated flow of a pipeline; all that a run needs besides its context."""

    name: str
    source: Source
    steps: tuple[Step, ...]
    rules: tuple[Rule, ...]
    sink: Sink
    trigger: str

    @property
    def is_batch(self) -> bool:
        return self.trigger == BATCH

    @property
    def dead_letter_topic(self) -> str:
        """The topic for dead letters whose rule names no topic."""
        return f"{self.name}.dlq"

    @property
    def has_dead_letters(self) -> bool:
        return any(rule.otherwise == "dead-letter" for rule in self.rules)

    def filtered_by_steps(self, read: int, after_steps: int) -> int | None:
        """The number of a stream's messages that steps filtered out; ``None`` if the difference has other causes."""
        has_filter = any(step.kind == "filter" for step in self.steps)
        return read - after_steps if has_filter and not self.is_batch and is_row_preserving(self.steps) else None


def flow_of(pipeline: Pipeline, settings: Settings) -> Flow:
    """The flow of a pipeline with a source. All problems are raised in one error."""
    problems: list[str] = []
    filled = {
        key: _substitute(getattr(pipeline, key), settings, key, problems)
        for key in ("source", "steps", "quality", "sink", "trigger")
    }
    wrong = trigger_problem(filled["trigger"], batch=True)
    problems += [wrong] if wrong else []
    trigger = AVAILABLE_NOW if wrong else str(filled["trigger"])
    steps = parse_steps(filled["steps"], problems)
    flow = Flow(
        name=pipeline.name,
        source=_source(filled["source"], trigger == BATCH, problems),
        steps=steps,
        rules=(*decode_rules(steps), *parse_rules(filled["quality"], problems)),
        sink=_sink(filled["sink"], trigger == BATCH, problems),
        trigger=trigger,
    )
    _raise_problems(pipeline, problems)
    return flow


def _raise_problems(pipeline: Pipeline, problems: list[str]) -> None:
    if problems:
        raise problem_list(f"the pipeline {pipeline.name}" if pipeline.file is None else pipeline.file, problems)


def identity_of(pipeline: Pipeline, flow: Flow, settings: Settings) -> CheckpointIdentity:
    """The identity of a flow's checkpoint.

    Rules are not part of it, and steps only if the query has state: a rule or step that stopped the pipeline can be
    corrected, and the next run continues. A setting that steps use always is part: a run with another value is a
    different job.
    """
    source, sink = flow.source, flow.sink
    read = {name: value for name, value in source.options.items() if name not in _MAY_CHANGE}
    read |= {"table": source.table, "format": source.format} if source.table is not None else {}
    written = {name: getattr(sink, name) or "" for name in ("topic", "topic_from", "table", "mode")}
    written |= {"format": sink.format, "partition_by": ",".join(sink.partition_by)} if sink.table is not None else {}
    fixed = sorted(name for name in _settings_used(pipeline.steps) if not settings.declared[name].may_change)
    return CheckpointIdentity(
        flow.name,
        settings={name: settings.formatted(name) for name in fixed},
        source=read,
        sink={name: value for name, value in written.items() if value},
        steps=[step.describe() for step in flow.steps],
    )


def _settings_used(raw: Any) -> set[str]:
    """The names of the settings that it uses as ``${name}``."""
    if isinstance(raw, Mapping):
        raw = list(raw.values())
    if isinstance(raw, list | tuple):
        return {name for each in raw for name in _settings_used(each)}
    return set(_PLACEHOLDER.findall(raw)) if isinstance(raw, str) else set()


def checkpoint_of(pipeline: Pipeline, settings: Settings) -> str:
    """The pipeline's default checkpoint, with settings substituted."""
    problems: list[str] = []
    folder = _substitute(pipeline.checkpoint or f"./checkpoints/{pipeline.name}", settings, "checkpoint", problems)
    _raise_problems(pipeline, problems)
    return str(folder)


def _substitute(raw: Any, settings: Settings, path: str, problems: list[str]) -> Any:
    """``raw`` with ``${name}`` replaced by settings. A text that is only one ``${name}`` becomes the typed value."""
    if isinstance(raw, Mapping):
        return {key: _substitute(value, settings, f"{path}.{key}", problems) for key, value in raw.items()}
    if isinstance(raw, list | tuple):
        return [_substitute(value, settings, f"{path}[{number}]", problems) for number, value in enumerate(raw)]
    if isinstance(raw, datetime):
        # YAML parses texts that look like timestamps.
        return raw.isoformat().replace("+00:00", "Z")
    if isinstance(raw, date):
        return raw.isoformat()
    if not isinstance(raw, str):
        return raw
    for name in _PLACEHOLDER.findall(raw):
        if name not in settings:
            there_are = f"; there are {', '.join(settings)}" if settings else "; declare it under settings"
            problems.append(f"{path}: ${{{name}}} is no setting{did_you_mean(name, settings) or there_are}")
            return raw
        if settings[name] is None:
            problems.append(f"{path}: the setting {name} has no value; --set {name}=…, or give it a default")
            return raw
    whole = _PLACEHOLDER.fullmatch(raw)
    if whole:
        return settings[whole[1]]
    return _PLACEHOLDER.sub(lambda match: settings.formatted(match[1]), raw)


def _source(raw: object, is_batch: bool, problems: list[str]) -> Source:
    if not isinstance(raw, Mapping):
        problems.append("source: it is missing; write it like source: {topics: orders, startingPosition: earliest}")
        return Source({})
    if "table" in raw:
        problems += [f"source.{unknown_key(key, _TABLE_KEYS)}" for key in raw if key not in _TABLE_KEYS]
        _check_texts(raw, "source", problems)
        return Source({}, str(raw["table"]), _format(raw, "source", problems), raw.get("schema"))
    known = {_normalized(name): name for name in _MESSAGE_OPTIONS}
    options = {}
    for key, value in raw.items():
        name = known.get(_normalized(str(key)))
        if name is None:
            problems.append(f"source.{unknown_key(key, (*_MESSAGE_OPTIONS, 'table'))}")
        elif (text := _option(value)) is None:
            problems.append(f"source.{key}: {shown(value)} is neither a text, a number nor a list of texts")
        else:
            options[name] = text
    if ("topics" in options) == ("topicPattern" in options) and not problems:
        problems.append("source: it has one of topics (such as orders,payments), topicPattern and table")
    if not problems:
        problems += _option_problems(options, is_batch)
    return Source(options)


def _option_problems(options: Mapping[str, str], is_batch: bool) -> Iterator[str]:
    """Problems that the data source itself would raise, reported before anything is started."""
    try:
        from goqueue.spark.source.options import source_options
    except ModuleNotFoundError:
        return  # Without its packages nothing can be started, which starting Spark reports.
    try:
        source_options(options, streaming=not is_batch)
    except GoQueueError as error:
        yield f"source: {error}"
    for name in options.get("topics", "").split(","):
        try:
            check_topic_name(name.strip() or "-")
        except InvalidTopicName as error:
            yield f"source.topics: {error}"
        except GoQueueError:
            pass  # Internal topics may be read.


def _sink(raw: object, is_batch: bool, problems: list[str]) -> Sink:
    example = "write it like sink: {topic: paid-orders} or sink: {table: ./out, partition_by: [day]}"
    if not isinstance(raw, Mapping):
        problems.append(f"sink: it is missing; {example}")
        return Sink()
    kinds = [kind for kind in _SINK_KEYS if kind in raw]
    if len(kinds) != 1:
        wrong = [unknown_key(key, _SINK_KEYS) for key in raw if key not in _SINK_KEYS]
        problems.append(
            f"sink: it has one of topic, topic_from and table; {example}{f' ({wrong[0]})' if wrong else ''}"
        )
        return Sink()
    known = _SINK_KEYS[kinds[0]]
    problems += [f"sink.{unknown_key(key, known)}" for key in raw if key not in known]
    parts = raw.get("partition_by", ())
    parts = parts.split(",") if isinstance(parts, str) else parts
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part.strip() for part in parts):
        problems.append(f"sink.partition_by: {shown(parts)} is not a list of columns, such as [day]")
        parts = ()
    _check_texts({key: value for key, value in raw.items() if key != "partition_by"}, "sink", problems)
    modes = BATCH_MODES if is_batch else MODES
    if raw.get("mode") is not None and raw["mode"] not in modes:
        guess = did_you_mean(str(raw["mode"]), modes)
        problems.append(f"sink.mode: {shown(raw['mode'])} is not one of {', '.join(modes)}{guess}")
    if isinstance(raw.get("topic"), str) and raw["topic"].strip():
        try:
            check_topic_name(raw["topic"])
        except GoQueueError as error:
            problems.append(f"sink.topic: {error}")
    columns = tuple(part.strip() for part in parts)
    kind = _format(raw, "sink", problems)
    return Sink(raw.get("topic"), raw.get("topic_from"), raw.get("table"), kind, columns, raw.get("mode"))


def _format(raw: Mapping[str, Any], path: str, problems: list[str]) -> str:
    kind = raw.get("format", "parquet")
    if kind not in FORMATS:
        guess = did_you_mean(str(kind), FORMATS)
        problems.append(f"{path}.format: {shown(kind)} is not one of {', '.join(FORMATS)}{guess}")
    return str(kind)


def _check_texts(raw: Mapping[str, Any], path: str, problems: list[str]) -> None:
    for key, value in raw.items():
        if not isinstance(value, str) or not value.strip():
            problems.append(f"{path}.{key}: {shown(value)} is not a text")


def trigger_problem(raw: object, *, batch: bool) -> str | None:
    """The problem with a trigger, ``None`` if it is valid. ``batch``: whether the trigger ``batch`` is allowed."""
    names = (AVAILABLE_NOW, BATCH) if batch else (AVAILABLE_NOW,)
    if raw in names or (isinstance(raw, str) and _INTERVAL.fullmatch(raw)):
        return None
    guess = did_you_mean(raw, names) if isinstance(raw, str) else ""
    return (
        f"trigger: {shown(raw)} is not one of available-now (read what is there, then end), an interval such as "
        f"'10 seconds' (go on until stopped){', batch (read all of it at each run)' if batch else ''}{guess}"
    )


def _normalized(name: str) -> str:
    return name.replace("_", "").lower()


def _option(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(value) if value and all(isinstance(each, str) for each in value) else None
    if isinstance(value, Mapping):
        import json

        return json.dumps(value, sort_keys=True)
    return str(value) if isinstance(value, int | str) and value != "" else None
