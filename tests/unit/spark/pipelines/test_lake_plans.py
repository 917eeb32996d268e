"""What is compacted, what a job's steps are, and what settings are refused; no Spark."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from goqueue.client.connection.topics import PartitionInfo, TopicInfo
from goqueue.coordination.transactions import series_of
from goqueue.model.errors import MissingDependency
from goqueue.spark.pipelines import archive, backfill, restore
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineFailed
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.lake.lake_compaction import days_to_compact
from goqueue.spark.pipelines.lake.lake_job import Job, JobFile, files_between, plan_steps
from goqueue.spark.pipelines.lake.lake_log import LakeFile
from goqueue.spark.pipelines.lake.lake_tables import find_lake, open_lake


def file_of(name: str, size: int, offsets: dict[int, tuple[int, int]], **other: Any) -> LakeFile:
    given = {"topic": "orders", "day": "2026-11-15", "times_us": (0, 0), "shape": "s"} | other
    rows = sum(last - first + 1 for first, last in offsets.values())
    return LakeFile(path=name, rows=rows, size_bytes=size, offsets=offsets, **given)


def test_small_files_of_a_day_are_merged_up_to_the_wanted_size() -> None:
    files = [file_of(f"small-{number}", 40, {0: (number * 10, number * 10 + 9)}) for number in range(5)]
    large = file_of("large", 60, {0: (50, 90)})
    [plan] = days_to_compact([large, *reversed(files)], 100)
    assert [[file.path for file in merge] for merge in plan.merges] == [["small-0", "small-1"], ["small-2", "small-3"]]
    assert {file.path for file in plan.unchanged} == {"large", "small-4"}


@pytest.mark.parametrize("other", [{"day": "2026-11-16"}, {"topic": "refunds"}, {"shape": "other"}])
def test_files_that_differ_are_not_merged(other: dict[str, str]) -> None:
    files = [file_of("a", 10, {0: (0, 9)}), file_of("b", 10, {0: (10, 19)}, **other)]
    assert days_to_compact(files, 100) == []


def test_a_run_that_does_not_end_waits_for_more_small_files() -> None:
    files = [file_of(str(number), 10, {0: (number, number)}) for number in range(4)]
    assert days_to_compact(files, 100, at_least=5) == []
    assert len(days_to_compact(files, 100, at_least=4)) == 1


def test_every_message_is_in_one_step_and_partitions_go_forward() -> None:
    files = [file_of("a", 1, {0: (0, 99), 1: (5, 54)}), file_of("b", 1, {0: (100, 199)}), file_of("c", 1, {2: (7, 7)})]
    steps = plan_steps(files, 80)
    assert len(steps) == 4
    for partition, wanted in ((0, range(200)), (1, range(5, 55)), (2, range(7, 8))):
        parts = [step.offsets[partition] for step in steps if partition in step.offsets]
        assert [offset for low, high in parts for offset in range(low, high)] == list(wanted)
    assert [file.path for file in steps[-1].files(files)] == ["a", "b", "c"]
    assert [file.path for file in steps[0].files(files)] == ["a"]
    assert steps[0].condition() == (
        "(partition = 0 AND offset >= 0 AND offset < 50) OR (partition = 1 AND offset >= 5 AND offset < 17)"
    )


def test_steps_without_any_file_are_left_out() -> None:
    files = [file_of("a", 1, {0: (0, 99)}), file_of("b", 1, {0: (900, 999)})]
    covered = plan_steps(files, 20)
    assert all(step.files(files) for step in covered)
    assert sum(1 for _ in covered) < 10


def test_files_outside_of_a_range_are_not_read() -> None:
    files = [file_of("old", 1, {0: (0, 0)}, times_us=(10, 20)), file_of("new", 1, {0: (1, 1)}, times_us=(20, 30))]
    assert [file.path for file in files_between(files, 21, None)] == ["new"]
    assert [file.path for file in files_between(files, None, 20)] == ["old"]
    assert len(files_between(files, 20, 21)) == 2


def test_a_job_is_found_again_by_what_it_is(tmp_path: Path) -> None:
    file = JobFile(tmp_path, ["restore", "orders", "id-1"])
    assert file.read() is None
    job = Job("restore/1", plan_steps([file_of("a", 1, {0: (0, 9)})], 5))
    job.done = 1
    file.write(job)
    again = JobFile(tmp_path, ["restore", "orders", "id-1"]).read()
    assert again == job
    assert not job.is_finished
    (name, first), (same, second) = series_of(job.key_of(0)), series_of(job.key_of(1))
    assert name == same, "the broker remembers the last of a series for good"
    assert (first, second) == (0, 1)
    assert JobFile(tmp_path, ["restore", "orders", "id-2"]).read() is None


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"lake": "l"}, "say what to archive"),
        ({"lake": "l", "topics": "a", "pattern": "b"}, "say what to archive"),
        ({"lake": "l", "pattern": "("}, "no regular expression"),
        ({"lake": "s3://b/l", "topics": "a"}, "not a folder"),
    ],
)
def test_an_archive_that_cannot_be_is_refused_before_spark_starts(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidPipeline, match=complaint):
        planned(archive.PIPELINE, given)


def test_plans_say_what_would_be_done(tmp_path: Path) -> None:
    told = planned(archive.PIPELINE, {"lake": "l", "topics": "a,b", "every": "10s"})
    assert told["source"] == "topics a,b, from where the lake ends"
    assert told["trigger"] == "every 10s, until it is stopped"
    lake = str(tmp_path)
    ranged = {"lake": lake, "topic": "a", "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
    assert "it must be empty" in planned(restore.PIPELINE, ranged)["sink"]
    told = planned(backfill.PIPELINE, ranged | {"to": "b", "rate": "500", "filter": "priority < 2"})
    assert told["source"].endswith("until 2026-01-02T00:00:00Z, only where priority < 2")
    assert told["sink"] == "topic b, which must be there; exactly once, at most 500 messages a second"


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    given = {"lake": ".", "topic": "a", "since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}
    with pytest.raises(InvalidPipeline, match="is not before until"):
        planned(restore.PIPELINE, given)


def test_a_folder_without_a_lake_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="there is no lake"):
        find_lake(tmp_path)


@pytest.mark.parametrize(("kind", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg.catalog.sql")])
def test_a_missing_package_is_named(kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=f"pip install '?{package.partition('.')[0]}"):
        open_lake(kind, tmp_path)


def test_a_run_begins_where_the_lake_ends() -> None:
    infos = {"known": topic_of(30, 0, 40), "new": topic_of(5, 0)}
    starts, begun = archive.starts_of(infos, {"known": {0: 35}, "new": {}})
    assert starts == {"known": {0: 35, 2: 0}}, "partition 2 came since, and what it has lost is to be told"
    assert begun == {"new": {0: 5, 1: 0}}


def topic_of(*earliest: int) -> TopicInfo:
    parts = [PartitionInfo(first, first + 10, 1, first + 10) for first in earliest]
    return TopicInfo("t", "id", datetime.now(UTC), {}, [], parts)


def planned(pipeline: Pipeline, given: Mapping[str, str]) -> Mapping[str, str]:
    assert pipeline.plan is not None
    return pipeline.plan(Settings(pipeline.settings, given))
