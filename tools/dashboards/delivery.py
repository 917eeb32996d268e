"""What becomes of messages: done, tried again, given up, late."""

from __future__ import annotations

from dashboards.panels import BROKERS, GROUPS, TOPICS, Json, Query, Row, dashboard, heat, lines, percentiles, rate


def delivery() -> Json:
    pair = "{{group}} / {{topic}}"
    first = rate("goqueue_messages_delivered_total", "@both", "group, topic")
    again = rate("goqueue_messages_redelivered_total", "@both", "group, topic")
    outcomes: tuple[Query, ...] = tuple(
        (rate(f"goqueue_{metric}_total", "@both"), name)
        for metric, name in (
            ("messages_acked", "done"),
            ("messages_nacked", "nacked"),
            ("messages_rejected", "rejected"),
            ("visibility_timeouts", "timed out"),
            ("messages_dead_lettered", "dead letters"),
            ("messages_expired", "expired"),
        )
    )
    settled = Row(
        "What becomes of messages",
        (
            lines(
                "Outcomes",
                "cps",
                "Messages a second. Anything but done costs another try or a dead letter.",
                *outcomes,
                width=12,
                stacked=True,
            ),
            lines(
                "Share delivered again",
                "percentunit",
                "Of what a group got, what it had had before. Above 30 % for long, most of the work is in vain: what "
                "handlers call is down, or they are slower than the visibility timeout.",
                (
                    f"{again} / ({first} + {again})",
                    pair,
                ),
                width=12,
            ),
            lines(
                "Dead letters",
                "short",
                "Within 10 minutes, by group and topic. Each has its error: GET /topics/{topic}/dead-letters.",
                ("sum by (group, topic) (increase(goqueue_messages_dead_lettered_total{@both}[10m]))", pair),
            ),
            lines(
                "Visibility timeouts",
                "cps",
                "Messages a second that nobody settled in time. Handlers are too slow or die; extend, or raise "
                "visibility_timeout_ms.",
                (rate("goqueue_visibility_timeouts_total", "@both", "group, topic"), pair),
            ),
            lines(
                "Nacked and rejected",
                "cps",
                "Messages a second that handlers gave back, or called hopeless.",
                (rate("goqueue_messages_nacked_total", "@both", "group, topic"), f"{pair} nacked"),
                (rate("goqueue_messages_rejected_total", "@both", "group, topic"), f"{pair} rejected"),
            ),
            lines(
                "Expired",
                "cps",
                "Messages a second whose time to live was over before a group got them. If they were meant to be "
                "worked on, the group is too slow.",
                (rate("goqueue_messages_expired_total", "@both", "group, topic"), pair),
            ),
            lines(
                "Redriven",
                "cps",
                "Dead letters a second that were sent back to their topic. Dead letters that rise behind it: the "
                "reason was not mended.",
                (rate("goqueue_messages_redriven_total", "@topic", "topic"), "{{topic}}"),
            ),
        ),
    )
    lanes = Row(
        "Priority lanes",
        (
            lines(
                "Mean wait, by lane",
                "s",
                "How long what was delivered had waited. critical above the others: too many messages are critical. "
                "One lane far above the others: it gets too small a share.",
                (
                    f"{rate('goqueue_lane_wait_seconds_total', '@group', 'lane')} "
                    f"/ ({rate('goqueue_lane_delivered_total', '@group', 'lane')} > 0)",
                    "{{lane}}",
                ),
            ),
            lines(
                "Delivered, by lane",
                "cps",
                "Messages a second. While all lanes have messages, shares follow the weights of the topic.",
                (rate("goqueue_lane_delivered_total", "@group", "lane"), "{{lane}}"),
                stacked=True,
            ),
            lines(
                "Published, by lane",
                "cps",
                "Messages a second. If most of them are critical, none is.",
                (rate("goqueue_messages_published_total", "@topic", "lane"), "{{lane}}"),
                stacked=True,
            ),
        ),
    )
    delays = Row(
        "Delayed messages",
        (
            lines(
                "Waiting",
                "short",
                "Messages that are not due yet, each about 50 bytes of memory. Compare with limits.max_delayed.",
                ("sum by (instance) (goqueue_delayed_messages{@broker})", "{{instance}}"),
            ),
            lines(
                "Came due, cancelled, put off",
                "cps",
                "Messages a second. Peaks at full hours are producers that all ask for the same time.",
                (rate("goqueue_delayed_fired_total", "@broker"), "came due"),
                (rate("goqueue_delayed_cancelled_total", "@broker"), "cancelled"),
                (rate("goqueue_delayed_rescheduled_total", "@broker"), "given another time"),
            ),
            lines(
                "How late they come",
                "s",
                "From the time they were due until readers see them. Tens of milliseconds are usual; above a second "
                "the disk or the event loop is slow, or very many are due at once.",
                *percentiles("goqueue_delay_error_seconds"),
            ),
            heat(
                "How late they come, spread",
                "Each column is a moment, each cell how many came so late. A dark band low down is good; what rises "
                "behind a peak of due messages is a queue.",
                "goqueue_delay_error_seconds",
                width=24,
            ),
        ),
    )
    transactions = Row(
        "Transactions",
        (
            lines(
                "Ended",
                "cps",
                "Transactions a second. Timed out above zero: producers crash in the middle, or are slower than "
                "their timeout; readers waited for each.",
                (rate("goqueue_transactions_committed_total", "@broker"), "committed"),
                (rate("goqueue_transactions_aborted_total", "@broker"), "aborted"),
                (rate("goqueue_transactions_timed_out_total", "@broker"), "timed out"),
            ),
            lines(
                "Open",
                "short",
                "Transactions that have not ended, by state. Prepared ones wait for whoever began the job. Held up "
                "or overdue above zero: they cannot be ended, and readers wait.",
                ("sum by (state) (goqueue_transactions{@broker})", "{{state}}"),
                ("sum(goqueue_transactions_held_up{@broker})", "held up"),
                ("sum(goqueue_transactions_overdue{@broker})", "overdue"),
            ),
            lines(
                "How long they take",
                "s",
                "From begin to commit, and the age of the oldest that is open. Readers of its partitions wait at its "
                "first message.",
                *percentiles("goqueue_transaction_seconds"),
                ("max(goqueue_oldest_transaction_seconds{@broker})", "oldest that is open"),
            ),
            lines(
                "Readers wait for",
                "short",
                "Records behind the first one of a transaction that is open, by topic: what readers do not get yet. "
                "Up and down is work, a step that stays is a transaction that hangs.",
                (
                    "sum by (topic) (goqueue_partition_end_offset{@topic} - goqueue_partition_stable_offset{@topic})",
                    "{{topic}}",
                ),
            ),
            lines(
                "Sent again, fenced",
                "cps",
                "Batches a second that came again and were not stored again: retries that did no harm. Fenced: a "
                "producer was replaced; again and again means that two share one transactional id.",
                (rate("goqueue_known_batches_total", "@broker"), "known batches"),
                (rate("goqueue_producers_fenced_total", "@broker"), "fenced"),
            ),
            lines(
                "Remembered",
                "short",
                "Producers, each counted for every partition that it wrote to, and dedup ids. Compare with "
                "limits.max_producers_per_partition and limits.max_dedup_ids.",
                ("sum(goqueue_known_producers{@broker})", "producers"),
                ("sum(goqueue_known_dedup_ids{@broker})", "dedup ids"),
            ),
        ),
    )
    return dashboard(
        "goqueue-delivery",
        "GoQueue: delivery",
        "What becomes of messages: done, tried again, given up, late.",
        [BROKERS, GROUPS, TOPICS],
        [settled, lanes, delays, transactions],
    )
