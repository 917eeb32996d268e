"""A broker in process with groups to poll, on time that the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from behaviour.clock import ManualClock

from doubles.group_movers import all_queues
from goqueue.broker.broker import Broker
from goqueue.broker.groups.membership import Join
from goqueue.broker.queues.polling import Delivery, PollBounds
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.delivery.wheel import TICK_NS
from goqueue.model.clock import Randomness
from goqueue.model.config import Config
from goqueue.model.errors import GoQueueError
from goqueue.model.publishing import NewMessage
from goqueue.storage.files.files import Files
from goqueue.wire.decoding import decode_run

LARGE = 1 << 20


@dataclass(frozen=True, slots=True)
class Got:
    """A message as a member gets it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    count: int
    receipt: str | None
    until_ns: int
    lane: int


def unpack(deliveries: Sequence[Delivery]) -> list[Got]:
    found: list[Got] = []
    for each in deliveries:
        messages, damaged = decode_run(each.run)
        assert not damaged
        found += (
            Got(
                each.topic,
                each.partition,
                message.offset,
                message.key,
                message.value,
                each.count,
                each.receipt(message.offset),
                each.until_ns,
                message.priority,
            )
            for message in messages
        )
    return found


class GroupBench:
    def __init__(
        self,
        config: Config,
        clock: ManualClock | None = None,
        files: Files | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.broker = Broker(config, clock=self.clock, files=files, randomness=randomness)

    async def __aenter__(self) -> GroupBench:
        await self.broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.broker.close()

    async def topic(self, name: str = "t", **settings: object) -> None:
        await self.broker.create_topic(name, {"partitions": 1, **settings})

    async def publish(self, *values: bytes, topic: str = "t", key: bytes | None = None, **options: int) -> None:
        messages = [NewMessage(value, key=key, **options) for value in values]  # type: ignore[arg-type]
        outcomes = await self.broker.publish(topic, messages)
        assert all(not isinstance(outcome, Exception) for outcome in outcomes)

    async def join(
        self,
        group: str = "g",
        topics: Sequence[str] = ("t",),
        instance: str = "",
        auto: bool = False,
        **settings: object,
    ) -> str:
        join = Join("c", topics, settings, instance_id=instance, auto_commit=auto)
        return (await self.broker.groups.membership.join(group, join)).member_id

    async def poll(
        self,
        member: str,
        most: int = 100,
        *,
        group: str = "g",
        wait_ms: int = 0,
        max_bytes: int = LARGE,
        in_flight: int | None = None,
    ) -> list[Got]:
        bounds = PollBounds(most, max_bytes, wait_ms, in_flight)
        return unpack(await self.broker.groups.polling.poll(group, member, bounds))

    def polling(
        self, member: str, most: int = 100, group: str = "g", wait_ms: int = 600_000
    ) -> asyncio.Task[list[Got]]:
        """A poll that waits, as a task."""
        return asyncio.create_task(self.poll(member, most, group=group, wait_ms=wait_ms))

    async def settle(self, verb: str, *got: Got, delay_ms: int | None = None) -> list[GoQueueError | None]:
        receipts = [each.receipt or "" for each in got]
        return await self.broker.groups.settling.settle_receipts(
            receipts, SettlementRequest(Verb(verb), delay_ms, "because")
        )

    async def ack(self, *got: Got) -> None:
        assert await self.settle("ack", *got) == [None] * len(got)

    async def nack(self, *got: Got, delay_ms: int | None = 0) -> None:
        assert await self.settle("nack", *got, delay_ms=delay_ms) == [None] * len(got)

    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        self.broker.clockwork.ring()

    async def waiting(self, count: int, group: str = "g") -> None:
        """Return when so many polls of the group wait."""
        async with asyncio.timeout(60):
            while len(self.broker.groups.shards.find(group).runtime.waiters) < count:  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def fired(self) -> None:
        """Return when every delayed message whose time has come can be seen."""
        self.broker.clockwork.ring()
        # In the first tick that begins when its time has come.
        tick_ns = self.clock.now_ns() // TICK_NS * TICK_NS
        async with asyncio.timeout(60):
            while (self.broker.delays.stats().next_due_ns or tick_ns + 1) <= tick_ns:  # noqa: ASYNC110
                await asyncio.sleep(0)
            partitions = [each for topic in self.broker.running_topics() for each in topic.partitions]
            while any(each.high_watermark < each.log.end_offset for each in partitions):  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def moved(self) -> None:
        """Return when nothing is on its way to the dead letters."""
        async with asyncio.timeout(60):
            while any(queue.moving for queue in all_queues(self.broker)):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def lag(self, group: str = "g") -> int:
        return sum(each.lag for each in self.broker.groups.offsets.lag(group))
