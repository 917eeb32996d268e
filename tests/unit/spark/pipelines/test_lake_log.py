"""The log of a lake, the folders beside it, and what is done after a kill; no Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from doubles.synced import note_syncs

from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineFailed
from goqueue.spark.pipelines.lake import lake as lake_module
from goqueue.spark.pipelines.lake import lake_log
from goqueue.spark.pipelines.lake.lake import Lake, lake_folder
from goqueue.spark.pipelines.lake.lake_log import Entry, LakeFile, LakeLog, TopicMark, ends_of

DAY = "2026-11-15"
MARKS = {"orders": TopicMark("id-1", 2)}


class Killed(BaseException):
    """In place of kill -9: nothing that tidies up after ordinary errors sees it."""


def file_of(staged: str, first: int, last: int, *, topic: str = "orders", partition: int = 0) -> LakeFile:
    path = f"topic={topic}/day={DAY}/{staged}/part.parquet"
    return LakeFile(path, topic, DAY, last - first + 1, 100, {partition: (first, last)}, (0, 1), "shape")


def stage(lake: Lake, first: int, last: int, topics: tuple[str, ...] = ("orders",)) -> tuple[str, list[LakeFile]]:
    staged, folder = lake.new_stage()
    files = [file_of(staged, first, last, topic=topic) for topic in topics]
    for topic in topics:
        place = folder / f"topic={topic}" / f"day={DAY}"
        place.mkdir(parents=True)
        (place / "part.parquet").write_text(f"{first}-{last}")
    return staged, files


def visible(lake: Lake) -> list[str]:
    return sorted(path.read_text() for path in lake.folder.glob("topic=*/day=*/*/*.parquet"))


def test_a_batch_is_there_once_it_is_in_the_log_and_its_files_are_in_their_places(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.writing():
        staged, files = stage(lake, 0, 9)
        assert visible(lake) == []
        lake.add(staged, files, MARKS)
    again = Lake(tmp_path)
    assert visible(again) == ["0-9"]
    assert again.ends(MARKS) == {"orders": {0: 10}}
    assert again.files("orders") == files
    assert list((tmp_path / "_staging").iterdir()) == []


def test_the_same_offsets_are_refused_whoever_brings_them(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add(*stage(lake, 0, 9), MARKS)
    staged, files = stage(lake, 9, 12)
    with pytest.raises(PipelineFailed, match="up to offset 10, and offset 9 came again"):
        lake.add(staged, files, MARKS)
    assert Lake(tmp_path).ends(MARKS) == {"orders": {0: 10}}


def test_of_two_writers_with_the_same_number_the_first_wins(tmp_path: Path) -> None:
    one, other = LakeLog(tmp_path), LakeLog(tmp_path)
    one.append(Entry("a", [file_of("a", 0, 1)], ends={"orders": {0: 2}}))
    with pytest.raises(PipelineFailed, match="another run writes to this lake"):
        other.append(Entry("b", [file_of("b", 0, 1)], ends={"orders": {0: 2}}))
    other.read()
    assert list(other.state.files) == [file_of("a", 0, 1).path]


def test_an_entry_is_on_the_disk_before_it_has_its_number_and_then_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LakeLog(tmp_path)
    log.append(Entry("a", [file_of("a", 0, 1)], ends={"orders": {0: 2}}))
    folder = log._folder
    numbers = {path.name for path in folder.iterdir()}

    def there(path: Path) -> tuple[str, bool]:
        return path.name, {each.name for each in folder.iterdir() if not each.name.startswith(".")} != numbers

    noted = note_syncs(monkeypatch, there)
    log.append(Entry("b", [file_of("b", 2, 3)], ends={"orders": {0: 4}}))
    assert noted == [("..b.new", False), (folder.name, False), (folder.name, True)]


def test_one_run_at_a_time_writes(tmp_path: Path) -> None:
    with Lake(tmp_path).writing(), pytest.raises(PipelineFailed, match="another run writes"), Lake(tmp_path).writing():
        pass


def test_a_kill_before_the_log_has_the_batch_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    staged, files = stage(lake, 0, 9)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", _killed)
        with pytest.raises(Killed):
            lake.add(staged, files, MARKS)
    after = Lake(tmp_path)
    with after.writing():
        assert visible(after) == []
        assert list((tmp_path / "_staging").iterdir()) == []
        after.add(*stage(after, 0, 9), MARKS)
    assert visible(after) == ["0-9"]


def test_a_kill_between_two_renames_is_completed_by_the_next_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    staged, files = stage(lake, 0, 9, ("orders", "refunds"))
    renames: list[Path] = []
    real = Path.rename

    def once(self: Path, target: Path) -> Path:
        if renames:
            raise Killed
        renames.append(target)
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", once)
        with pytest.raises(Killed):
            lake.add(staged, files, MARKS | {"refunds": TopicMark("id-2", 1)})
    lake.discard(staged)
    assert visible(lake) == ["0-9"]
    after = Lake(tmp_path)
    with after.reading():
        assert visible(after) == ["0-9", "0-9"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_day_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    if not at_once:
        monkeypatch.setattr(lake_module, "_exchange_names", lambda one, other: False)
    lake = Lake(tmp_path)
    old = []
    for first in (0, 10):
        staged, files = stage(lake, first, first + 9)
        lake.add(staged, files, MARKS)
        old += files
    staged, folder = lake.new_stage()
    target = folder / "topic=orders" / f"day={DAY}" / staged
    target.mkdir(parents=True)
    (target / "part.parquet").write_text("0-19")
    merged = file_of(staged, 0, 19)
    real = lake._finish
    monkeypatch.setattr(lake, "_finish", _killed)
    with pytest.raises(Killed):
        lake.replace(staged, old, [merged])
    lake.discard(staged)
    assert visible(lake) == ["0-9", "10-19"]
    monkeypatch.setattr(lake, "_finish", real)
    after = Lake(tmp_path)
    for _ in range(2):
        with after.reading():
            assert visible(after) == ["0-19"]
    assert after.files("orders") == [merged]
    assert after.ends(MARKS) == {"orders": {0: 20}}


def test_nothing_is_moved_away_while_somebody_reads(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with Lake(tmp_path).reading(), lake.removing_files() as allowed:
        assert not allowed
    with lake.removing_files() as allowed:
        assert allowed


def test_a_log_that_was_summed_up_says_the_same(tmp_path: Path) -> None:
    log = LakeLog(tmp_path)
    for number in range(5):
        name = str(number)
        log.append(Entry(name, [file_of(name, number * 10, number * 10 + 9)], ends={"orders": {0: number * 10 + 10}}))
    before = log.state
    log.write_snapshot(at_least=5)
    assert [path.name for path in tmp_path.glob("*.json")] == [f"state-{5:020d}.json"]
    again = LakeLog(tmp_path)
    assert again.state == before
    assert again.state.version == 5
    again.append(Entry("x", [file_of("x", 50, 59)], ends={"orders": {0: 60}}))
    assert LakeLog(tmp_path).state.ends == {"orders": {0: 60}}


def test_a_log_that_is_summed_up_while_it_is_read_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = LakeLog(tmp_path)
    for number in range(4):
        name = str(number)
        writer.append(Entry(name, [file_of(name, number, number)], ends={"orders": {0: number + 1}}))
    real = lake_log._decode
    read = []

    def meanwhile(path: Path, kind: type[Any]) -> Any:
        found = real(path, kind)
        read.append(path)
        if len(read) == 2:
            writer.write_snapshot(at_least=1)
        return found

    monkeypatch.setattr(lake_log, "_decode", meanwhile)
    reader = LakeLog(tmp_path)
    assert reader.state == writer.state
    assert reader.recent == []
    assert len(read) == 3, "two entries, then the sum that came meanwhile"


def test_a_topic_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add(*stage(lake, 0, 9), MARKS)
    with pytest.raises(PipelineFailed, match="made anew"):
        lake.ends({"orders": TopicMark("id-2", 2)})


def test_ends_are_behind_the_last_offset_of_each_partition() -> None:
    files = [file_of("a", 0, 9), file_of("b", 10, 12), file_of("c", 3, 4, partition=1)]
    assert ends_of(files) == {"orders": {0: 13, 1: 5}}
    log_starts = {"orders": {0: 7, 1: 3, 2: 90}}
    assert ends_of(files, log_starts) == {"orders": {0: 13, 1: 5, 2: 90}}, "a partition without messages is known too"
    assert log_starts == {"orders": {0: 7, 1: 3, 2: 90}}


def test_a_lake_is_a_folder() -> None:
    with pytest.raises(InvalidPipeline, match="not a folder"):
        lake_folder("s3://bucket/lake")
    assert lake_folder("file:///data/lake") == Path("/data/lake")


def _killed(*_: object) -> None:
    raise Killed
