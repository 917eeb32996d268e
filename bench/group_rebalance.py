"""How long a group of 100 members takes to settle 300 partitions."""

from __future__ import annotations

import time
from pathlib import Path

import uvloop

from bench.harness import Measured, repeat, rounded, scratch_folder
from bench.in_process_broker import TOPIC, broker_over
from goqueue.broker.groups.membership import Join

_MEMBERS = 100
_PARTITIONS = 300


def measure() -> Measured:
    """The longest of: the join of the last member, the leave of one, and everyone's joining one after the other."""
    all_joins: list[float] = []

    def once() -> float:
        with scratch_folder() as folder:
            joins_s, longest_s = uvloop.run(_once(str(folder)))
        all_joins.append(joins_s)
        return max(joins_s, longest_s)

    runs = repeat("rebalance_seconds", once, times=5, budget_s=30)
    return Measured(
        runs,
        {
            "members": _MEMBERS,
            "partitions": _PARTITIONS,
            "kind": "sticky",
            "includes": f"{_MEMBERS} joins one after the other, each a rebalance; every change durable",
        },
    )


async def _once(folder: str) -> tuple[float, float]:
    async with broker_over(Path(folder) / "data") as broker:
        await broker.create_topic(TOPIC, {"partitions": _PARTITIONS})
        members = []
        started = time.perf_counter()
        for number in range(_MEMBERS):
            joined = await broker.groups.membership.join("group", Join(f"member{number}", [TOPIC], {"kind": "sticky"}))
            members.append(joined.member_id)
        joins_s = time.perf_counter() - started
        started = time.perf_counter()
        await broker.groups.membership.leave("group", members[0])
        leave_s = time.perf_counter() - started
        shares = {len(broker.groups.membership.assignment("group", each).assigned) for each in members[1:]}
        if shares != {3, 4}:
            raise RuntimeError(f"{_PARTITIONS} partitions are shared unevenly: {rounded(min(shares))} to {max(shares)}")
        return joins_s, leave_s
