"""A data folder under examination, while no broker uses it. Nothing in it is changed.

Everything is read by the code that a start uses: frames by the same scan, logs, journals and the files that follow from
them by the same recovery, over a disk whose changes are thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from goqueue.broker.checkup.derived_checkup import check_derived
from goqueue.broker.checkup.journal_checkup import check_journal, snapshot_path, was_converted
from goqueue.broker.checkup.small_files import check_small_files
from goqueue.broker.runtime.journal_kinds import CATALOG, KINDS
from goqueue.coordination.catalog import Catalog, CatalogState, TopicRecord
from goqueue.model.errors import CorruptData, TopicNotFound
from goqueue.model.ids import TopicId
from goqueue.model.topic_settings import TopicSettings
from goqueue.storage.checkup.checkup_indexes import is_missing_index
from goqueue.storage.checkup.checkup_log import Stopped, as_started, check_log, check_start
from goqueue.storage.checkup.findings import BACKUP, Finding, PartitionReport, Repair, Report, Severity, note
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.data_folder import RESTORED
from goqueue.storage.log.log import LogOptions
from goqueue.storage.reader.reader_files import DISK, read_whole

_SEPARATOR = "~"
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class CheckupOptions:
    """``topic``: only this one. ``quick``: believe indexes that are whole, and do not read the frames they tell of."""

    topic: str | None = None
    quick: bool = False
    defaults: TopicSettings = TopicSettings()
    """What topics have that set nothing of their own."""


class Checkup:
    """One look at a data folder. ``on_bytes`` is told of every segment that is done; ``is_stopped`` is asked then."""

    def __init__(
        self,
        root: Path,
        options: CheckupOptions,
        on_bytes: Callable[[int], None] = lambda size: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = root.absolute()
        self._options = options
        self._on_bytes = on_bytes
        self._is_stopped = is_stopped
        self._report = Report(self._root)
        self._points: dict[str, RecoveryPoint] = {}

    def run(self) -> Report:
        with suppress(Stopped):
            self._check()
            if (self._root / RESTORED).exists():
                # A backup has no index that still grows. Until the first start that is as it should be.
                self._report.leave_out(is_missing_index)
            return self._report
        self._report.is_complete = False
        return self._report

    def _check(self) -> None:
        self._report.findings += check_small_files(self._root)
        self._load_points()
        catalog = self._check_journals()
        state = None if catalog is None else catalog.state
        folders = _topic_folders(self._root)
        if self._options.topic is not None:
            self._check_that_topic_exists(state, folders)
        if state is None:
            for topic_id, folder in folders.items():
                name = folder.name.rpartition(_SEPARATOR)[0]
                partitions = sum(map(str.isdigit, DISK.list_dir(folder)))
                # Nobody knows what was set for it.
                self._check_topic(TopicRecord(topic_id, name, partitions, 0, {"cleanup": "compact"}))
            return
        for record in sorted(state.topics.values(), key=lambda each: each.name):
            self._check_topic(record)
        if self._options.topic is None:
            self._check_strangers(state, folders)

    def _load_points(self) -> None:
        path = self._root / "checkpoint"
        try:
            payload = read_whole(path)
            if payload is not None:
                self._points = msgspec.json.decode(payload, type=dict[str, RecoveryPoint])
                return
            if any(log.stat().st_size for log in self._root.glob("logs/*/*/*.log")):
                self._report.findings.append(
                    note(path, "there are no recovery points", "the next start reads every segment, once")
                )
        except (CorruptData, msgspec.MsgspecError):
            self._report.findings.append(
                Finding(
                    Severity.REPAIRABLE,
                    path,
                    "the file of recovery points is damaged",
                    "no message is lost: the next start reads every segment, and what retention had hidden and not "
                    "yet removed is shown again",
                    "goqueue doctor --repair sets it aside; a broker writes another.",
                    Repair.SET_ASIDE,
                )
            )

    def _point(self, folder: Path) -> RecoveryPoint | None:
        return self._points.get(str(folder.relative_to(self._root)))

    def _segment_done(self, size: int) -> None:
        self._report.checked_bytes += size
        self._on_bytes(size)
        if self._is_stopped():
            raise Stopped

    def _begin(self, topic: str, partition: int, folder: Path) -> PartitionReport:
        made = PartitionReport(topic, partition, folder)
        self._report.partitions.append(made)
        return made

    # Journals

    def _check_journals(self) -> Catalog | None:
        catalog: Catalog | None = None
        for name, kind in KINDS.items():
            if was_converted(self._root, kind):
                continue
            if name != CATALOG.name and self._options.topic not in {None, name}:
                continue
            for shard in self._shards(name):
                folder = self._root / "logs" / name / str(shard)
                point = self._point(folder)
                report = self._begin(name, shard, folder)
                if folder.exists():
                    check_log(
                        report, point, may_have_gaps=True, quick=self._options.quick, on_segment=self._segment_done
                    )
                machine = check_journal(report, snapshot_path(self._root, name, shard), point, time.time_ns)
                if name == CATALOG.name:
                    catalog = machine
        return catalog

    def _shards(self, name: str) -> list[int]:
        """Those of which anything tells. All others have never been used."""
        if KINDS[name].shards is None and not KINDS[name].is_earlier:
            return [0]
        told = [key.rpartition("/")[2] for key in self._points if key.startswith(f"logs/{name}/")]
        if (self._root / "logs" / name).is_dir():
            told += DISK.list_dir(self._root / "logs" / name)
        if (self._root / "snapshots").is_dir():
            told += [each.rpartition("-")[2] for each in DISK.list_dir(self._root / "snapshots") if name in each]
        return sorted({int(each) for each in told if each.isdigit()})

    # Topics

    def _check_that_topic_exists(self, state: CatalogState | None, folders: dict[TopicId, Path]) -> None:
        wanted = self._options.topic
        names = {*KINDS, *(each.name.rpartition(_SEPARATOR)[0] for each in folders.values())}
        if state is not None:
            names = {*KINDS, *(each.name for each in state.topics.values())}
        if wanted not in names:
            users = sorted(names - set(KINDS))
            told = ", ".join(users[:_MOST_NAMED]) + ", …" * (len(users) > _MOST_NAMED)
            raise TopicNotFound(f"{self._root} has no topic {wanted!r}; it has {told or 'none'}")

    def _check_topic(self, record: TopicRecord) -> None:
        if self._options.topic not in {None, record.name}:
            return
        settings = self._options.defaults.with_overrides({"partitions": record.partitions} | record.overrides)
        is_compacted = settings.cleanup == "compact"
        # What the topic does not say itself, the broker's configuration said: here may be another.
        is_guess = not is_compacted and "cleanup" not in record.overrides
        for number in range(record.partitions):
            folder = self._root / "logs" / f"{record.name}{_SEPARATOR}{record.topic_id}" / str(number)
            point = self._point(folder)
            report = self._begin(record.name, number, folder)
            if not folder.is_dir():
                end = 0 if point is None else point.base + point.count
                what = f"the folder is missing; the partition had ended at offset {end}"
                lost = Finding(Severity.DAMAGE, folder, what, "all of its messages are lost", BACKUP)
                report.findings.append(lost)
                continue
            looks_compacted = check_log(
                report,
                point,
                may_have_gaps=is_compacted,
                quick=self._options.quick,
                on_segment=self._segment_done,
                is_guess=is_guess,
            )
            options = LogOptions(settings.segment_bytes, compacted=looks_compacted)
            self._check_as_started(report, point, options, is_guess=is_guess)

    def _check_as_started(
        self, report: PartitionReport, point: RecoveryPoint | None, options: LogOptions, *, is_guess: bool
    ) -> None:
        with as_started(report.folder, point, options, time.time_ns) as (files, log):
            check_start(report, log, point, is_guess=is_guess)
            if not self._options.quick:
                check_derived(report, files, log, point, time.time_ns())

    def _check_strangers(self, state: CatalogState, folders: dict[TopicId, Path]) -> None:
        known = {*state.topics, *state.deleted}
        for topic_id, folder in sorted(folders.items()):
            if topic_id in state.deleted:
                self._report.findings.append(
                    note(folder, "is what is left of a topic that was deleted", "the next start removes it")
                )
            elif topic_id not in known:
                self._report.findings.append(_stranger(folder))
        for each in _entries(self._root / "logs"):
            if _SEPARATOR not in each.name and each.name not in KINDS:
                self._report.findings.append(
                    note(each, "is no folder of a topic", "nobody reads it", "Delete it if you know what it is.")
                )
        for each in _entries(self._root / "orphans"):
            self._report.findings.append(
                note(
                    each,
                    "was set aside because no topic claims it",
                    "nobody reads it",
                    "Look at it (goqueue dump), and delete it when you do not need it.",
                )
            )


def _stranger(folder: Path) -> Finding:
    size = sum(each.stat().st_size for each in folder.glob("*/*.log"))
    if not size:
        return note(folder, "is an empty folder that no topic claims", "the next start removes it")
    return Finding(
        Severity.DAMAGE,
        folder,
        f"no topic claims this folder, which has {size} bytes of messages",
        "the record of its topic is lost, or it was copied here; the next start moves it to orphans/",
        "Restore the whole data folder from a backup if the topic matters.",
        lost_bytes=size,
    )


def _topic_folders(root: Path) -> dict[TopicId, Path]:
    """By the id of the topic."""
    found = (each for each in _entries(root / "logs") if _SEPARATOR in each.name and each.is_dir())
    return {TopicId(each.name.rpartition(_SEPARATOR)[2]): each for each in found}


def _entries(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(folder.iterdir())


def log_bytes(root: Path, topic: str | None = None) -> int:
    """How much a check-up will read."""
    logs = root.glob(f"logs/{'*' if topic is None else topic + '*'}/*/*.log")
    return sum(each.stat().st_size for each in logs)
