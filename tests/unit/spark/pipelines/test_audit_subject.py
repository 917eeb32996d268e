"""What an audit is about: where dead letters lie by what was set for the topic, and which offsets the log has lost."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from doubles.messages import Ticking, batch_of

from goqueue.coordination.catalog import Catalog, TopicCreated, TopicRecord
from goqueue.spark.pipelines.auditing.audit_subject import missing_records, subject_from_broker, subject_from_folder
from goqueue.spark.pipelines.auditing.topic_record import topic_record
from goqueue.spark.pipelines.definitions.problems import PipelineFailed
from goqueue.storage.files.atomic import write_atomically
from goqueue.storage.files.checkpoint import CheckpointFile
from goqueue.storage.files.files import OsFiles
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.storage.reader.reader import LogReader
from goqueue.testing import running_broker


def test_dead_letters_lie_where_the_topic_says_or_has_said(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.client() as client:
        for name in ("graves", "crypt", "plain", "plain.dlq"):
            client.create_topic(name, partitions=1)
        orders = client.create_topic("orders", partitions=1, dead_letter_topic="graves")
        client.create_topic("keys", partitions=1, cleanup="compact")
        with pytest.raises(PipelineFailed, match="a broker is using"):
            subject_from_folder(tmp_path, "orders")
        assert subject_from_broker(client, "orders", None).letters == ["graves"]
        client.change_topic("orders", dead_letter_topic="crypt")
        # What it was before, only the folder can tell.
        assert subject_from_broker(client, "orders", None).letters == ["crypt"]
        online = subject_from_broker(client, "orders", str(tmp_path))
        assert (online.letters, online.has_letters, online.is_whole) == (["crypt", "graves"], True, True)
        assert not subject_from_broker(client, "keys", None).is_whole
        broker.kill()
    offline = subject_from_folder(tmp_path, "orders")
    assert (offline.letters, offline.has_letters, offline.is_whole) == (["crypt", "graves"], True, True)
    assert (offline.topic_id, offline.created_at_ns // 1_000) == (online.topic_id, online.created_at_ns // 1_000)
    assert offline.folder == online.folder
    assert (offline.ends, offline.notes) == ({0: 0}, [])
    assert not subject_from_folder(tmp_path, "keys").is_whole
    assert subject_from_folder(tmp_path, "plain").letters == ["plain.dlq"]
    # Dead letters have no dead letters.
    assert subject_from_folder(tmp_path, "plain.dlq").letters == []

    # What a snapshot sums up is not told again by the events before it.
    catalog = Catalog()
    catalog.apply(TopicCreated(TopicRecord(orders.id, "orders", 1, 17, {"dead_letter_topic": "crypt"})))
    end = LogReader(tmp_path / "logs" / "__metadata" / "0").end_offset
    parts = [[name, end, msgspec.Raw(catalog.dump(name))] for name in catalog.parts()]
    snapshot = msgspec.json.encode({"begin": 0, "end": end, "parts": parts})
    write_atomically(OsFiles(), tmp_path / "snapshots" / "__metadata", snapshot)
    record = topic_record(tmp_path, orders.id)
    assert record is not None
    assert (record.created_at_ns, record.values_of("dead_letter_topic")) == (17, ["crypt"])
    assert topic_record(tmp_path, "another") is None

    (tmp_path / "snapshots" / "__metadata").write_bytes(b"damaged")
    unknown = subject_from_folder(tmp_path, "plain")
    assert (unknown.letters, unknown.has_letters, unknown.is_whole) == (["plain.dlq"], False, False)
    assert "what was set for the topic" in unknown.notes[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "orders~1" / "0"


def _opened(folder: Path) -> Log:
    return open_log(OpenFiles(OsFiles(), 30), folder, LogOptions(600, 150), Ticking(), None)


def test_what_a_log_has_lost_is_told_but_not_what_retention_or_compaction_took(folder: Path, tmp_path: Path) -> None:
    log = _opened(folder)
    for each in range(20):
        log.append(batch_of([b"message %02d" % each]))
    log.close()
    assert missing_records(folder, 0, 20) == []

    for path in folder.glob("*.log"):
        whole = path.read_bytes()
        for lost in (b"message 05", b"message 06", b"message 17"):
            whole = whole.replace(lost, b"??????????")
        path.write_bytes(whole)
    log = _opened(folder)
    assert missing_records(folder, 0, 20) == [(5, 7), (17, 18)]
    assert missing_records(folder, 6, 17) == [(6, 7)]

    checkpoint = CheckpointFile(OsFiles(), tmp_path / "checkpoint")
    name = str(folder.relative_to(tmp_path))
    log.start_offset = 6
    checkpoint.save({name: log.recovery_point()})
    assert missing_records(folder, 0, 20) == [(6, 7), (17, 18)]
    log.cleaned_to = 10
    checkpoint.save({name: log.recovery_point()})
    assert missing_records(folder, 0, 20) == [(17, 18)]
    log.close()
