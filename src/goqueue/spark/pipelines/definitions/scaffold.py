"""Templates for ``goqueue pipeline new``: a commented pipeline in YAML or Python that runs unchanged."""

from __future__ import annotations

from pathlib import Path

from goqueue.model.fields import shown
from goqueue.spark.pipelines.definitions.files import NAME
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline

_YAML = """\
# A pipeline: messages from a topic, steps, rules of quality, and a sink.
#
#   goqueue pipeline plan {file} --set from=orders       check it, and see what it would do
#   goqueue pipeline run {file} --set from=orders        run it
name: {name}
summary: Orders that are worth something.

# What can be set with --set NAME=VALUE; a value is used as ${{NAME}}. A setting without a default must be set.
settings:
  from: {{doc: The topic to read.}}
  least: 0

# The options are those of Spark's format "goqueue".
source:
  topics: ${{from}}
  startingPosition: earliest      # or latest, 2026-01-31T12:00:00Z, {{"orders": {{"0": 12}}}}

# One after the other; SQL is Spark's. The columns of a message are key, value, headers, topic, partition, offset,
# timestamp, priority and trace_id.
steps:
  - decode: {{column: value, json: "id STRING, amount DOUBLE"}}      # or subject: orders-value
  - select: ["key", "value.id AS id", "value.amount AS amount"]
  - filter: "amount IS NULL OR amount >= ${{least}}"
  # - add: {{day: "current_date()"}}
  # - sql: "SELECT *, upper(id) AS name FROM input"      # without the *, select _origin and _corrupt as well

# What every row must fulfil. Otherwise: drop it, dead-letter the message it came from, or stop.
quality:
  - {{not_null: amount, otherwise: dead-letter}}      # to the topic {name}.dlq
  - {{range: amount, max: 100000, otherwise: drop}}
  # - {{regex: id, pattern: "^[A-Za-z0-9-]+$", otherwise: stop}}
  # - {{expression: "length(id) < 40", otherwise: dead-letter, topic: odd-orders}}

# Columns that are no part of a message become its value, as JSON.
sink:
  topic: {name}
# or, in its place: sink: {{table: ./{name}, format: parquet, partition_by: [day]}}

trigger: available-now        # read what is there, then end; or "10 seconds": go on until stopped; or batch
checkpoint: ./checkpoints/{name}
"""

_PYTHON = '''\
"""A pipeline: messages from a topic, steps, rules of quality, and a sink.

goqueue pipeline plan {file} --set from=orders       check it, and see what it would do
goqueue pipeline run {file} --set from=orders        run it
"""

from pyspark.sql import DataFrame, functions

from goqueue.spark.pipelines import Pipeline, Setting


def in_cents(rows: DataFrame) -> DataFrame:
    """Amounts as whole cents."""
    return rows.withColumn("amount", functions.round(functions.col("amount") * 100).cast("bigint"))


PIPELINE = Pipeline(
    name="{name}",
    summary="Orders in cents.",
    # What can be set with --set NAME=VALUE; a value is used as ${{NAME}}.
    settings=[Setting("from", "The topic to read.", required=True)],
    # The options are those of Spark's format "goqueue".
    source={{"topics": "${{from}}", "startingPosition": "earliest"}},
    # A step is a function from a DataFrame to a DataFrame, or one of those that YAML has.
    steps=[
        {{"decode": {{"column": "value", "json": "id STRING, amount DOUBLE"}}}},
        {{"select": ["key", "value.id AS id", "value.amount AS amount"]}},
        in_cents,
    ],
    # What every row must fulfil. Otherwise: drop it, dead-letter the message it came from, or stop.
    quality=[{{"not_null": "amount", "otherwise": "dead-letter"}}],
    # Columns that are no part of a message become its value, as JSON.
    sink={{"topic": "{name}"}},
    trigger="available-now",  # or "10 seconds", or "batch"
    checkpoint="./checkpoints/{name}",
)
'''


def scaffold(name: str, python: bool, folder: Path) -> Path:
    """Write a commented pipeline and return its file. An existing file is never overwritten."""
    if not NAME.fullmatch(name):
        raise InvalidPipeline(f"{shown(name)} is not a name; use 1 to 100 ASCII letters, digits, '.', '_' or '-'")
    file = folder / (name.replace("-", "_") + ".py" if python else f"{name}.yaml")
    text = (_PYTHON if python else _YAML).format(name=name, file=file.name)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise InvalidPipeline(f"{file}: it is there already and is not overwritten; choose another name") from None
    except OSError as error:
        raise InvalidPipeline(f"{file}: cannot be written: {error.strerror or error}") from None
    return file
