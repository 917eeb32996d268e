"""What is checked and what is written before a pipeline reads its first message. With a broker, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goqueue.model.errors import TopicNotFound
from goqueue.spark.pipelines import archive, audit, replay, restore, rollup
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.files import from_yaml
from goqueue.spark.pipelines.definitions.flow import checkpoint_of, flow_of
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running import runner
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.streaming import ReportCounter
from goqueue.testing import BrokerProcess, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("data")) as process:
        with process.client() as client:
            client.create_topic("orders", partitions=3)
            with client.producer() as producer:
                producer.send_many("orders", [f"order {number}" for number in range(6)])
        yield process


class SparkAsked(Exception):
    """Spark was to do something."""


class Rows:
    """Stands for rows: knows of a condition whether Spark would understand it."""

    def where(self, condition: str) -> Rows:
        if "nocolumn" in condition:
            raise SparkAsked("there is no nocolumn")
        return self

    def select(self, *_: object) -> Rows:
        return self


class WithoutSpark(Context):
    """Reads nothing."""

    def read(self, **_: str | int) -> Any:
        return Rows()

    def read_stream(self, *, grouped: bool = True, **_: str | int) -> Any:
        raise SparkAsked

    def write(self, *_: object, **__: object) -> None:
        raise AssertionError("nothing is to be written here")


@pytest.fixture(autouse=True)
def no_functions_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """They need a JVM."""
    monkeypatch.setattr("pyspark.sql.functions.expr", lambda _: Rows())
    monkeypatch.setattr(Rows, "alias", lambda self, _: self, raising=False)


def context(broker: BrokerProcess, pipeline: Pipeline, checkpoint: Path, **given: object) -> Context:
    return WithoutSpark(pipeline.name, Settings(pipeline.settings, given), broker.address, str(checkpoint))


def begun(broker: BrokerProcess, checkpoint: Path, **given: object) -> replay.Copy:
    return replay._find_or_start_copy(context(broker, replay.PIPELINE, checkpoint, topic="orders", **given))


FLOW = "name: p\nsource: {topics: TOPIC}\nsteps: [{filter: x}]\nsink: {topic: flow-out}\n"


def test_what_never_begins_leaves_no_folder(broker: BrokerProcess, tmp_path: Path) -> None:
    place = tmp_path / "a" / "checkpoint"
    flow = from_yaml(FLOW.replace("TOPIC", "oders"), "p.yaml")
    for pipeline, given in ((replay.PIPELINE, {"to": "b"}), (rollup.PIPELINE, {"to": "b"}), (flow, {})):
        wanted = {"topic": "oders", **given} if given else {}
        with pytest.raises(TopicNotFound, match="oders"):
            runner.run(pipeline, context(broker, pipeline, place, **wanted))
    for pipeline in (replay.PIPELINE, rollup.PIPELINE):
        with pytest.raises(InvalidPipeline, match=r"to: topic name '\.\./b' is not allowed"):
            runner.run(pipeline, context(broker, pipeline, place, topic="orders", to="../b"))
    with pytest.raises(SparkAsked):
        begun(broker, place, to="b", where="nocolumn = 1")
    assert list(tmp_path.iterdir()) == []
    with broker.client() as client:
        assert client.list_topics() == ["orders"]


def test_a_rollup_makes_its_topic_before_spark_starts(broker: BrokerProcess, tmp_path: Path) -> None:
    asked = context(broker, rollup.PIPELINE, tmp_path / "c", topic="orders", to="by-minute")
    with pytest.raises(SparkAsked):
        rollup.run(asked)
    with broker.client() as client:
        assert len(client.describe_topic("by-minute").partitions) == 3
    assert not (tmp_path / "c").exists()
    assert rollup.plan(asked.settings)["sink"] == "topic by-minute, made if it is not there; exactly once"


def test_a_replay_is_bound_to_what_it_was_asked_for_once_something_is_copied(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    first = begun(broker, tmp_path, to="copy")
    assert (first.total, first.done) == (6, 0)
    assert begun(broker, tmp_path, to="copy", rate="5") == first, "the same again goes on"

    other = begun(broker, tmp_path, to="copy", where="true")
    assert other.key != first.key, "nothing was done, so the checkpoint may be for something else"
    with pytest.raises(SparkAsked):
        begun(broker, tmp_path, to="copy", where="nocolumn = 1")
    assert begun(broker, tmp_path, to="copy", where="true") == other, "what failed has taken nothing over"

    with broker.client() as client:
        # As if it had been killed after its first slice was published and before that was noted.
        client.commit_many(other.commit_key(0), [])
    with pytest.raises(InvalidPipeline, match="where: it was true, and now is not set"):
        begun(broker, tmp_path, to="copy")
    replay._save(context(broker, replay.PIPELINE, tmp_path, topic="orders", to="copy"), replace(first, done=1))
    with pytest.raises(InvalidPipeline, match="where: it was true, and now is not set"):
        begun(broker, tmp_path, to="copy")
    assert json.loads((tmp_path / "pipeline.json").read_bytes())["settings"]["where"] == "true"


@pytest.mark.parametrize(
    ("pipeline", "given", "told"),
    [
        (replay.PIPELINE, {"topic": "a", "to": "bad/name!"}, "to: topic name 'bad/name!' is not allowed"),
        (replay.PIPELINE, {"topic": "a/b", "to": "c d"}, "topic: topic name 'a/b' is not .*; to: topic name 'c d' is"),
        (rollup.PIPELINE, {"topic": "a", "to": "__a"}, "to: topic name '__a' begins with '__'"),
        (restore.PIPELINE, {"topic": "a", "lake": "./nolake"}, r"lake: /.*/nolake is no folder"),
        (restore.PIPELINE, {"topic": "a", "to": "b!", "lake": "."}, "to: topic name 'b!' is not allowed"),
        (archive.PIPELINE, {"topics": "a,b!", "lake": "new"}, "topics: topic name 'b!' is not allowed"),
        (archive.PIPELINE, {"topics": "a", "lake": "new", "path": "nope"}, r"path: /.*/nope is no folder"),
        (audit.PIPELINE, {"topic": "a!", "group": "b!"}, "topic: topic name 'a!' is not .*; group: group name 'b!'"),
        (audit.PIPELINE, {"topic": "a", "group": "b", "path": "nope"}, r"path: /.*/nope is no folder"),
        (from_yaml(FLOW.replace("TOPIC", "a/b"), "p.yaml"), {}, r"source\.topics: topic name 'a/b' is not allowed"),
        (from_yaml(FLOW.replace("flow-out", "b!"), "p.yaml"), {}, r"sink\.topic: topic name 'b!' is not allowed"),
        (
            from_yaml(FLOW + "quality: [{not_null: a, otherwise: dead-letter, topic: b!}]", "p.yaml"),
            {},
            r"quality\[0\]: topic: topic name 'b!' is not allowed",
        ),
    ],
)  # fmt: skip
def test_what_cannot_run_is_not_planned(
    pipeline: Pipeline, given: dict[str, str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(pipeline.settings, given)
    with pytest.raises(InvalidPipeline, match=told):
        runner.describe_plan(pipeline, settings, checkpoint_of(pipeline, settings))


@pytest.mark.parametrize(
    ("steps", "left_out"),
    [
        ('[{filter: "a > 1"}]', 4),
        (
            '[{decode: {json: "a INT"}}, {select: ["value.a AS a", "array_max(b)"]}, {add: {c: "a + 1"}}, {filter: a}]',
            4,
        ),
        ('[{select: ["key"]}]', None),
        ('[{filter: a}, {sql: "SELECT DISTINCT key FROM input"}]', None),
        ('[{filter: a}, {select: ["explode(items) AS item"]}]', None),
        ('[{filter: a}, {add: {b: "posexplode_outer (items)"}}]', None),
        ('[{filter: a}, {select: ["COUNT(*)"]}]', None),
    ],
)
def test_what_steps_leave_out_is_counted_where_each_message_is_one_row(steps: str, left_out: int | None) -> None:
    pipeline = from_yaml(f"name: p\nsource: {{topics: a}}\nsteps: {steps}\nsink: {{topic: b}}\n", "p.yaml")
    flow = flow_of(pipeline, Settings((), {}))
    assert flow.filtered_by_steps(10, 6) == left_out
    assert replace(flow, trigger="batch").filtered_by_steps(10, 6) is None


def test_a_batch_that_only_writes_windows_is_one_that_was_done() -> None:
    counter = ReportCounter()
    counter.add({"batchId": 3, "timestamp": "a", "numInputRows": 0, "observedMetrics": {"windows": {"windows": 0}}})
    counter.add({"batchId": 4, "timestamp": "b", "numInputRows": 0, "observedMetrics": {"windows": {"windows": 8}}})
    counter.finish()
    assert (counter.first, counter.totals.batches) == (4, 0)
