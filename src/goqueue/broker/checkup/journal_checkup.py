"""The broker's own logs under examination: whether their snapshots and events give a state."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.journal_kinds import CATALOG, KINDS, JournalKind
from goqueue.coordination.catalog import Catalog
from goqueue.model.errors import CorruptData
from goqueue.model.names import INTERNAL_PREFIX
from goqueue.storage.checkup.checkup_log import as_started
from goqueue.storage.checkup.findings import Finding, PartitionReport, Repair, Severity, as_note
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.reader.reader_files import read_whole
from goqueue.storage.reader.scratch import ScratchFiles

_METADATA_LOG = f"logs/{CATALOG.name}/0"
_OPTIONS = LogOptions()
_RESTORE = "Restore the data folder from a backup: a broker does not start without it."


def snapshot_path(root: Path, name: str, shard: int) -> Path:
    return root / "snapshots" / KINDS[name].snapshot_name(shard)


def was_converted(root: Path, kind: JournalKind[Any]) -> bool:
    """Whether the next start removes what is left of a journal of earlier versions."""
    return kind.is_earlier and (root / "logs" / kind.converted_name).is_dir()


def check_journal(
    report: PartitionReport, snapshot: Path, point: RecoveryPoint | None, now_ns: Callable[[], int]
) -> Any:
    """Replay it as a start does. Returns the state machine, or ``None`` if there is no state to be had."""
    kind = KINDS[report.topic]
    replay = _Replay(report.folder, snapshot, kind, now_ns)
    broken = _snapshot_fault(snapshot)
    try:
        machine = replay.run(point, without_snapshot=broken is not None)
    except _Unusable as fault:
        machine = replay.from_the_beginning(point)
        if machine is None:
            report.findings.append(_lost(report, kind, str(fault)))
            return None
        what = broken or "the snapshot is missing"
        report.findings.append(_snapshot_finding(snapshot, what, Repair.FORGET_POINT))
    else:
        if broken is not None:
            report.findings.append(_snapshot_finding(snapshot, broken, Repair.SET_ASIDE))
    report.findings = [
        as_note(each, "everything that anybody was told of is there: the journal replays without it")
        if each.severity is Severity.DAMAGE
        else each
        for each in report.findings
    ]
    return machine


def known_logs(root: Path, points: Mapping[str, RecoveryPoint]) -> set[str]:
    """Which logs a stopped broker's folder must have, as ``logs/{folder}/{partition}``. Nothing in it is changed."""
    report = PartitionReport(CATALOG.name, 0, root / _METADATA_LOG)
    catalog: Catalog | None = check_journal(
        report, snapshot_path(root, CATALOG.name, 0), points.get(_METADATA_LOG), time.time_ns
    )
    if catalog is None:
        # It cannot be read. A copy of what is left is worth having, if nothing is missing that the points tell of.
        return {_METADATA_LOG, *points}
    # Points may be older than the last deletion of a topic; the broker's own logs are never deleted.
    own = {path for path in points if path.startswith(f"logs/{INTERNAL_PREFIX}")}
    for kind in KINDS.values():
        if was_converted(root, kind):
            own = {path for path in own if not path.startswith(f"logs/{kind.name}/")}
    topics = {
        f"logs/{each.name}~{topic_id}/{number}"
        for topic_id, each in catalog.state.topics.items()
        for number in range(each.partitions)
    }
    return {_METADATA_LOG} | own | topics


class _Unusable(Exception):
    """There is no state to be had this way."""


class _Replay:
    def __init__(self, folder: Path, snapshot: Path, kind: JournalKind[Any], now_ns: Callable[[], int]) -> None:
        self._folder = folder
        self._snapshot = snapshot
        self._kind = kind
        self._now_ns = now_ns

    def run(self, point: RecoveryPoint | None, *, without_snapshot: bool) -> Any:
        with as_started(self._folder, point, _OPTIONS, self._now_ns) as (files, log):
            if log.missing is not None:
                raise _Unusable(log.missing)
            return self._replayed(files, log, point, without_snapshot=without_snapshot)

    def from_the_beginning(self, point: RecoveryPoint | None) -> Any:
        """Without snapshot and recovery point, if the log has everything from the first event on."""
        vouched_end = 0 if point is None else point.base + point.count
        try:
            with as_started(self._folder, None, _OPTIONS, self._now_ns) as (files, log):
                if log.start_offset or log.end_offset < vouched_end:
                    return None
                return self._replayed(files, log, point, without_snapshot=True)
        except _Unusable:
            return None

    def _replayed(self, files: ScratchFiles, log: Log, point: RecoveryPoint | None, *, without_snapshot: bool) -> Any:
        if without_snapshot:
            files.remove(self._snapshot)
        commits = GroupCommit(files, self._folder)
        vouched_end = 0 if point is None else point.base + point.count
        try:
            journal: Journal[Any] = Journal(
                log, commits, self._snapshot, self._kind.make, self._kind.events, vouched_end=vouched_end
            )
            journal.load()
        except CorruptData as error:
            raise _Unusable(str(error)) from None
        except Exception as error:
            # Whatever a state machine says to events that it could never have decided.
            raise _Unusable(f"its events cannot be applied: {type(error).__name__}: {error}") from error
        return journal.machine


def _snapshot_fault(path: Path) -> str | None:
    """What is wrong with a snapshot's file, if anything."""
    try:
        payload = read_whole(path)
        if payload is not None:
            msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    except CorruptData:
        return "the snapshot is damaged: its checksum does not match its content"
    except msgspec.MsgspecError as error:
        return f"the snapshot cannot be read: {error}"
    return None


def _snapshot_finding(path: Path, what: str, repair: Repair) -> Finding:
    if repair is Repair.SET_ASIDE:
        meaning = "no fact is lost: the whole journal is replayed in its place"
    else:
        meaning = "a broker does not start so, but no fact is lost: the journal has everything from its first event on"
    return Finding(
        Severity.REPAIRABLE, path, what, meaning,
        "goqueue doctor --repair sets it aside, so that the journal is replayed from its beginning.", repair,
    )  # fmt: skip


def _lost(report: PartitionReport, kind: JournalKind[Any], why: str) -> Finding:
    return Finding(Severity.DAMAGE, report.folder, why, f"it cannot be known any more {kind.holds}", _RESTORE)
