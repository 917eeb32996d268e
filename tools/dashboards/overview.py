"""Is the broker well, and if not, where to look next."""

from __future__ import annotations

from dashboards.panels import (
    BAD_ABOVE_0,
    BROKERS,
    PER_SECOND,
    Json,
    Row,
    dashboard,
    figure,
    lines,
    percentiles,
    rate,
    table,
)

_PROBES = 'endpoint!~".*(readyz|healthz|livez|health|Check|Watch)"'
_FAILED = 'code=~"5..|UNKNOWN|INTERNAL|UNAVAILABLE|DATA_LOSS|RESOURCE_EXHAUSTED"'


def overview() -> Json:
    asked = rate("goqueue_requests_total", f"@broker, {_PROBES}", "api")
    now = Row(
        "Now",
        (
            figure(
                "Ready",
                "none",
                "Whether the broker takes messages. NO: ask GET /readyz?verbose=true which check fails.",
                "min(goqueue_ready{@broker})",
                steps=((None, "red"), (1, "green")),
                words={"0": "NO", "1": "yes"},
            ),
            figure(
                "Firing alerts",
                "none",
                "Alerts that fire now; the table below names them. Needs the rules of deploy/prometheus.",
                'count(ALERTS{alertname=~"GoQueue.*", alertstate="firing", @broker}) or vector(0)',
                steps=BAD_ABOVE_0,
            ),
            figure(
                "Published",
                "cps",
                "Messages a second that became visible to readers, all topics together.",
                rate("goqueue_messages_published_total", "@broker"),
            ),
            figure(
                "Delivered",
                "cps",
                "Messages a second handed to members of groups for the first time. Well below what is published, times "
                "the number of groups: somebody falls behind.",
                rate("goqueue_messages_delivered_total", "@broker"),
            ),
            figure(
                "Lag",
                "short",
                "Messages that groups are not done with, all groups together. Growing is bad; large is only bad if it "
                "stays.",
                "sum(goqueue_group_lag_messages{@broker})",
            ),
            figure(
                "Dead letters, 1 h",
                "short",
                "Messages that groups gave up within the last hour. Any at all deserve a look.",
                "sum(increase(goqueue_messages_dead_lettered_total{@broker}[1h]))",
                steps=((None, "green"), (1, "orange")),
                decimals=0,
            ),
            figure(
                "Room on the disk",
                "bytes",
                "Free on the data folder's disk. Below storage.min_free_bytes publishing is refused.",
                "min(goqueue_disk_free_bytes{@broker})",
                steps=((None, "red"), (512 << 20, "orange"), (2 << 30, "green")),
            ),
            figure(
                "Up for",
                "s",
                "Since the broker started. Short although nobody restarted it: read the end of its log.",
                "min(time() - process_start_time_seconds{@broker})",
            ),
            table(
                "Alerts",
                "none",
                "Alerts that fire, or are about to. docs/alerts.md has a section for each.",
                (
                    "count by (alertname, alertstate, severity, instance, topic, group) "
                    '(ALERTS{alertname=~"GoQueue.*", @broker})',
                    "series",
                ),
                by="alertname",
                width=16,
            ),
            table(
                "Brokers",
                "none",
                "Which version runs where. Several versions for long: a deployment has stopped half way.",
                ("count by (instance, version, python) (goqueue_build_info{@broker})", "brokers"),
                by="instance",
                width=8,
            ),
        ),
    )
    traffic = Row(
        "Traffic",
        (
            lines(
                "Published, by topic",
                "cps",
                "Messages a second; the ten busiest topics. A topic that drops to nothing has lost its producers.",
                (f"topk(10, {rate('goqueue_messages_published_total', '@broker', 'topic')})", "{{topic}}"),
            ),
            lines(
                "Delivered, done, delivered again",
                "cps",
                "Messages a second, all groups together. Delivered far above done: lag grows, or much fails. Much that "
                "is delivered again: work is done more than once.",
                (rate("goqueue_messages_delivered_total", "@broker"), "delivered for the first time"),
                (rate("goqueue_messages_acked_total", "@broker"), "done"),
                (rate("goqueue_messages_redelivered_total", "@broker"), "delivered again"),
                (rate("goqueue_messages_read_total", "@broker"), "read by offset"),
            ),
            lines(
                "Bytes",
                "Bps",
                "Written by publishing, and read by offset. Compare with what the disk and the network can do.",
                (rate("goqueue_published_bytes_total", "@broker"), "published"),
                (rate("goqueue_read_bytes_total", "@broker"), "read by offset"),
            ),
        ),
    )
    waits = Row(
        "How long things take",
        (
            lines(
                "Publishing",
                "s",
                "From the append of a message to its acknowledgement. On an SSD a few milliseconds; if it rises with "
                "fsync (storage) it is the disk, if it rises with the event loop it is the processor.",
                *percentiles("goqueue_publish_seconds"),
            ),
            lines(
                "From a message's timestamp to its delivery, p99",
                "s",
                "By group, the ten slowest. It rises with lag: the group is behind.",
                (
                    "topk(10, histogram_quantile(0.99, "
                    f"{rate('goqueue_end_to_end_seconds_bucket', '@broker', 'group, le')}))",
                    "{{group}}",
                ),
            ),
            lines(
                "Event loop",
                "s",
                "How late the loop comes to its timers; everything in the broker waits for it. Above 100 ms for long "
                "is bad: too many small requests, or a processor that is busy otherwise.",
                *percentiles("goqueue_event_loop_delay_seconds"),
            ),
        ),
    )
    requests = Row(
        "Requests",
        (
            lines(
                "Requests, by result",
                "reqps",
                "Requests that ended, by API and status. 5xx and UNAVAILABLE are the broker's, 4xx the clients'.",
                (rate("goqueue_requests_total", "@broker", "api, code"), "{{api}} {{code}}"),
                stacked=True,
            ),
            lines(
                "Share that failed",
                "percentunit",
                "Of the requests, without the probes for health: those that failed on the broker's side. More than a "
                "few in a hundred is bad.",
                (
                    # While nothing has failed there is no such series, and the share is zero.
                    f"({rate('goqueue_requests_total', f'@broker, {_FAILED}, {_PROBES}', 'api')} "
                    f"or 0 * {asked}) / {asked}",
                    "{{api}}",
                ),
            ),
            lines(
                "Connections",
                "short",
                "Open now. Rising without an end: clients that connect and do not close.",
                ("sum by (api) (goqueue_connections{@broker})", "{{api}}"),
            ),
            table(
                "Endpoints",
                "none",
                "Each endpoint: requests a second, how long they take on average and at the 99th percentile. Polls "
                "wait for messages, so theirs are long by nature.",
                (rate("goqueue_requests_total", "@broker", "api, endpoint"), "a second"),
                (
                    f"{rate('goqueue_request_seconds_sum', '@broker', 'api, endpoint')} "
                    f"/ {rate('goqueue_request_seconds_count', '@broker', 'api, endpoint')}",
                    "mean",
                ),
                (
                    "histogram_quantile(0.99, "
                    f"{rate('goqueue_request_seconds_bucket', '@broker', 'api, endpoint, le')})",
                    "p99",
                ),
                by="endpoint",
                units={"a second": "reqps", "mean": "s", "p99": "s"},
            ),
        ),
    )
    process = Row(
        "The process",
        (
            lines(
                "Processor",
                "percentunit",
                "1 is one core. The event loop has one: near 1 for long, it is the bottleneck. Above 1 threads help "
                "it.",
                (f"sum by (instance) (rate(process_cpu_seconds_total{{@broker}}{PER_SECOND}))", "{{instance}}"),
            ),
            lines(
                "Memory",
                "bytes",
                "It does not grow with what is stored. It does with delayed messages, with what is in flight, and with "
                "connections; growing for days without these is a defect.",
                ("process_resident_memory_bytes{@broker}", "{{instance}} resident"),
                ("process_virtual_memory_bytes{@broker}", "{{instance}} virtual"),
            ),
            lines(
                "File descriptors",
                "short",
                "Open now, and how many there may be. Near the limit connections are refused.",
                ("process_open_fds{@broker}", "{{instance}} open"),
                ("process_max_fds{@broker}", "{{instance}} limit"),
            ),
            lines(
                "Garbage collection",
                "cps",
                "Runs a second by generation. Generation 2 is the costly one: several a second would cost time.",
                (rate("python_gc_collections_total", "@broker", "generation"), "generation {{generation}}"),
            ),
            lines(
                "Traces",
                "cps",
                "Events recorded, spans sent, and what was dropped on the way. Dropping never touches messages; it "
                "means that a receiver is away or slow, or that trace.export_per_second is reached.",
                (rate("goqueue_trace_events_total", "@broker"), "recorded"),
                (rate("goqueue_trace_spans_exported_total", "@broker", "sink"), "sent to {{sink}}"),
                (rate("goqueue_trace_dropped_total", "@broker", "sink"), "dropped, {{sink}}"),
            ),
            lines(
                "Log lines left out",
                "cps",
                "Lines that were so many alike that the broker left them out. Above zero: something happens very "
                "often; the log says what.",
                (rate("goqueue_log_lines_suppressed_total", "@broker"), "left out"),
            ),
        ),
    )
    return dashboard(
        "goqueue-overview",
        "GoQueue: overview",
        "Is it well, and if not, where to look next.",
        [BROKERS],
        [now, traffic, waits, requests, process],
    )
