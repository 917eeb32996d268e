"""Resets a group's offsets: parses the target, computes the changes in advance, and carries them out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from goqueue.cli.terminal import times
from goqueue.model.errors import OffsetOutOfRange, PartitionNotFound
from goqueue.model.fields import shown
from goqueue.model.units import format_instant_ns

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

_OFFSET = re.compile(r"[0-9]{1,18}")


def parse_target(text: str) -> dict[str, Any]:
    """Parse ``--to`` into the fields of the reset request."""
    if text in ("earliest", "latest"):
        return {"to": text}
    if _OFFSET.fullmatch(text):
        return {"offset": int(text)}
    if text[:1].isdigit():
        return {"instant": format_instant_ns(times.past_ns("--to", text))}
    raise typer.BadParameter(
        f"{shown(text)} is neither earliest nor latest, nor an offset, nor a time such as 1h or 2026-01-31T12:00:00",
        param_hint="--to",
    )


def plan_moves(
    broker: BrokerHttp, group: dict[str, Any], topic: str, target: dict[str, Any], partitions: Sequence[int] | None
) -> list[dict[str, Any]]:
    """For each partition the committed offset and the one after the reset. Changes nothing."""
    offsets = broker.send("GET", ["topics", topic])["partition_offsets"]
    committed = {each["partition"]: each["committed"] for each in group["lag"] if each["topic"] == topic}
    numbers = range(len(offsets)) if partitions is None else sorted(set(partitions))
    moves = []
    for number in numbers:
        if str(number) not in offsets:
            raise PartitionNotFound(f"topic {topic!r} has partitions 0 to {len(offsets) - 1}; there is no {number}")
        offset = _target_offset(broker, topic, number, target, offsets[str(number)])
        moves.append({"partition": number, "from": committed.get(number), "to": offset})
    return moves


def carry_out(
    broker: BrokerHttp,
    group: str,
    topic: str,
    target: dict[str, Any],
    partitions: Sequence[int] | None,
    moves: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Reset, and return the moves with the offsets now set: messages may have come since they were planned."""
    body = {"topic": topic, **target}
    if partitions is not None:
        body["partitions"] = sorted(set(partitions))
    offsets = broker.send("POST", ["groups", group, "reset"], body=body)["offsets"][topic]
    return [{**move, "to": offsets[str(move["partition"])]} for move in moves]


def _target_offset(broker: BrokerHttp, topic: str, number: int, target: dict[str, Any], offsets: dict[str, int]) -> int:
    if "instant" in target:
        path = ["topics", topic, "partitions", str(number), "messages"]
        found = broker.send("GET", path, {"from_time": target["instant"], "limit": 1})
        return int(found["messages"][0]["offset"] if found["messages"] else found["next_offset"])
    if "to" in target:
        return offsets["last_stable_offset" if target["to"] == "latest" else "earliest"]
    offset = int(target["offset"])
    if not offsets["earliest"] <= offset <= offsets["latest"]:
        raise OffsetOutOfRange(
            f"partition {number}: offset {offset} is not there; there are {offsets['earliest']} to {offsets['latest']}"
        )
    return offset
