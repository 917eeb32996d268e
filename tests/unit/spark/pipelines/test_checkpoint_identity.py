"""What a checkpoint is for: written down, and refused to whoever asks for something else. All without a JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from goqueue.model.errors import CorruptData
from goqueue.model.names import check_group_name
from goqueue.spark.pipelines import replay, rollup
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.files import from_yaml
from goqueue.spark.pipelines.definitions.flow import flow_of, identity_of
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.settings import Setting, Settings
from goqueue.spark.pipelines.lake import durable_file
from goqueue.spark.pipelines.lake.durable_file import write_whole
from goqueue.spark.pipelines.running import runner
from goqueue.spark.pipelines.running.checkpoint_identity import (
    FILE,
    CheckpointIdentity,
    check_identity,
    local_folder,
    unfinished_batch,
    write_identity,
)
from goqueue.spark.pipelines.running.context import Context

NOBODY = "127.0.0.1:1"


def context(pipeline: Pipeline, checkpoint: Path, **given: object) -> Context:
    return Context(pipeline.name, Settings(pipeline.settings, given), NOBODY, str(checkpoint))


def claim(checkpoint: Path, identity: CheckpointIdentity) -> None:
    check_identity(checkpoint, identity)
    write_identity(checkpoint, identity)


def kept(claimed: Context, identity: CheckpointIdentity | None = None) -> None:
    """As a run does it that comes as far as its first query."""
    claimed.claim(identity)
    claimed.keep_claim()


def begin(checkpoint: Path, *further: str) -> None:
    """As Spark leaves it once it has planned a batch."""
    for each in ("offsets/0", *further):
        (checkpoint / each).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / each).touch()


def refused(checkpoint: Path, identity: CheckpointIdentity) -> list[str]:
    with pytest.raises(InvalidPipeline) as raised:
        claim(checkpoint, identity)
    title, *differs = str(raised.value).split("\n  ")
    assert title == f"the checkpoint {checkpoint} was begun with something else:"
    differs[-1], _, remedy = differs[-1].partition("\n")
    assert remedy == "to go on with it, ask for the same as before; else name another folder with --checkpoint"
    return differs


def test_a_checkpoint_is_refused_to_whoever_asks_for_something_else(tmp_path: Path) -> None:
    identity = CheckpointIdentity("p", {"window": "1m", "by": ""}, {"topics": "a"}, {"topic": "b"}, ["filter x"])
    claim(tmp_path, identity)
    begin(tmp_path)
    claim(tmp_path, identity)
    other = CheckpointIdentity(
        "q", {"window": "5m", "by": "key", "new": "1"}, {"topics": "a", "isolation": "read_uncommitted"}, {"table": "b"}
    )
    assert refused(tmp_path, other) == [
        "pipeline: it was p, and now is q",
        "window: it was 1m, and now is 5m",
        "by: it was not set, and now is key",
        "source.isolation: it was not set, and now is read_uncommitted",
        "sink.topic: it was b, and now is not set",
        "sink.table: it was not set, and now is b",
    ]
    claim(tmp_path, identity)


def test_what_never_began_binds_nobody(tmp_path: Path) -> None:
    claim(tmp_path / "c", CheckpointIdentity("p", {"a": "1"}))
    claim(tmp_path / "c", CheckpointIdentity("p", {"a": "2"}))
    begin(tmp_path / "c" / "part")
    assert refused(tmp_path / "c", CheckpointIdentity("p", {"a": "1"})) == ["a: it was 2, and now is 1"]


def test_steps_may_be_mended_unless_there_is_state_that_they_have_made(tmp_path: Path) -> None:
    claim(tmp_path, CheckpointIdentity("p", steps=["filter a", "filter b"]))
    begin(tmp_path)
    claim(tmp_path, CheckpointIdentity("p", steps=["filter a", "filter c"]))
    begin(tmp_path, "state/0/0/1.delta")
    assert refused(tmp_path, CheckpointIdentity("p", steps=["filter a"])) == [
        "step 2: it was filter c, and now is not set"
    ]


def test_a_claim_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(CorruptData, match=r"pipeline\.json, which tells what this checkpoint is for, cannot be read"):
        claim(tmp_path, CheckpointIdentity("p"))


YAML = """
name: p
settings: {from: a, least: 1, most: 9, often: 1 second, batch: 10, speed: {default: 1, may_change: true}}
source: {topics: "${from}", maxMessagesPerTrigger: "${batch}"}
steps: [{filter: "x > ${least} AND y < ${speed}"}, {add: {z: "1"}}]
quality: [{range: x, max: "${most}", otherwise: stop}]
sink: {topic: out}
trigger: ${often}
"""


def test_what_a_flow_is_asked_for_is_its_source_its_sink_and_the_settings_of_its_steps() -> None:
    def identity(text: str = YAML, **given: object) -> CheckpointIdentity:
        pipeline = from_yaml(text, "p.yaml")
        settings = Settings(pipeline.settings, given)
        return identity_of(pipeline, flow_of(pipeline, settings), settings)

    assert identity() == CheckpointIdentity(
        "p", {"least": "1"}, {"topics": "a"}, {"topic": "out"}, ["filter x > 1 AND y < 1", "add z 1"]
    )
    assert identity(most=5, often="available-now", batch=20) == identity()
    assert identity(speed=2).settings == identity().settings
    assert identity(least=2).settings == {"least": "2"}
    assert identity(**{"from": "b"}).source == {"topics": "b"}
    table = identity(YAML.replace("{topic: out}", "{table: ./out, partition_by: [z]}"))
    assert table.sink == {"table": "./out", "format": "parquet", "partition_by": "z"}


def test_a_flow_with_another_sink_is_refused_before_anything_starts(tmp_path: Path) -> None:
    pipeline = from_yaml(YAML, "p.yaml")
    settings = Settings(pipeline.settings, {})
    kept(context(pipeline, tmp_path), identity_of(pipeline, flow_of(pipeline, settings), settings))
    begin(tmp_path)
    other = from_yaml(YAML.replace("topic: out", "topic: elsewhere"), "p.yaml")
    with pytest.raises(InvalidPipeline, match=r"sink\.topic: it was out, and now is elsewhere"):
        runner.run(other, context(other, tmp_path))


def test_a_rollup_does_not_go_on_with_other_windows_but_with_another_pace(tmp_path: Path) -> None:
    first = {"topic": "a", "to": "m1", "window": "1m"}
    kept(context(rollup.PIPELINE, tmp_path, **first))
    begin(tmp_path / "topic")
    with pytest.raises(InvalidPipeline, match="to: it was m1, and now is m5\n  window: it was 1m, and now is 5m\n"):
        runner.run(rollup.PIPELINE, context(rollup.PIPELINE, tmp_path, topic="a", to="m5", window="5m"))
    context(rollup.PIPELINE, tmp_path, **first, trigger="10 seconds", late="5m").claim()


def test_a_replay_does_not_go_on_with_another_range_but_with_another_rate(tmp_path: Path) -> None:
    first = {"topic": "a", "to": "b", "rate": "5"}
    begun = context(replay.PIPELINE, tmp_path, **first)
    kept(begun)
    copy = replay.Copy({"0": (0, 4)}, slices=2, key="k", done=2, copied=4)
    replay._save(begun, copy)
    assert replay._find_or_start_copy(context(replay.PIPELINE, tmp_path, **{**first, "rate": "7"})) == copy
    with pytest.raises(InvalidPipeline, match="where: it was not set, and now is true"):
        runner.run(replay.PIPELINE, context(replay.PIPELINE, tmp_path, **first, where="true"))


def test_a_function_that_runs_has_all_settings_that_may_not_change(tmp_path: Path) -> None:
    pipeline = Pipeline("p", settings=[Setting("a", "A."), Setting("b", "B.", may_change=True)], run=lambda _: None)  # type: ignore[arg-type,return-value]
    kept(context(pipeline, tmp_path, a="1", b="1"))
    begin(tmp_path)
    context(pipeline, tmp_path, a="1", b="2").claim()
    with pytest.raises(InvalidPipeline, match="a: it was 1, and now is not set"):
        context(pipeline, tmp_path, b="2").claim()
    kept(context(pipeline, Path("hdfs://host/c"), a="1"))


def test_a_checkpoint_is_a_folder_of_this_machine_or_it_is_not() -> None:
    places = ("./c", "/a/c", "file:///a/c", "file:/a/c", "hdfs://host/c", "s3a://bucket/c")
    assert [local_folder(each) for each in places] == [Path("c"), *[Path("/a/c")] * 3, None, None]
    with pytest.raises(InvalidPipeline, match="hdfs://host/c is no folder of this machine; p needs one"):
        Context("p", Settings([], {}), NOBODY, "hdfs://host/c").local_checkpoint()


def test_the_group_of_a_pipeline_is_not_one_that_a_service_would_have() -> None:
    assert Context("billing", Settings([], {}), "", "").group == "pipeline.billing"
    longest = "a" * 100
    assert check_group_name(Context(longest, Settings([], {}), "", "").group) == f"pipeline.{longest}"


def test_a_batch_that_was_begun_and_not_finished_is_known(tmp_path: Path) -> None:
    assert unfinished_batch(tmp_path) is None
    begin(tmp_path, "offsets/9", "offsets/10", "offsets/.10.crc", "commits/9")
    assert unfinished_batch(tmp_path) == 10
    begin(tmp_path, "commits/10")
    assert unfinished_batch(tmp_path) is None


def test_a_small_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        steps.append(f"{name} {(tmp_path / 'new' / 'a.json').exists()}")
        real(descriptor)

    monkeypatch.setattr(durable_file.os, "fsync", fsync)
    write_whole(tmp_path / "new" / "a.json", b"one")
    assert steps == [f"{tmp_path.name} False", ".a.json.new False", "new True"]

    def fails(_: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(durable_file.os, "fsync", fails)
    with pytest.raises(OSError, match="no space"):
        write_whole(tmp_path / "new" / "a.json", b"two")
    assert (tmp_path / "new" / "a.json").read_bytes() == b"one"
