"""The pipelines that look back, on a broker with a history: dead letters, traces, and an audit that finds lies."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from behaviour.waiting import until
from doubles.standing_still import standing_still
from pyspark.sql import SparkSession, functions

from goqueue import Outgoing
from goqueue.broker.runtime.shard_placement import first_shard_of, shard_of_partition
from goqueue.coordination.catalog import TopicRecord
from goqueue.delivery.events import Moved, QueueEvent, ResetTo
from goqueue.model.ids import TopicId
from goqueue.observe.trace_event import ACK, DLQ, FIRED, PUBLISH
from goqueue.spark.pipelines import audit, dlq_triage, trace_stats
from goqueue.spark.pipelines.analysis.error_kinds import kind_column, kind_of
from goqueue.spark.pipelines.analysis.trace_runs import EventFilter, read_file, trace_files
from goqueue.spark.pipelines.auditing.audit_kinds import FATE_TEXTS, Fate
from goqueue.spark.pipelines.auditing.audit_subject import subject_from_folder
from goqueue.spark.pipelines.auditing.group_state import group_state
from goqueue.spark.pipelines.auditing.topic_record import topic_record
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.summary import Summary
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.storage.reader.reader import LogReader, read_runs
from goqueue.wire.batch import join_frames
from goqueue.wire.frame import encode_frame
from tests.spark.conftest import SharedBroker

_DELIVERED = 200
_PUBLISHED = 300 + 3 + 2 + 2
"""At once, delayed, in transactions, and last."""
_GROUP = "billing"
Run = Callable[..., Summary]


@dataclass
class History:
    topic: str
    graves: str
    """Where its dead letters go."""
    group: str
    data: Path
    acked: int
    dead: int
    """How many became dead letters; one of them was redriven."""
    last: int
    """The offset of a message in partition 0 that nobody got; nor has anyone got the one before it."""


@pytest.fixture
def run(spark: SparkSession, broker: SharedBroker, tmp_path: Path) -> Run:
    def run(pipeline: Pipeline, **settings: object) -> Summary:
        assert pipeline.run is not None
        chosen = Settings(pipeline.settings, settings)
        return pipeline.run(Context(pipeline.name, chosen, broker.address, str(tmp_path), given_session=spark))

    return run


@pytest.fixture(scope="module")
def history(broker: SharedBroker) -> Iterator[History]:
    """Messages of several lanes, in transactions and delayed; some acked, some given up, some redriven, some left."""
    client, graves = broker.client, broker.topic()
    topic = broker.topic(dead_letter_topic=graves)
    group = f"{_GROUP}-{topic}"
    priorities = ("normal", "critical", "low")
    with client.producer() as producer:
        messages = [Outgoing(f"order {n}", key=f"key {n}", priority=priorities[n % 3]) for n in range(300)]
        producer.send_many(topic, messages)
        producer.send(topic, "tomorrow", delay=timedelta(days=1)).result()
        producer.send(topic, "never", delay=timedelta(days=1), partition=1).result()
        producer.send(topic, "soon", delay=0.05).result()
    with client.producer() as producer:
        with producer.transaction() as tx:
            tx.send(topic, "all of it", key="ada")
        with pytest.raises(ValueError, match="no"), producer.transaction() as tx:
            tx.send(topic, "nothing of it", key="ada").result()
            raise ValueError("no")
    cancelled = next(each for each in client.delayed(topic) if each.value == b"never")
    client.cancel_delayed(topic, cancelled.partition, cancelled.offset)
    done = dead = 0
    with client.consumer(group, [topic], kind="shared") as consumer:
        while done < _DELIVERED:
            for message in consumer.poll(_DELIVERED - done, timeout=10):
                done += 1
                if done % 10 == 0:
                    dead += 1
                    message.reject(f"no customer {done} in '{message.value.decode()}'")
                else:
                    message.ack()
    # They are moved when the answer has been given.
    until(lambda: sum(1 for _ in client.read(graves)) == dead)
    report = client.redrive(topic, error="no customer 50 ")
    assert report.redriven == 1
    with client.producer() as producer:
        producer.send(topic, "the last but one", partition=0).result()
        last = producer.send(topic, "the last", partition=0).result()
    found = History(topic, graves, group, broker.process.data, done - dead, dead, last.offset)
    written = {ACK: found.acked, PUBLISH: _PUBLISHED, DLQ: dead, FIRED: 1}
    until(lambda: all(_traced(found, event) == count for event, count in written.items()), 120)
    yield found


def _traced(history: History, event: str) -> int:
    """How many messages trace files tell this of."""
    wanted = EventFilter(frozenset({event}), frozenset({history.topic}))
    chunks = (chunk for path in trace_files(str(history.data)) for chunk in read_file(path, 0, wanted))
    return sum(run.end - run.first for chunk in chunks for run in chunk)


def _rows(summary: Summary, title: str) -> list[dict[str, Any]]:
    return next(
        [dict(zip(each.columns, row, strict=True)) for row in each.rows]
        for each in summary.tables
        if each.title.startswith(title)
    )


def _fates(summary: Summary) -> dict[str, int]:
    return {row["fate"]: row["messages"] for row in _rows(summary, "what became")}


def test_dead_letters_are_grouped_by_error_and_the_chosen_are_redriven_once(run: Run, history: History) -> None:
    kind = "no customer <n> in <text>"
    summary = run(dlq_triage.PIPELINE, topic=history.topic, redrive=kind, dry_run="true", examples=1)
    (row,) = _rows(summary, "dead letters by error")
    assert (row["error"], row["topic"], row["group"], row["letters"]) == (
        kind,
        history.topic,
        history.group,
        history.dead,
    )
    assert row["first seen"] <= row["last seen"]
    (example,) = _rows(summary, "examples")
    assert example["was"].startswith(f"{history.topic}/")
    assert example["value"] in example["in full"]
    numbers = summary.numbers
    assert (numbers["redriven"], numbers["would be redriven"], numbers["redriven before"]) == (0, history.dead - 1, 1)
    numbers = run(
        dlq_triage.PIPELINE, topic=history.topic, redrive="customer 60 ", since="2026-01-01T00:00:00Z"
    ).numbers
    assert (numbers["chosen for redrive"], numbers["redriven"]) == (1, 1)


def test_spark_and_python_find_the_same_kind_of_an_error(spark: SparkSession) -> None:
    errors = [
        "can't read 'a b' at 0xFF",
        'id 7f9c24e8-3b12-4a8f-9e51-d2f60a7c1b44: "x"',
        "deadbeef 9f86d081884c7d65",
        " \n",
    ]
    errors += ["order-12 of 10.0.0.1:80\n since 2026-01-31T12:00:00Z, -1.5", "x" * 300, ""]
    # Without a table: what needs no job takes no time.
    (found,) = spark.sql("SELECT 1").select([kind_column(functions.lit(each)) for each in errors]).collect()
    assert list(found) == [kind_of(each) for each in errors]


def test_latencies_come_from_trace_files_with_the_slowest_messages_and_a_chart(
    run: Run, history: History, broker: SharedBroker, tmp_path: Path
) -> None:
    chart = tmp_path / "chart.png"
    summary = run(
        trace_stats.PIPELINE,
        path=str(history.data),
        topics=history.topic,
        groups=history.group,
        slowest=3,
        chart=str(chart),
    )
    (row,) = _rows(summary, "publish to ack")
    assert row["messages"] == summary.numbers["messages acked"] == history.acked
    assert 0 < row["p50 ms"] <= row["p95 ms"] <= row["p99 ms"] <= row["max ms"]
    assert sum(each["messages"] for each in _rows(summary, "publish to ack, by the hour")) == history.acked
    slowest = _rows(summary, "the slowest")
    # What was published and acked together is one row: how many there are depends on how batches met.
    assert 1 <= len(slowest) <= 3
    took = [each["took ms"] for each in slowest]
    assert took == sorted(took, reverse=True)
    assert took[0] == row["max ms"]
    with urllib.request.urlopen(f"{broker.process.url}/traces/{slowest[0]['trace']}") as answer:
        story = json.load(answer)
    assert (story["topic"], story["partition"], story["offset"]) == tuple(
        slowest[0][name] for name in ("topic", "partition", "offset")
    )
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_an_audit_is_silent_on_a_healthy_group_and_adds_up(
    run: Run, history: History, broker: SharedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing changes meanwhile, so one look must do.
    monkeypatch.setattr(audit, "_RECHECKS", 0)
    summary = run(audit.PIPELINE, topic=history.topic, group=history.group, path=str(history.data))
    assert (summary.failed, summary.numbers["unaccounted"]) == (False, 0), summary.tables
    fates = _fates(summary)
    assert (fates["acked"], fates["dead-lettered"]) == (history.acked, history.dead)
    assert (fates["delayed"], fates["cancelled"]) == (1, 1)
    pending = sum(fates.get(each, 0) for each in ("not delivered yet", "waiting for a retry", "in flight"))
    lag = sum(each.lag for each in broker.client.describe_group(history.group).partitions)
    assert pending == lag
    assert "settled" not in fates


def test_an_audit_without_the_folder_goes_by_offsets_and_dead_letters(run: Run, history: History) -> None:
    summary = run(audit.PIPELINE, topic=history.topic, group=history.group)
    fates = _fates(summary)
    assert not summary.failed
    assert fates["dead-lettered"] == history.dead
    assert fates["settled"] + fates["beyond the committed offset"] == summary.numbers["messages"] - history.dead
    assert "proves less" in summary.notes[0]


def test_an_audit_finds_what_was_never_delivered_what_the_log_has_lost_and_acks_that_were_forgotten(
    run: Run, history: History, broker: SharedBroker, tmp_path: Path
) -> None:
    with standing_still(broker.process):
        root = _copied(history, tmp_path / "data")
    (folder,) = (root / "logs").glob(f"{history.topic}~*")
    topic_id = folder.name.rpartition("~")[2]
    state = group_state(root, history.group, topic_id)
    assert state.partitions[0].queue.front <= history.last
    # One that nobody got is claimed to be done, and everything that was done in the other partition is forgotten.
    key = state.partitions[0].queue.key.rpartition("/")[0]
    first_shard = first_shard_of(TopicRecord(TopicId(topic_id), history.topic, 2, 0))
    events: list[QueueEvent] = [Moved(f"{key}/0", [history.last, history.last + 1]), ResetTo(f"{key}/1", 0)]
    for number, event in enumerate(events):
        journal = root / "logs" / "__shards" / str(shard_of_partition(first_shard, number))
        _append(journal, msgspec.json.encode([event]))
    _damage(folder / "0", history.last - 1)
    # Dead letters go elsewhere by now, and nothing but traces knows where they went before.
    _set(root, topic_id, dead_letter_topic="elsewhere")
    assert subject_from_folder(root, history.topic).letters == []

    summary = run(audit.PIPELINE, topic=history.topic, group=history.group, path=str(root), offline="true", show=1_000)
    assert summary.failed
    found = {(row["partition"], row["offset"]): row["why"] for row in _rows(summary, "not accounted for")}
    assert found.pop((0, history.last)) == FATE_TEXTS[Fate.NEVER_DELIVERED][1]
    assert found.pop((0, history.last - 1)) == FATE_TEXTS[Fate.GONE][1]
    assert {number for number, _ in found} == {1}
    assert set(found.values()) == {FATE_TEXTS[Fate.ACK_FORGOTTEN][1], FATE_TEXTS[Fate.LETTER_EARLY][1]}
    assert summary.numbers["unaccounted"] == len(found) + 2


def _copied(history: History, root: Path) -> Path:
    """What an audit needs of the data folder, so that it can be tampered with."""
    root.mkdir()
    names = ["FORMAT", "LOCK", "checkpoint", "snapshots", "traces", "logs/__shards", "logs/__metadata"]
    topics = [each for name in (history.topic, history.graves) for each in (history.data / "logs").glob(f"{name}~*")]
    for source in [*(history.data / name for name in names), *topics]:
        target = root / source.relative_to(history.data)
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.exists():
            shutil.copy(source, target)
    return root


def _append(folder: Path, value: bytes) -> None:
    """Write a record behind the last one of a log."""
    now_ns = time.time_ns()
    batch = join_frames([encode_frame(bytes(8), value, b"", now_ns)], now_ns)
    batch.stamp(LogReader(folder).end_offset)
    with max(folder.glob("*.log")).open("ab") as file:
        file.write(batch.frames)


def _damage(folder: Path, offset: int) -> None:
    """Spoil a message on the disk: a start of the broker sets it aside."""
    (run,) = read_runs(folder, offset, offset + 1)
    (path,) = folder.glob("*.log")
    whole, frame = path.read_bytes(), bytes(run.frames)
    path.write_bytes(whole.replace(frame, frame[:-1] + b"?"))
    (folder.parents[2] / "checkpoint").unlink(missing_ok=True)
    open_log(OpenFiles(OsFiles(), 30), folder, LogOptions(), time.time_ns, None).close()


def _set(root: Path, topic_id: str, **settings: object) -> None:
    """Sum up the catalog as if these had been the topic's settings for long."""
    record = topic_record(root, topic_id)
    assert record is not None
    end = LogReader(root / "logs" / "__metadata" / "0").end_offset
    topics = {topic_id: {"created_at_ns": record.created_at_ns, "overrides": settings}}
    snapshot = {"begin": end, "end": end, "parts": [["catalog", end, {"topics": topics}]]}
    write_atomically(OsFiles(), root / "snapshots" / "__metadata", msgspec.json.encode(snapshot))
