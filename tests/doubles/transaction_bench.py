"""A broker on a disk in memory and on a clock that the test owns, for tests of transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random

from behaviour.clock import ManualClock

from doubles.group_scripts import CONFIG
from doubles.power_loss import PowerLossDisk
from goqueue.broker.broker import Broker
from goqueue.broker.groups.membership import Join
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.queues.polling import PollBounds
from goqueue.broker.transactions.open_transactions import OpenTransaction
from goqueue.broker.transactions.producer_fencing import ProducerIdentity
from goqueue.broker.transactions.transaction_service import TransactionService
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.model.clock import Randomness
from goqueue.model.config import Config, TransactionsConfig
from goqueue.model.errors import GoQueueError
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.simulation.ports import SimulatedRandomness
from goqueue.wire.decoding import decode_run

TOPIC, OTHER, GROUP = "t", "u", "g"


@dataclass
class Got:
    """A message as a consumer has it."""

    value: bytes
    count: int
    receipt: str
    offset: int


class Bench:
    """Two topics of one partition each; the second is not made durable by publishing.

    Ids are the same in each run: the shards of topics follow from them.
    """

    def __init__(self, disk: PowerLossDisk, config: Config, randomness: Randomness | None = None) -> None:
        self.disk = disk
        self.randomness = randomness or SimulatedRandomness(Random(7))
        self.config = config
        self.clock = ManualClock()
        self.members: dict[str, str] = {}
        self.broker: Broker

    @property
    def transactions(self) -> TransactionService:
        return self.broker.transactions

    # Life

    async def start(self) -> None:
        self.broker = Broker(self.config, files=self.disk, clock=self.clock, randomness=self.randomness)
        await self.broker.start()

    async def restart(self) -> None:
        await self.broker.close()
        self.disk.release_locks()
        await self.start()

    def full(self) -> None:
        """No byte more may be written."""
        self.disk.quota = self.disk.used_bytes()

    def room(self) -> None:
        self.disk.quota = None

    def pass_ms(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        self.broker.clockwork.ring()

    # Producers

    async def begin(self, name: str | None = None, timeout_ms: int | None = None) -> OpenTransaction:
        made = await self.transactions.init(name, timeout_ms)
        return self.begin_as(made)

    def begin_as(self, producer: ProducerIdentity) -> OpenTransaction:
        return self.transactions.begin(producer.producer_id, producer.epoch)

    async def publish(
        self, transaction: OpenTransaction | None, *values: bytes, topic: str = TOPIC, **options: object
    ) -> None:
        messages = [NewMessage(value, **options) for value in values]  # type: ignore[arg-type]
        for outcome in await self.broker.publish(topic, messages, transaction):
            if not isinstance(outcome, Published):
                raise outcome

    async def prepared(self, *values: bytes, topic: str = TOPIC) -> str:
        transaction = await self.begin()
        await self.publish(transaction, *values, topic=topic)
        await self.transactions.prepare(transaction.transaction_id)
        return transaction.transaction_id

    async def prepare(self, transaction: OpenTransaction) -> None:
        await self.transactions.prepare(transaction.transaction_id)

    async def commit(self, transaction: OpenTransaction) -> None:
        await self.transactions.commit(transaction.transaction_id)

    async def abort(self, transaction: OpenTransaction) -> None:
        await self.transactions.abort(transaction.transaction_id)

    async def values(self, topic: str = TOPIC, *, uncommitted: bool = False) -> list[bytes]:
        found = await self.broker.read(topic, 0, Bounds(1 << 24, uncommitted=uncommitted), offset=0)
        return [each.value for each in found.messages]

    # Consumers

    async def join(self, group: str = GROUP, topic: str = TOPIC, name: str = "", **settings: object) -> str:
        joined = await self.broker.groups.membership.join(group, Join("c", [topic], {"kind": "shared", **settings}))
        self.members[name or group] = joined.member_id
        return joined.member_id

    async def poll(
        self, count: int = 100, group: str = GROUP, member: str | None = None, wait_ms: int = 0
    ) -> list[Got]:
        bounds = PollBounds(count, 1 << 24, wait_ms)
        found = await self.broker.groups.polling.poll(group, member or self.members[group], bounds)
        return [
            Got(message.value, each.count, each.receipt(message.offset) or "", message.offset)
            for each in found
            for message in decode_run(each.run)[0]
        ]

    async def settle(self, verb: str, got: Sequence[Got]) -> list[GoQueueError | None]:
        order = SettlementRequest(Verb(verb), 0 if verb == "nack" else None)
        return await self.broker.groups.settling.settle_receipts([each.receipt for each in got], order)

    async def ack_in(self, transaction: OpenTransaction, got: Sequence[Got]) -> None:
        await self.transactions.add_acks(transaction, [each.receipt for each in got])

    def lag(self, group: str = GROUP) -> int:
        return sum(each.lag for each in self.broker.groups.offsets.lag(group))

    def committed(self, group: str = GROUP) -> int:
        [found] = self.broker.groups.offsets.lag(group)
        return found.committed


@asynccontextmanager
async def bench(
    disk: PowerLossDisk | None = None, *, topic: dict[str, object] | None = None, **transactions: int
) -> AsyncIterator[Bench]:
    config = replace(CONFIG, transactions=replace(TransactionsConfig(), **transactions))
    made = Bench(disk or PowerLossDisk(), config)
    await made.start()
    try:
        for name, settings in ((TOPIC, {}), (OTHER, {"fsync": "interval"})):
            if name not in made.broker.topic_names():
                await made.broker.create_topic(name, {"retry_backoff_ms": 0, **settings, **(topic or {})})
        yield made
    finally:
        made.room()
        await made.broker.close()
        made.disk.release_locks()
