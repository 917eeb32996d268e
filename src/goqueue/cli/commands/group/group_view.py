"""Formats groups as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from goqueue.cli.settings.settings_view import settings_table as listed_settings
from goqueue.cli.terminal import tables
from goqueue.cli.terminal.output import Line
from goqueue.model.fields import specs
from goqueue.model.group_settings import GroupSettings
from goqueue.observe.logs import escape

_MOST_OWNED = 4
_PARTITION = ["topic", "partition", "committed", "end", "lag", "in flight", "given back"]


def summary(group: dict[str, Any]) -> dict[str, Any]:
    """The columns of a group's row."""
    return {
        "name": group["group_id"],
        "kind": group["settings"]["kind"],
        "mode": group["settings"]["mode"],
        "state": group["state"] if group["members"] else "empty",
        "members": len(group["members"]),
        "in_flight": sum(each["in_flight"] for each in group["lag"]),
        "lag": group["total_lag"],
    }


def groups_table(groups: Sequence[dict[str, Any]]) -> Iterator[Line]:
    rows = [[f"{value:,}" if isinstance(value, int) else value for value in summary(each).values()] for each in groups]
    yield from tables.table(["name", "kind", "mode", "state", "members", "in flight", "lag"], rows)


def group_lines(group: dict[str, Any]) -> Iterator[Line]:
    figures = summary(group)
    yield [(escape(figures["name"]), "bold")]
    facts = (
        f"{figures['state']}, {figures['members']} members, generation {group['generation']}, lag {figures['lag']:,}"
    )
    yield [(f"{tables.GAP}{facts}", "dim")]
    yield []
    yield from listed_settings(specs(GroupSettings), group["settings"], group["overrides"], "set for this group")
    if group["members"]:
        yield []
        rows = [
            [
                each["member_id"],
                each["client_id"],
                each.get("instance_id", ""),
                str(each["in_flight"]),
                _owned_partitions(each["assigned_partitions"], each["revoking_partitions"]),
            ]
            for each in group["members"]
        ]
        yield from tables.table(["member", "client", "instance", "in flight", "has"], rows)
    if group["lag"]:
        yield []
        yield from lag_table(group["lag"])


def lag_table(partitions: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """A row for each partition, and one for the total."""
    rows = [[each["topic"], str(each["partition"]), *_figures(each), _held_back(each)] for each in partitions]
    counts = ["lag", "in_flight", "waiting"]
    total = ["all", "", "", "", *(f"{sum(each[name] for each in partitions):,}" for name in counts), ""]
    yield from tables.table([*_PARTITION, ""], [*rows, total])


def _figures(each: dict[str, Any]) -> list[str]:
    counts = [f"{each[name]:,}" for name in ("lag", "in_flight", "waiting")]
    return [str(each["committed"]), str(each["latest"]), *counts]


def lag_json(group: str, partitions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The JSON output of ``lag``."""
    names = {"total_lag": "lag", "total_in_flight": "in_flight", "total_waiting": "waiting"}
    totals = {total: sum(each[name] for each in partitions) for total, name in names.items()}
    return {"group": group, **totals, "partitions": partitions}


def moves_table(found: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """The offsets of each partition before and after a reset."""
    rows = [
        [str(each["partition"]), "" if each["from"] is None else str(each["from"]), str(each["to"]), _distance(each)]
        for each in found
    ]
    yield from tables.table(["partition", "from", "to", ""], rows)


def _distance(move: dict[str, Any]) -> str:
    if move["from"] is None:
        return "new to the group"
    way = move["to"] - move["from"]
    return f"{abs(way):,} {'back' if way < 0 else 'forward'}" if way else "stays"


def _owned_partitions(assigned: Sequence[str], revoking: Sequence[str]) -> str:
    text = ", ".join(assigned[:_MOST_OWNED]) or "nothing"
    if len(assigned) > _MOST_OWNED:
        text += f" and {len(assigned) - _MOST_OWNED} more"
    return text + (f", gives back {len(revoking)}" if revoking else "")


def _held_back(each: dict[str, Any]) -> str:
    return f"{each['held_back']:,} behind an open transaction" if each["held_back"] else ""
