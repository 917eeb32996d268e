"""The disk: how much room there is, how fast it is, what takes it."""

from __future__ import annotations

from dashboards.panels import (
    BAD_ABOVE_0,
    BROKERS,
    TOPICS,
    Json,
    Row,
    dashboard,
    figure,
    heat,
    lines,
    percentiles,
    rate,
    table,
)


def storage() -> Json:
    state = Row(
        "State",
        (
            figure(
                "Failed partitions",
                "short",
                "Partitions that take no writes because an fsync failed. Any: check the disk, then restart.",
                "sum(goqueue_failed_partitions{@broker})",
                steps=BAD_ABOVE_0,
            ),
            figure(
                "Damaged messages",
                "short",
                "Messages that fail their checksum and are left out. Any: GET /health says where.",
                "sum(goqueue_damaged_messages{@broker})",
                steps=BAD_ABOVE_0,
            ),
            figure("Topics", "short", "Topics, the broker's own not counted.", "sum(goqueue_topics{@broker})"),
            figure("Groups", "short", "Groups, with members or without.", "sum(goqueue_groups{@broker})"),
            figure(
                "Partitions",
                "short",
                "Of all topics. limits.max_total_partitions bounds them.",
                "sum(goqueue_topic_partitions{@topic})",
            ),
            figure("Segments", "short", "Files that hold messages.", "sum(goqueue_topic_segments{@topic})"),
            figure("Stored", "bytes", "What the segments hold.", "sum(goqueue_topic_size_bytes{@topic})"),
            figure(
                "Trace files",
                "bytes",
                "Room that traces take on the same disk. trace.retention_bytes bounds it.",
                "sum(goqueue_trace_file_bytes{@broker})",
            ),
        ),
    )
    room = Row(
        "Room",
        (
            lines(
                "Free room",
                "bytes",
                "Free on the disk, what must stay free, and what is free in six hours if it goes on like the last "
                "hour. The forecast below the limit is bad: publishing will be refused.",
                ("goqueue_disk_free_bytes{@broker}", "{{instance}} free"),
                ("goqueue_disk_min_free_bytes{@broker}", "{{instance}} must stay free"),
                ("clamp_min(predict_linear(goqueue_disk_free_bytes{@broker}[1h], 21600), 0)", "{{instance}} in 6 h"),
            ),
            lines(
                "Stored, by topic",
                "bytes",
                "The ten largest topics. A line that only rises has no retention that ever applies.",
                ("topk(10, sum by (topic) (goqueue_topic_size_bytes{@topic}))", "{{topic}}"),
                stacked=True,
            ),
            lines(
                "Published bytes",
                "Bps",
                "The ten topics that grow fastest, before retention and compaction.",
                (f"topk(10, {rate('goqueue_published_bytes_total', '@topic', 'topic')})", "{{topic}}"),
            ),
        ),
    )
    disk = Row(
        "The disk",
        (
            lines(
                "fsync",
                "s",
                "How long a round takes, and every publish waits for one. Below a millisecond on a good SSD, around "
                "ten on a disk; above 100 ms is bad.",
                *percentiles("goqueue_fsync_seconds"),
            ),
            lines(
                "Rounds of fsync",
                "cps",
                "Rounds a second, and messages in each. More load should make rounds larger, not more of them.",
                (rate("goqueue_fsync_rounds_total", "@broker"), "rounds"),
                (
                    f"{rate('goqueue_messages_published_total', '@broker')} "
                    f"/ ({rate('goqueue_fsync_rounds_total', '@broker')} > 0)",
                    "messages in a round",
                ),
            ),
            lines(
                "Publishing",
                "s",
                "From append to acknowledgement: a wait for the round under way, and one's own. Much more than twice "
                "the fsync is not the disk but the event loop.",
                *percentiles("goqueue_publish_seconds"),
            ),
            heat(
                "fsync, spread",
                "Each cell: how many rounds took so long. A second band high up is something else that uses the disk.",
                "goqueue_fsync_seconds",
            ),
            heat(
                "Publishing, spread",
                "Each cell: how many messages waited so long for their acknowledgement.",
                "goqueue_publish_seconds",
            ),
        ),
    )
    logs = Row(
        "Topics and partitions",
        (
            table(
                "Topics",
                "short",
                "Each topic: partitions, segments, bytes, and how many offsets its partitions span (with what "
                "compaction removed). Many partitions with few messages are only a cost.",
                ("sum by (topic) (goqueue_topic_partitions{@topic})", "partitions"),
                ("sum by (topic) (goqueue_topic_segments{@topic})", "segments"),
                ("sum by (topic) (goqueue_topic_size_bytes{@topic})", "bytes"),
                (
                    "sum by (topic) (goqueue_partition_end_offset{@topic} - goqueue_partition_start_offset{@topic})",
                    "offsets",
                ),
                by="topic",
                units={"bytes": "bytes"},
                width=12,
            ),
            lines(
                "Busiest partitions",
                "cps",
                "Records a second, the ten busiest. One far above the others of its topic: a hot key.",
                ("topk(10, clamp_min(deriv(goqueue_partition_end_offset{@topic}[5m]), 0))", "{{topic}}-{{partition}}"),
                width=12,
            ),
        ),
    )
    return dashboard(
        "goqueue-storage",
        "GoQueue: storage",
        "The disk: how much room there is, how fast it is, what takes it.",
        [BROKERS, TOPICS],
        [state, room, disk, logs],
    )
