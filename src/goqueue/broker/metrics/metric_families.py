"""Every figure that ``/metrics`` shows: its name, what it is, what it means, and its labels."""

from __future__ import annotations

from goqueue.observe.exposition import Family, Kind

_TOPIC = ("topic",)
_GROUP = ("group",)
_PAIR = ("group", "topic")
_PARTITION = ("topic", "partition")


def _families(kind: Kind, *rows: tuple[str, str] | tuple[str, str, tuple[str, ...]]) -> list[Family]:
    return [Family(f"goqueue_{row[0]}", kind, *row[1:]) for row in rows]


_BROKER = [
    Family("goqueue_build_info", "info", "Which version runs, on which Python.", ("version", "python")),
    *_families(
        "gauge",
        ("topics", "Topics."),
        ("groups", "Groups."),
        ("disk_free_bytes", "Free room on the data folder's disk."),
        ("disk_min_free_bytes", "With less free room than this, publishing is refused."),
        ("ready", "1 if the broker takes messages, else 0."),
        ("failed_partitions", "Partitions that take no more writes because their disk failed."),
        ("damaged_messages", "Messages that readers met and that fail their checksum."),
        ("connections", "Open connections; of gRPC, those that have a stream open.", ("api",)),
    ),
]
_THROUGHPUT = _families(
    "counter",
    ("messages_published_total", "Messages that readers can see; a delayed one when it is due.", ("topic", "lane")),
    ("published_bytes_total", "Their size, with headers and everything else that is stored.", _TOPIC),
    ("messages_read_total", "Messages read by offset, without a group.", _TOPIC),
    ("read_bytes_total", "Their size.", _TOPIC),
)
_GROUPS = [
    *_families(
        "counter",
        ("messages_delivered_total", "Messages handed to a group's members for the first time.", _PAIR),
        ("messages_redelivered_total", "Messages handed out once more.", _PAIR),
        ("messages_acked_total", "Messages that a group is done with.", _PAIR),
        ("messages_nacked_total", "Messages given back to be tried again.", _PAIR),
        ("messages_rejected_total", "Messages that a member called hopeless.", _PAIR),
        ("visibility_timeouts_total", "Messages that nobody settled in time.", _PAIR),
        ("messages_dead_lettered_total", "Messages that became dead letters.", _PAIR),
        ("messages_expired_total", "Messages whose time to live was over before they were delivered.", _PAIR),
        ("messages_discarded_total", "Dead letters that a group gave up: these have none of their own.", _PAIR),
        ("messages_lost_total", "Messages that left the log before a group was done with them.", _PAIR),
        ("messages_redriven_total", "Dead letters that were sent back.", _TOPIC),
        ("messages_refused_total", "Messages that did not fit their topic's schema.", _TOPIC),
        ("group_rebalances_total", "How often partitions were shared out anew, since the group was made.", _GROUP),
    ),
    *_families(
        "gauge",
        ("group_lag_messages", "Messages that a group is not done with.", ("group", "topic", "partition")),
        ("group_in_flight_messages", "Messages that members have in hand.", _PAIR),
        ("group_waiting_messages", "Messages that wait for another try.", _PAIR),
        ("group_members", "Members.", _GROUP),
    ),
    *_families(
        "counter",
        ("lane_delivered_total", "Messages delivered, by priority lane.", ("group", "lane")),
        ("lane_wait_seconds_total", "How long they had waited, together.", ("group", "lane")),
    ),
]
_DELAYS = [
    *_families("gauge", ("delayed_messages", "Messages that are not due yet.")),
    *_families(
        "counter",
        ("delayed_fired_total", "Delayed messages that became visible."),
        ("delayed_cancelled_total", "Delayed messages that were taken back."),
        ("delayed_rescheduled_total", "Delayed messages that were given another time."),
    ),
    *_families("histogram", ("delay_error_seconds", "From when a delayed message was due until readers see it.")),
]
_TRANSACTIONS = [
    *_families(
        "gauge",
        ("transactions", "Transactions that have not ended.", ("state",)),
        ("oldest_transaction_seconds", "How long the oldest of them has been open; 0 if there is none."),
        ("transactions_overdue", "Those of them whose timeout is over."),
        ("transactions_held_up", "Transactions that have ended and that readers of some partition still wait for."),
    ),
    *_families(
        "counter",
        ("transactions_begun_total", "Transactions that were begun."),
        ("transactions_committed_total", "Transactions that were committed."),
        ("transactions_aborted_total", "Transactions that were aborted, for whatever reason."),
        ("transactions_timed_out_total", "Those of them that were not ended in time."),
    ),
    *_families("histogram", ("transaction_seconds", "From the begin of a transaction to its commit.")),
    *_families("gauge", ("known_producers", "Producers that partitions remember, each counted for every partition.")),
    *_families(
        "counter",
        ("producers_fenced_total", "Requests of replaced producers, and transactions that these left open."),
        ("known_batches_total", "Batches that came again and were not stored again."),
    ),
    *_families("gauge", ("known_dedup_ids", "Dedup ids that topics remember.")),
]
_STORAGE = [
    *_families(
        "gauge",
        ("topic_partitions", "Partitions.", _TOPIC),
        ("topic_segments", "Segments.", _TOPIC),
        ("topic_size_bytes", "What the segments hold.", _TOPIC),
        ("partition_start_offset", "The oldest offset that can be read.", _PARTITION),
        ("partition_end_offset", "The offset that the next message gets.", _PARTITION),
        ("partition_stable_offset", "Readers see what lies below, unless they ask for uncommitted.", _PARTITION),
    ),
    *_families("counter", ("fsync_rounds_total", "Rounds in which what was written was brought to the disk.")),
]
_TIMES = _families(
    "histogram",
    ("publish_seconds", "From the append of a message to its acknowledgement."),
    ("fsync_seconds", "How long a round of fsync takes."),
    ("end_to_end_seconds", "From a message's timestamp to its delivery.", _GROUP),
    ("request_seconds", "How long requests take; those that wait for messages, with the waiting.", ("api", "endpoint")),
    ("event_loop_delay_seconds", "How late the event loop comes to a timer; looked at ten times a second."),
)
_REQUESTS = _families("counter", ("requests_total", "Requests that have ended.", ("api", "endpoint", "code")))
_TRACING = [
    *_families(
        "counter",
        ("trace_events_total", "Events of messages' ways that were recorded."),
        ("trace_dropped_total", "What a sink could not take.", ("sink",)),
        ("trace_spans_exported_total", "Spans that a tracing system took.", ("sink",)),
    ),
    *_families("gauge", ("trace_file_bytes", "Room that trace files take.")),
    *_families("counter", ("log_lines_suppressed_total", "Log lines left out because there were too many alike.")),
]
_PROCESS = [
    Family("process_cpu_seconds_total", "counter", "Processor time used."),
    Family("process_resident_memory_bytes", "gauge", "Memory in use."),
    Family("process_virtual_memory_bytes", "gauge", "Address space in use."),
    Family("process_open_fds", "gauge", "Open file descriptors."),
    Family("process_max_fds", "gauge", "How many there may be."),
    Family("process_start_time_seconds", "gauge", "When the process was started, in Unix time."),
    Family("python_gc_collections_total", "counter", "Runs of the garbage collector.", ("generation",)),
]

FAMILIES = (
    *_BROKER,
    *_THROUGHPUT,
    *_GROUPS,
    *_DELAYS,
    *_TRANSACTIONS,
    *_STORAGE,
    *_TIMES,
    *_REQUESTS,
    *_TRACING,
    *_PROCESS,
)
