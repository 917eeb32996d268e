"""Pipelines on a real Spark and a real broker."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from goqueue import Priority
from goqueue.cli.app import app
from goqueue.spark.pipelines import replay, rollup
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.files import from_yaml
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, RuleBroken
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running import runner
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.quality import (
    HEADER_ERROR,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_PIPELINE,
    HEADER_RULE,
    HEADER_TOPIC,
)
from goqueue.spark.pipelines.running.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import SharedBroker  # type: ignore[import-not-found]


class Ran:
    """Runs pipelines, each with a checkpoint of its own unless one is named."""

    def __init__(self, spark: SparkSession, broker: SharedBroker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.reports: list[Progress] = []

    def context(self, pipeline: Pipeline, checkpoint: str = "", **given: object) -> Context:
        place = str(self.folder / (checkpoint or pipeline.name))
        return Context(
            name=pipeline.name,
            settings=Settings(pipeline.settings, given),
            brokers=self.broker.address,
            checkpoint=place,
            tell=self.reports.append,
            given_session=self.spark,
        )

    def __call__(self, pipeline: Pipeline, checkpoint: str = "", **given: object) -> Summary:
        return runner.run(pipeline, self.context(pipeline, checkpoint, **given))


@pytest.fixture
def ran(spark: SparkSession, broker: SharedBroker, tmp_path: Path) -> Ran:
    return Ran(spark, broker, tmp_path)


def values(broker: SharedBroker, topic: str) -> list[bytes]:
    return sorted(record.value for record in broker.client.read(topic))


def send_json(broker: SharedBroker, topic: str, *rows: dict[str, Any] | bytes) -> None:
    with broker.client.producer() as producer:
        for row in rows:
            value = row if isinstance(row, bytes) else json.dumps(row).encode()
            key = row.get("key", "k") if isinstance(row, dict) else "k"
            producer.send(topic, value, key=key, headers={"shop": "north"}, priority=Priority.HIGH)


ORDERS = """
name: paid-{out}
source: {{topics: {topic}}}
steps:
  - decode: {{column: value, json: "amount DOUBLE, total DOUBLE"}}
  - select: ["key", "value.amount AS amount", "value.total AS total"]
quality:
  - {{not_null: amount, otherwise: dead-letter}}
  - {{range: amount, min: 0, otherwise: drop}}
  - {{regex: key, pattern: "^[a-z']+$", otherwise: {regex}}}
  - {{expression: "amount <= total", otherwise: dead-letter, topic: odd-{out}}}
sink: {{topic: {out}}}
trigger: 1 hour
"""


def test_a_rule_that_stops_loses_nothing_and_rows_and_dead_letters_are_written_together(
    ran: Ran, broker: SharedBroker
) -> None:
    topic, out = broker.topic(1), broker.topic(1)
    null = {"amount": None}
    rows = {"amount": 5, "total": 9}, null, {"amount": -1}, {"amount": 5, "total": 1}, {"amount": 1, "key": "WRONG"}
    send_json(broker, topic, *rows, b"not json")
    with pytest.raises(
        RuleBroken, match=rf"regex key: key does not match .*: WRONG \({topic}, partition 0, offset 4\)"
    ):
        ran(from_yaml(ORDERS.format(topic=topic, out=out, regex="stop"), "orders.yaml"))
    assert values(broker, out) == []

    elsewhere = from_yaml(ORDERS.format(topic=topic, out=out, regex="drop"), "orders.yaml")
    with pytest.raises(InvalidPipeline, match=rf"sink\.topic: it was {out}, and now is not set"):
        ran(replace(elsewhere, sink={"table": str(ran.folder / "table")}))

    mended = from_yaml(ORDERS.format(topic=topic, out=out, regex="drop"), "orders.yaml")
    context = ran.context(mended)
    context.tell = lambda _: context.stopping.set()
    summary = runner.run(mended, context)
    assert values(broker, out) == [b'{"amount":5.0,"total":9.0}']
    letters = {record.value: record for record in broker.client.read(f"paid-{out}.dlq")}
    assert set(letters) == {b"not json", json.dumps(null).encode()}
    letter = letters[json.dumps(null).encode()]
    headers = {name: value.decode() for name, value in letter.headers}
    assert (letter.key, letter.priority, headers["shop"]) == (b"k", Priority.HIGH, "north")
    assert headers[HEADER_PIPELINE] == f"paid-{out}"
    assert (headers[HEADER_RULE], headers[HEADER_ERROR]) == ("not_null amount", "amount is null")
    assert (headers[HEADER_TOPIC], headers[HEADER_PARTITION], headers[HEADER_OFFSET]) == (topic, "0", "1")
    assert values(broker, f"odd-{out}") == [b'{"amount": 5, "total": 1}']
    assert summary.numbers["messages read"] == 6
    assert (summary.numbers["rows written"], summary.numbers["dead letters"], summary.numbers["dropped"]) == (1, 3, 2)
    assert [row[2] for row in summary.tables[0].rows] == [1, 1, 1, 1, 1]
    assert "batch 0 was begun by an earlier run" in summary.notes[0]
    assert "stopped before the end" in summary.notes[1]
    # There was no batch behind the last one that could have told the group.
    assert [each.lag for each in broker.client.describe_group(f"pipeline.paid-{out}").partitions] == [0]


def test_a_table_has_its_dead_letters_in_a_topic_and_goes_to_another_as_a_batch(ran: Ran, broker: SharedBroker) -> None:
    topic, out = broker.topic(1), broker.topic(1)
    send_json(broker, topic, {"amount": 5, "day": "mon"}, {"amount": 7, "day": "tue"}, {"amount": None, "day": "tue"})
    table = ran.folder / "out"
    pipeline = Pipeline(
        name=f"table-{topic}",
        source={"topics": topic, "columns": "value"},
        steps=[
            {"decode": {"json": "amount DOUBLE, day STRING"}},
            lambda rows: rows.selectExpr("value.*", "_origin", "_corrupt"),
            {"add": {"amount": "amount * 2"}},
            {"sql": "SELECT *, upper(day) AS name FROM input"},
        ],
        quality=[{"not_null": "amount", "otherwise": "dead-letter"}],
        sink={"table": str(table), "partition_by": ["day"]},
    )
    summary = ran(pipeline)
    assert values(broker, f"table-{topic}.dlq") == [b'{"amount": null, "day": "tue"}']
    assert (summary.numbers["rows written"], summary.numbers["dead letters"]) == (2, 1)
    assert summary.files == [str(table)]
    assert (ran.reports[-1].done, ran.reports[-1].lag) == (3, 0)

    load = Pipeline(
        name="load",
        source={"table": str(table)},
        steps=[lambda rows: rows.coalesce(1).withColumnRenamed("day", "key")],
        quality=[{"expression": "key = 'tue'", "otherwise": "drop"}],
        sink={"topic_from": f"concat('{out}', '')"},
        trigger="batch",
    )
    loaded = ran(load)
    assert [(each.key, each.value) for each in broker.client.read(out)] == [(b"tue", b'{"amount":14.0,"name":"TUE"}')]
    assert (loaded.numbers["rows written"], loaded.numbers["dropped"]) == (1, 1)


def test_what_spark_does_not_understand_is_told_in_a_line(ran: Ran, broker: SharedBroker) -> None:
    topic = broker.topic(1)
    pipeline = Pipeline(name="odd", source={"topics": topic}, steps=[{"filter": "amuont > 1"}], sink={"topic": topic})
    with pytest.raises(InvalidPipeline, match=r"^Spark does not understand it: .*amuont.*$") as raised:
        ran(pipeline)
    assert "\n" not in str(raised.value)
    wrong = Pipeline(name="odd", source={"topics": topic}, steps=[{"add": {"day": "1"}}], sink={"topic": topic})
    with pytest.raises(InvalidPipeline, match="day: no column of a message"):
        ran(wrong)


def test_a_replay_goes_on_where_it_was_stopped_and_copies_nothing_twice(ran: Ran, broker: SharedBroker) -> None:
    topic, out = broker.topic(1), f"{broker.topic(1)}-copy"
    with broker.client.producer() as producer:
        for number in range(12):
            producer.send(topic, b"%d" % number, key=f"k{number}", headers={"n": str(number)}, priority=Priority.LOW)
    asked = {"topic": topic, "to": out, "where": "CAST(CAST(value AS STRING) AS INT) >= 2", "rate": "3"}
    with pytest.raises(InvalidPipeline, match=r"Spark does not understand it: .*nocolumn"):
        ran(replay.PIPELINE, **{**asked, "where": "nocolumn = 1"})
    context = ran.context(replay.PIPELINE, **asked)
    assert not Path(context.checkpoint).exists()
    context.tell = lambda _: context.stopping.set()
    first = runner.run(replay.PIPELINE, context)
    assert 0 < first.numbers["messages read"] < 12
    assert "stopped before the end" in first.notes[0]
    state = Path(context.checkpoint) / "replay.json"
    # As if it had been killed after the slice was published and before that was noted.
    told = json.loads(state.read_text())
    state.write_text(json.dumps({**told, "done": 0, "copied": 0}))
    with broker.client.producer() as producer:
        producer.send(topic, b"99").result()
    # The pace may be another, the range may not.
    second = ran(replay.PIPELINE, **{**asked, "rate": "10000"})
    assert second.numbers["messages in the range"] == 12
    copies = list(broker.client.read(out))
    assert sorted(int(record.value) for record in copies) == list(range(2, 12))
    assert {(record.headers, record.priority) for record in copies} == {
        ((("n", b"%d" % number),), Priority.LOW) for number in range(2, 12)
    }
    assert "this range was copied before" in ran(replay.PIPELINE, **asked).notes[0]


def test_what_the_page_shows_is_what_happens(
    ran: Ran, broker: SharedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOQUEUE_BROKERS", broker.address)
    # The session is that of all tests.
    monkeypatch.setattr(Context, "close", lambda self: None)
    broker.client.create_topic("orders", partitions=1)
    rows = [
        {"id": "a", "amount": 5, "key": "ada", "at": "2026-01-01T10:00:10Z"},
        {"id": "b", "key": "ada", "at": "2026-01-01T10:00:20Z"},
        {"id": "c", "amount": -1, "key": None, "at": "2026-01-01T10:02:00Z"},
    ]
    send_json(broker, "orders", *rows)
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```\n", page, re.MULTILINE | re.DOTALL)
    shown = [(text, blocks[number + 1][1]) for number, (kind, text) in enumerate(blocks) if kind == "bash"]
    Path("paid-orders.yaml").write_text(next(text for kind, text in blocks if kind == "yaml"))
    assert len(shown) == 4
    for command, expected in shown:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, result.stderr
        pattern = ".*?".join(re.escape(piece) for piece in expected.strip().split("…"))
        assert re.fullmatch(pattern, result.stdout.strip(), re.DOTALL), result.stdout
    assert values(broker, "paid-orders") == [b'{"id":"a","amount":5.0}']
    assert len(values(broker, "orders-copy")) == 2
    assert [each.lag for each in broker.client.describe_group("pipeline.paid-orders").partitions] == [0]
    _a_rollup_goes_on(ran, broker)


def _a_rollup_goes_on(ran: Ran, broker: SharedBroker) -> None:
    """From the one on the page, whose last window waits in the checkpoint."""
    send_json(broker, "orders", {"key": "ada", "at": "2026-01-01T10:09:00Z"})
    asked = {"topic": "orders", "to": "orders-by-minute", "by": "key", "of": "$.amount", "time": "$.at"}
    summary = ran(rollup.PIPELINE, "checkpoints/rollup/orders-1m", **asked)
    assert summary.numbers["windows written"] == 1
    assert "1 window waits" in summary.notes[0]
    windows = {record.key: json.loads(record.value) for record in broker.client.read("orders-by-minute")}
    first, second = (
        b'{"start":"2026-01-01T10:00:00.000Z","key":"ada"}',
        b'{"start":"2026-01-01T10:02:00.000Z","key":null}',
    )
    assert set(windows) == {first, second}
    told = windows[first]
    assert {name: told[name] for name in told if name not in ("start", "end")} == {
        "key": "ada", "count": 2, "amount_sum": 5.0, "amount_avg": 5.0, "amount_min": 5.0, "amount_max": 5.0,
        "amount_p50": 5.0, "amount_p95": 5.0, "amount_p99": 5.0,
    }  # fmt: skip
    assert (windows[second]["key"], windows[second]["count"]) == (None, 1)
    with pytest.raises(InvalidPipeline, match="window: it was 1m, and now is 5m"):
        ran(rollup.PIPELINE, "checkpoints/rollup/orders-1m", window="5m", **asked)


def test_sigterm_finishes_the_micro_batch_and_ends_with_the_summary(spark: SparkSession, tmp_path: Path) -> None:
    # Files only: what it is about is the signal and the JVM, which is quicker without messages.
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"amount": 1}')
    (tmp_path / "p.yaml").write_text(
        "name: p\nsource: {table: in, format: json, schema: amount INT}\nsink: {table: out}\ntrigger: 1 hour\n"
    )
    goqueue = str(Path(sys.executable).with_name("goqueue"))
    command = [goqueue, "pipeline", "run", "p.yaml", "--json", "--master", "local[1]"]
    fast = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    with subprocess.Popen(
        [*command, "--conf", fast], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            reached = threading.Event()
            while process.poll() is None and not (tmp_path / "checkpoints" / "p" / "offsets" / "0").exists():
                reached.wait(0.05)
            # The batch is planned and not done.
            process.send_signal(signal.SIGTERM)
            told, errors = process.communicate(timeout=200)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert json.loads(told)["numbers"]["messages_read"] == 1
    assert json.loads(told)["notes"][0].startswith("stopped before the end")
    assert errors.splitlines()[:2] == ["p: starting Spark", "p: running"]
    assert "p: batch 0, 1 message" in errors
    assert len(errors.splitlines()) <= 4, errors
    assert [row.amount for row in spark.read.parquet(str(tmp_path / "out")).collect()] == [1]


def test_other_rows_for_what_was_committed_fail_a_run_unless_it_is_told_to_trust(
    spark: SparkSession, broker: SharedBroker, ran: Ran
) -> None:
    """As when a checkpoint was restored from an older copy."""
    topic = broker.topic()

    def rows(count: int) -> Pipeline:
        def run(context: Context) -> Summary:
            context.write(spark.range(count).selectExpr("CAST(id AS STRING) AS value"), topic=topic, commitKey=topic)
            return Summary()

        return Pipeline(name="rows", run=run)

    ran(rows(2))
    with pytest.raises(Exception, match=r"2 messages were committed .* 3 rows: .* pipeline run … --trust-committed\)"):
        ran(rows(3))
    runner.run(rows(3), replace(ran.context(rows(3)), trust_committed=True))
    assert values(broker, topic) == [b"0", b"1"]
