"""A broker on a disk in memory with one topic and one group, for tests of what becomes of its messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from doubles.group_ledger import settled
from doubles.group_scripts import CONFIG
from doubles.power_loss import PowerLossDisk
from goqueue.broker.broker import Broker
from goqueue.broker.groups.membership import Join
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.queues.polling import PollBounds
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.model.config import Config
from goqueue.model.message import Message
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.wire.decoding import decode_run

TOPIC, GROUP, DEAD = "t", "g", "t.dlq"


@dataclass
class Got:
    """A message as a consumer has it."""

    message: Message
    partition: int
    count: int
    receipt: str

    @property
    def value(self) -> bytes:
        return self.message.value


class Desk:
    """Consumers of a broker; ``member`` of the group ``g`` has joined."""

    def __init__(self, broker: Broker, disk: PowerLossDisk) -> None:
        self.broker = broker
        self.disk = disk
        self.groups = broker.groups
        self.members: dict[str, str] = {}

    async def join(self, group: str = GROUP, topic: str = TOPIC, **settings: object) -> None:
        joined = await self.groups.membership.join(group, Join("c", [topic], {"kind": "shared", **settings}))
        self.members[group] = joined.member_id

    async def publish(self, *values: bytes, topic: str = TOPIC, **options: object) -> None:
        outcomes = await self.broker.publish(topic, [NewMessage(value, **options) for value in values])  # type: ignore[arg-type]
        assert all(isinstance(each, Published) for each in outcomes), outcomes

    async def poll(self, count: int = 100, group: str = GROUP) -> list[Got]:
        found = await self.groups.polling.poll(group, self.members[group], PollBounds(count, 1 << 24))
        return [
            Got(message, delivery.partition, delivery.count, delivery.receipt(message.offset) or "")
            for delivery in found
            for message in decode_run(delivery.run)[0]
        ]

    async def settle(self, verb: str, got: list[Got], reason: str = "") -> None:
        order = SettlementRequest(Verb(verb), 0 if verb == "nack" else None, reason)
        outcomes = await self.groups.settling.settle_receipts([each.receipt for each in got], order)
        assert outcomes == [None] * len(got), outcomes

    async def reject_all(self, reason: str = "bad", group: str = GROUP) -> None:
        await self.settle("reject", await self.poll(group=group), reason)
        await settled(self.broker)

    async def stored(self, topic: str, partition: int = 0) -> list[Message]:
        start = self.broker.topic(topic).partitions[partition].log.start_offset
        return (await self.broker.read(topic, partition, Bounds(1 << 26), offset=start)).messages


@asynccontextmanager
async def desk(
    disk: PowerLossDisk | None = None, config: Config = CONFIG, *, join: bool = True, **settings: object
) -> AsyncIterator[Desk]:
    disk = disk or PowerLossDisk()
    broker = Broker(config, files=disk)
    await broker.start()
    try:
        made = Desk(broker, disk)
        if TOPIC not in broker.topic_names():
            await broker.create_topic(TOPIC, {"retry_backoff_ms": 0, **settings})
        if join:
            await made.join()
        yield made
    finally:
        await broker.close()
        disk.release_locks()


def config_with(**topic: object) -> Config:
    return replace(CONFIG, topic=replace(CONFIG.topic, **topic))  # type: ignore[arg-type]
