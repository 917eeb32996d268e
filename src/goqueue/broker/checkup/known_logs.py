"""Which logs a stopped broker's folder must have, for whoever copies it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from goqueue.broker.checkup.journal_checkup import check_journal, snapshot_path
from goqueue.broker.runtime.journal_kinds import CATALOG
from goqueue.coordination.catalog import Catalog
from goqueue.model.names import INTERNAL_PREFIX
from goqueue.storage.checkup.findings import PartitionReport
from goqueue.storage.files.checkpoint import RecoveryPoint

_METADATA_LOG = f"logs/{CATALOG.name}/0"


def known_logs(root: Path, points: Mapping[str, RecoveryPoint]) -> set[str]:
    """As ``logs/{folder}/{partition}``. Nothing in the folder is changed."""
    report = PartitionReport(CATALOG.name, 0, root / _METADATA_LOG)
    catalog: Catalog | None = check_journal(
        report, snapshot_path(root, CATALOG.name, 0), points.get(_METADATA_LOG), time.time_ns
    )
    if catalog is None:
        # It cannot be read. A copy of what is left is worth having, if nothing is missing that the points tell of.
        return {_METADATA_LOG, *points}
    # Points may be older than the last deletion of a topic; the broker's own logs are never deleted.
    own = {path for path in points if path.startswith(f"logs/{INTERNAL_PREFIX}")}
    topics = {
        f"logs/{each.name}~{topic_id}/{number}"
        for topic_id, each in catalog.state.topics.items()
        for number in range(each.partitions)
    }
    return {_METADATA_LOG} | own | topics
