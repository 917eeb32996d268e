"""Evidence for ``audit`` in one DataFrame: ranges of offsets from the log, traces and dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from goqueue.observe import trace_event as events
from goqueue.spark.pipelines.analysis.dead_letter_table import header, parse_letters
from goqueue.spark.pipelines.analysis.offset_blocks import BLOCK_BITS, NEVER, Numbers, cut_into_blocks, runs_where_same
from goqueue.spark.pipelines.analysis.trace_runs import COPIED
from goqueue.spark.pipelines.auditing.audit_kinds import ANY_LANE, Evidence, Kind, Knowledge
from goqueue.spark.pipelines.auditing.audit_outcomes import determine_fates
from goqueue.wire import internal_headers as system

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "partition INT, block BIGINT, kind INT, lane INT, seq BIGINT, first BIGINT, `end` BIGINT"
_NAMES = ("partition", "block", "kind", "lane", "seq", "first", "end")
_FOUND = "partition INT, fate INT, first BIGINT, size BIGINT"

TOPIC_EVENTS = {
    events.PUBLISH: Kind.PUBLISHED,
    COPIED: Kind.COPIED,
    events.DELAY: Kind.DELAYED,
    events.FIRED: Kind.FIRED,
    events.CANCELLED: Kind.CANCELLED,
    events.ABORTED: Kind.ABORTED,
    events.DELETED: Kind.REPLACED,
}
GROUP_EVENTS = {
    events.CONSUME: Kind.CONSUMED,
    events.REDELIVERED: Kind.CONSUMED,
    events.ACK: Kind.ACKED,
    events.COMMITTED: Kind.COMMITTED,
    events.RESET: Kind.VOIDED,
    events.CUT: Kind.REPLACED,
    events.EXPIRED: Kind.EXPIRED,
    events.DISCARDED: Kind.DISCARDED,
    events.SKIPPED: Kind.SKIPPED,
    events.DLQ: Kind.DIED,
    events.LOST: Kind.LOST,
}
"""The kind of evidence of each trace event of the audited group; ``TOPIC_EVENTS``: of events of any group or none."""


def log_evidence(messages: DataFrame, group: str) -> DataFrame:
    """The messages in the log as runs: those for the group, and those redriven for other groups only.

    A fired delayed message names the offset of its delayed record, which becomes evidence that this one was fired.
    """
    from pyspark.sql import functions

    meant_for = functions.coalesce(header(system.FOR_GROUP), functions.lit(group))
    kind = functions.when(meant_for == group, int(Kind.MESSAGE)).otherwise(int(Kind.OTHERS))
    was = functions.coalesce(header(system.DELAYED_OFFSET, "BIGINT"), functions.lit(NEVER))
    return messages.select("partition", "offset", "priority", kind.alias("kind"), was.alias("was")).mapInArrow(
        _to_runs, SCHEMA
    )


def letter_evidence(letters: DataFrame, topic: str, group: str, copy_of: str) -> DataFrame:
    """The origins of the group's dead letters. ``copy_of`` is the prefix of the header that identifies group and topic
    by id, to tell them from others of the same name."""
    found = parse_letters(letters)
    ours = (found["origin_topic"] == topic) & (found["group"] == group)
    found = found.where(ours & header(system.COPY_OF).like(f"{copy_of}/%"))
    return _single_offsets(found.selectExpr("origin_partition AS partition", "origin_offset AS first"), Kind.LETTER)


def trace_evidence(traces: DataFrame, group: str, group_since_ns: int, topic_since_ns: int) -> DataFrame:
    """The events since this group and this topic were created; earlier ones belong to others of the same name."""
    from pyspark.sql import functions

    anyone, ours = _kinds(TOPIC_EVENTS), _kinds(GROUP_EVENTS)
    event, is_ours = functions.col("event"), functions.col("group") == group
    kind = functions.when(is_ours, ours[event]).otherwise(anyone[event])
    # A copy exists, whichever group's event created it.
    kind = functions.when(event == COPIED, int(Kind.COPIED)).otherwise(kind)
    of_a_delivery = (event == events.EXPIRED) & (functions.col("reason") != events.OVER_AGE)
    since = functions.when(is_ours, max(group_since_ns, topic_since_ns)).otherwise(topic_since_ns)
    return (
        traces.where(~of_a_delivery & (functions.col("at") >= since))
        .withColumns({"kind": kind, "lane": functions.lit(ANY_LANE)})
        .where("kind IS NOT NULL")
        .select(*_NAMES)
    )


def driver_evidence(spark: SparkSession, rows: Sequence[tuple[int, ...]]) -> DataFrame:
    """Evidence collected in the driver, as a DataFrame."""
    import pyarrow as pa

    columns = np.array(rows, np.int64).reshape(-1, len(_NAMES)).T
    table = pa.table(dict(zip(_NAMES, columns, strict=True)))
    return spark.createDataFrame(table).selectExpr(
        "CAST(partition AS INT)", "block", "CAST(kind AS INT)", "CAST(lane AS INT)", "seq", "first", "`end`"
    )


def judge(evidence: DataFrame, knowledge: Knowledge) -> DataFrame:
    """Determine the fate of each message: runs of consecutive offsets with the same fate."""

    def of_block(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        import pyarrow as pa

        partition, block = (each.as_py() for each in key)
        rows = Evidence(*(table.column(name).to_numpy().astype(np.int64) for name in Evidence._fields))
        found = determine_fates(rows, block << BLOCK_BITS, knowledge)
        return pa.table(
            {
                "partition": pa.array(np.full(len(found.fate), partition, np.int32)),
                "fate": pa.array(found.fate.astype(np.int32)),
                "first": found.first,
                "size": found.size,
            }
        )

    return evidence.groupBy("partition", "block").applyInArrow(of_block, _FOUND)


def _single_offsets(found: DataFrame, kind: Kind) -> DataFrame:
    return found.selectExpr(
        "partition", f"shiftright(first, {BLOCK_BITS}) AS block", f"{int(kind)} AS kind", f"{ANY_LANE} AS lane",
        "0L AS seq", "first", "first + 1 AS `end`",
    )  # fmt: skip


def _kinds(mapping: dict[str, Kind]) -> Any:
    from pyspark.sql import functions

    return functions.create_map(*(functions.lit(each) for pair in mapping.items() for each in (pair[0], int(pair[1]))))


def _to_runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.num_rows:
            continue
        partition, offset, lane, kind, was = (column.to_numpy().astype(np.int64) for column in batch.columns)
        starts, counts = runs_where_same(offset, partition, lane, kind)
        yield _evidence(partition[starts], kind[starts], lane[starts], offset[starts], counts)
        fired = np.flatnonzero(was != NEVER)
        one = np.ones(len(fired), np.int64)
        yield _evidence(partition[fired], one * int(Kind.FIRED), one * ANY_LANE, was[fired], one)


def _evidence(partition: Numbers, kind: Numbers, lane: Numbers, first: Numbers, counts: Numbers) -> pa.RecordBatch:
    import pyarrow as pa

    which, block, low, high = cut_into_blocks(first, first + counts)
    narrow = [each[which].astype(np.int32) for each in (partition, kind, lane)]
    columns = [narrow[0], block, narrow[1], narrow[2], np.zeros(len(which), np.int64), low, high]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=list(_NAMES))
