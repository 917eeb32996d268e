"""Rules as SQL, progress reports as sums, and Spark's errors as sentences: all without a JVM."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from goqueue.model.errors import BrokerUnavailable, TopicNotFound
from goqueue.spark.pipelines.definitions.problems import (
    InvalidPipeline,
    QueryFailed,
    QueryRejected,
    RuleBroken,
    SparkFailed,
    WorkerStartTimeout,
)
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.replay import Copy
from goqueue.spark.pipelines.rollup import PIPELINE as ROLLUP
from goqueue.spark.pipelines.rollup import key_sql, name_of, percentile
from goqueue.spark.pipelines.running.quality import parse_rules, quoted, stop_sql, topic_sql, verdict_sql
from goqueue.spark.pipelines.running.spark_errors import to_goqueue_error
from goqueue.spark.pipelines.running.streaming import ReportCounter, Totals, ends_of, lag_of


def test_rules_are_sql_that_a_null_passes() -> None:
    found: list[str] = []
    rules = parse_rules(
        [
            {"not_null": "a", "otherwise": "dead-letter"},
            {"range": "b.c", "max": 2.5, "otherwise": "drop"},
            {"regex": "key", "pattern": r"^it's \d$", "otherwise": "stop"},
            {"expression": "a < b OR c", "otherwise": "dead-letter", "name": "small", "topic": "odd"},
        ],
        found,
    )
    assert found == []
    assert verdict_sql(rules) == (
        "CASE WHEN NOT coalesce((a) IS NOT NULL, true) THEN 0 "
        "WHEN NOT coalesce((b.c) <= 2.5, true) THEN 1 "
        r"WHEN NOT coalesce(CAST(key AS STRING) RLIKE '^it\'s \\d$', true) THEN 2 "
        "WHEN NOT coalesce((a < b OR c), true) THEN 3 END"
    )
    assert topic_sql(rules, "v", "p.dlq").endswith(
        "WHEN 0 THEN 'p.dlq' WHEN 1 THEN 'p.dlq' WHEN 2 THEN 'p.dlq' WHEN 3 THEN 'odd' END"
    )
    assert stop_sql(rules, "v", "c", "''").startswith("CASE WHEN v IN (2) THEN CAST(raise_error(")
    assert stop_sql(rules[:2], "v", "c", "''") == "v"
    assert rules[3].name == "small"


def test_a_text_in_sql_cannot_end_its_literal() -> None:
    assert quoted("a'b\\") == "'a\\'b\\\\'"


def report(batch: int, count: int, at: str, **observed: int) -> dict[str, object]:
    return {"batchId": batch, "numInputRows": count, "timestamp": at, "observedMetrics": {"q": observed}}


def test_each_batch_is_counted_once_however_often_it_is_seen() -> None:
    counter = ReportCounter()
    assert counter.add(report(4, 10, "a", rows=10))
    assert not counter.add(report(4, 10, "a", rows=10))
    assert counter.add(report(5, 0, "b", rows=0))
    assert counter.add(report(5, 3, "c", rows=2))
    assert not counter.add(report(4, 10, "a", rows=10))
    assert (counter.messages, counter.batch) == (13, 5)
    totals = counter.finish()
    assert (totals.messages, totals.batches, totals.observed) == (13, 2, {"q": {"rows": 12}})


def test_lag_is_what_lies_between_the_end_of_the_batch_and_that_of_the_topic() -> None:
    end, latest = {"a": {"0": 5, "1": 7}}, {"a": {"0": 8, "1": 7}, "b": {"0": 2}}
    source = {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
    assert lag_of({"sources": [source]}) == 5
    assert lag_of({"sources": [{"endOffset": end, "latestOffset": latest}]}) == 5
    assert lag_of({"sources": [{"endOffset": "7", "latestOffset": "9"}]}) is None


def test_how_far_queries_are_is_told_by_the_first_of_those_that_read_the_same() -> None:
    first = {"sources": [{"endOffset": json.dumps({"a": {"0": 5}})}]}
    second = {"sources": [{"endOffset": {"a": {"0": 3, "1": 2}, "b": {"0": 1}}}, {"endOffset": None}]}
    assert ends_of([first, second, {}]) == {"a": {"0": 5, "1": 2}, "b": {"0": 1}}


def test_a_batch_that_is_counted_again_is_told() -> None:
    counter = ReportCounter()
    for each in (report(4, 0, "a"), report(4, 3, "b"), report(5, 1, "c")):
        counter.add(each)
    counter.finish()
    assert counter.first == 4
    assert Totals().notes() == []
    again, stopped = Totals(again=4, stopped=True).notes()
    assert again.startswith("batch 4 was begun by an earlier run and is counted here")
    assert stopped.startswith("stopped before the end")


class AnalysisException(Exception):
    pass


class StreamingQueryException(Exception):
    """Called as the one of Spark."""


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (
            RuntimeError("Aborted\n[RAISED] goqueue-rule-broken: r: a is null (t, partition 0, offset 3)\nat x"),
            RuleBroken,
            "a rule stopped the pipeline: r: a is null (t, partition 0, offset 3)",
        ),
        (
            RuntimeError("Traceback\n  File\ngoqueue.model.errors.TopicNotFound: topic 'a' does not exist\n\tat org.x"),
            TopicNotFound,
            "topic 'a' does not exist",
        ),
        (
            AnalysisException("[UNRESOLVED_COLUMN] A column `a` cannot be resolved. SQLSTATE: 42703; line 1;\n'Filter"),
            QueryRejected,
            "Spark does not understand it: A column `a` cannot be resolved.",
        ),
        (
            RuntimeError("[STREAM_FAILED] Query failed\n[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n\tat y"),
            SparkFailed,
            "Spark failed: Division by zero.",
        ),
        (StreamingQueryException("Query [id = 1] terminated"), QueryFailed, "Spark failed: Query [id = 1] terminated"),
        (
            RuntimeError("Job aborted\norg.apache.spark.SparkException: Python worker failed to connect back.\n\tat x"),
            WorkerStartTimeout,
            "Spark failed: its Python workers did not start in time",
        ),
        (ValueError(""), SparkFailed, "Spark failed: ValueError"),
        (BrokerUnavailable("gone"), BrokerUnavailable, "gone"),
    ],
)  # fmt: skip
def test_an_error_of_spark_is_told_in_one_line(error: Exception, kind: type[Exception], told: str) -> None:
    made = to_goqueue_error(error)
    assert (type(made), str(made)) == (kind, told)


def test_slices_of_a_replay_cover_the_range_without_a_gap() -> None:
    copy = Copy({"0": (10, 23), "1": (5, 5), "2": (0, 4)}, slices=5, key="k")
    edges = [copy.offsets_at_slice(number) for number in range(6)]
    assert edges[0] == {"0": 10, "1": 5, "2": 0}
    assert edges[5] == {"0": 23, "1": 5, "2": 4}
    assert all(before[each] <= after[each] for before, after in pairwise(edges) for each in before)
    assert copy.total == 17


def test_columns_of_a_rollup_are_named_by_their_paths() -> None:
    assert [name_of(each) for each in ("key", "$.amount", "$.a.b[0].c")] == ["key", "amount", "a_b_0_c"]
    by = Settings(ROLLUP.settings, {"topic": "a", "by": "key,$.a.b"})
    assert key_sql(by) == "to_json(struct(start, key, a_b), map('ignoreNullFields', 'false'))"
    assert [percentile(each) for each in (0.5, 0.95, 0.999)] == ["p50", "p95", "p99_9"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "say where windows are to go"),
        ({"to": "x", "by": "country"}, "country is not a path into a JSON value; write it like"),
        ({"to": "x", "of": "$.a", "by": "$.a"}, "two columns would be called a"),
        ({"to": "x", "percentiles": "95"}, "95 is not a share between 0 and 1"),
        ({"to": "x", "slide": "2m"}, "slide is longer than window"),
        (
            {"to": "x", "trigger": "availble-now"},
            "trigger: 'availble-now' is not one of .*did you mean 'available-now'",
        ),
        ({"to": "x", "trigger": "batch"}, "trigger: 'batch' is not one of"),
    ],
)
def test_a_rollup_that_cannot_be_is_refused_before_anything_runs(given: dict[str, str], told: str) -> None:
    assert ROLLUP.plan is not None
    with pytest.raises(InvalidPipeline, match=told):
        ROLLUP.plan(Settings(ROLLUP.settings, {"topic": "a", **given}))
