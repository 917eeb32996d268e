"""Groups of a broker in the bench's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench.in_process_broker import TOPIC
from bench.workload import BATCH_MESSAGES, wire_batches
from goqueue.broker.broker import Broker
from goqueue.broker.groups.membership import Join
from goqueue.broker.queues.polling import Delivery, PollBounds
from goqueue.delivery.settlement_requests import LeaseClaim, SettlementRequest, Verb
from goqueue.model.message import Priority
from goqueue.wire.batch import parse_batch

_SETTINGS: dict[str, object] = {"kind": "shared", "max_in_flight": 100_000, "visibility_timeout_ms": "12h"}
_MAX_BYTES = 1 << 20


async def fill(broker: Broker, messages: int, partitions: int, lanes: Sequence[int] = (Priority.NORMAL,)) -> None:
    """Batches of a thousand, one partition after the other."""
    wires = wire_batches(lanes)
    for number in range(messages // BATCH_MESSAGES):
        await broker.publish_frames(TOPIC, number % partitions, parse_batch(wires[number % len(wires)]))
        await asyncio.sleep(0)


async def join(broker: Broker, group: str) -> str:
    """One member of a shared group that may have much in flight for long."""
    return (await broker.groups.membership.join(group, Join("bench", [TOPIC], _SETTINGS))).member_id


async def poll(broker: Broker, group: str, member: str, messages: int) -> list[Delivery]:
    found = await broker.groups.polling.poll(group, member, PollBounds(messages, _MAX_BYTES))
    count = sum(len(each.run) for each in found)
    if count != messages:
        raise RuntimeError(f"a poll for {messages} messages brought {count}")
    return found


async def ack(broker: Broker, group: str, found: list[Delivery]) -> None:
    claims = []
    for each in found:
        offsets = each.run.columns()["offset"]
        runs = [int(offsets[0]), int(offsets[-1]) + 1]
        claims.append(LeaseClaim(group, each.topic, each.partition, each.lease, each.count, each.token, runs))
    for refused, error in await broker.groups.settling.settle_leases(claims, SettlementRequest(Verb.ACK)):
        if error is not None or refused:
            raise RuntimeError(f"an ack was refused: {error}")
