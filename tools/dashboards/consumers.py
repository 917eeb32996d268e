"""Groups: who is behind, why, and who does the work."""

from __future__ import annotations

from dashboards.panels import BROKERS, GROUPS, TOPICS, Json, Row, dashboard, heat, lines, rate, table


def consumers() -> Json:
    lag_by_pair = "sum by (group, topic) (goqueue_group_lag_messages{@both})"
    behind = Row(
        "Who is behind",
        (
            table(
                "Groups",
                "short",
                "Each group and topic. Lag: not done with, what is in flight and waits for a retry included. Time to "
                "catch up: at the pace of the last minutes, if nothing new came; above ten minutes is worth a look.",
                (lag_by_pair, "lag"),
                ("sum by (group, topic) (goqueue_group_in_flight_messages{@both})", "in flight"),
                ("sum by (group, topic) (goqueue_group_waiting_messages{@both})", "wait for a retry"),
                (rate("goqueue_messages_acked_total", "@both", "group, topic"), "done a second"),
                (
                    f"{lag_by_pair} / ({rate('goqueue_messages_acked_total', '@both', 'group, topic')} > 0)",
                    "time to catch up",
                ),
                by="group",
                units={"done a second": "cps", "time to catch up": "s"},
            ),
            lines(
                "Lag",
                "short",
                "Messages that each group is not done with. Up and down is work; up and up is a group that falls "
                "behind.",
                (lag_by_pair, "{{group}} / {{topic}}"),
                width=12,
            ),
            lines(
                "Lag, by partition",
                "short",
                "The ten partitions that are furthest behind. One alone: a hot key, or a member that hangs.",
                (
                    "topk(10, sum by (group, topic, partition) (goqueue_group_lag_messages{@both}))",
                    "{{group}} / {{topic}}-{{partition}}",
                ),
                width=12,
            ),
            lines(
                "How lag changes",
                "cps",
                "Messages a second; above zero it grows. Above zero for a quarter of an hour is an alert.",
                (
                    "sum by (group, topic) (deriv(goqueue_group_lag_messages{@both}[5m]))",
                    "{{group}} / {{topic}}",
                ),
                width=12,
                least=None,
            ),
            heat(
                "From a message's timestamp to its delivery",
                "How long messages of the chosen groups had waited when they were delivered. A band that climbs is a "
                "group that falls behind; two bands are two groups, or retries beside first tries.",
                "goqueue_end_to_end_seconds",
                "@group",
            ),
        ),
    )
    members = Row(
        "Members",
        (
            lines(
                "Members",
                "short",
                "Members of each group. Zero while there is lag: nobody does the work.",
                ("sum by (group) (goqueue_group_members{@group})", "{{group}}"),
            ),
            lines(
                "Rebalances",
                "short",
                "How often partitions were shared out anew within 10 minutes. A few at a deployment; without an end, "
                "members crash or miss their session timeout.",
                ("sum by (group) (increase(goqueue_group_rebalances_total{@group}[10m]))", "{{group}}"),
            ),
            lines(
                "In flight",
                "short",
                "Messages that members have in hand. Flat at members times max_in_flight while lag grows: handlers "
                "hang or are too slow.",
                ("sum by (group, topic) (goqueue_group_in_flight_messages{@both})", "{{group}} / {{topic}}"),
            ),
            lines(
                "Wait for a retry",
                "short",
                "Messages that failed and wait for their next try. A hill is an outage of something that handlers "
                "need.",
                ("sum by (group, topic) (goqueue_group_waiting_messages{@both})", "{{group}} / {{topic}}"),
            ),
            lines(
                "Delivered",
                "cps",
                "Messages a second handed to members for the first time, by group and topic.",
                (rate("goqueue_messages_delivered_total", "@both", "group, topic"), "{{group}} / {{topic}}"),
            ),
            lines(
                "Done",
                "cps",
                "Messages a second that a group is done with. Below what is published to the topic: lag grows.",
                (rate("goqueue_messages_acked_total", "@both", "group, topic"), "{{group}} / {{topic}}"),
            ),
        ),
    )
    return dashboard(
        "goqueue-consumers",
        "GoQueue: consumers",
        "Groups: who is behind, why, and who does the work.",
        [BROKERS, GROUPS, TOPICS],
        [behind, members],
    )
