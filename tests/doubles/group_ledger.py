"""What a broker told the consumers of one group, to hold against what it does after a crash."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from doubles.group_movers import all_queues
from doubles.ledger import Broken
from goqueue.broker.broker import Broker
from goqueue.broker.groups.membership import Join
from goqueue.broker.partitions.read import Bounds
from goqueue.broker.queues.polling import PollBounds
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.model.errors import StaleReceipt
from goqueue.wire.decoding import decode_run

TOPIC, GROUP, DEAD = "t", "g", "t.dlq"
MAX_RETRIES = 1
"""Beyond, a message whose consumer goes becomes a dead letter."""


@dataclass
class Told:
    """Messages go by their values, which are all different. ``may_*`` was asked for, the rest was answered."""

    published: set[bytes] = field(default_factory=set)
    may_publish: set[bytes] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)
    may_ack: set[bytes] = field(default_factory=set)
    dead: set[bytes] = field(default_factory=set)
    may_die: set[bytes] = field(default_factory=set)
    redriven: set[bytes] = field(default_factory=set)
    may_redrive: set[bytes] = field(default_factory=set)
    acked_with: dict[bytes, str] = field(default_factory=dict)
    """Receipts by value, and those of messages that have become dead letters."""
    died_with: dict[bytes, str] = field(default_factory=dict)
    counts: dict[bytes, int] = field(default_factory=dict)
    """How often a message was delivered, as far as consumers know."""
    members: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    committed: int = 0
    may_commit: int = 0
    exists: bool = False
    may_exist: bool = False
    overrides: dict[str, object] | None = None
    generation: int = 0
    topics: set[str] = field(default_factory=set)

    def copy(self) -> Told:
        return Told(**{name: _copied(getattr(self, name)) for name in self.__dataclass_fields__})

    def exhausted(self) -> set[bytes]:
        """What may have died without being given up. The last delivery may have happened without being told of."""
        return {value for value, count in self.counts.items() if count >= MAX_RETRIES}

    # Holding it against a broker

    async def check(self, broker: Broker, *, stream: bool) -> None:
        await settled(broker)
        if gone := self.topics - set(broker.topic_names()):
            raise Broken(f"topics are gone that were told of: {gone}")
        self._check_members(broker)
        if not self.published:
            return
        if stream:
            self._check_committed(broker)
        elif broker.groups.shards.get(GROUP) is not None:
            await self._check_late_acks(broker)
            received = await self._drain(broker)
            await settled(broker)
            self._check_messages(received, await self._dead_letters(broker))

    def _check_members(self, broker: Broker) -> None:
        group = broker.groups.shards.of(GROUP).state.by_name.get(GROUP)
        if group is None:
            if self.exists:
                raise Broken("a group is gone that was told of")
            return
        if not self.may_exist:
            raise Broken("a group is back that was deleted")
        if group.state.generation < self.generation:
            raise Broken(f"the generation is {group.state.generation}, and was told to be {self.generation}")
        if lost := self.members - group.state.members.keys():
            raise Broken(f"members are gone that were told that they had joined: {lost}")
        if back := self.left & group.state.members.keys():
            raise Broken(f"members are back that were told that they had left: {back}")
        if self.overrides is not None and group.state.overrides != self.overrides:
            raise Broken(f"settings are {group.state.overrides}, and were told to be {self.overrides}")

    def _check_committed(self, broker: Broker) -> None:
        if not self.exists:
            return
        [lag] = broker.groups.offsets.lag(GROUP)
        low, high = min(self.committed, self.may_commit), max(self.committed, self.may_commit)
        if not low <= lag.committed <= high:
            raise Broken(f"committed is {lag.committed}, and was told to be {self.committed}")

    def _check_messages(self, received: Counter[bytes], dead: Counter[bytes]) -> None:
        if twice := [value for value, times in dead.items() if times > 1 + (value in self.may_redrive)]:
            raise Broken(f"dead letters are there twice: {twice}")
        if made_up := dead.keys() - self.may_die - self.exhausted():
            raise Broken(f"dead letters that nobody gave up: {made_up}")
        if lost := self.dead - dead.keys():
            raise Broken(f"dead letters are lost: {lost}")
        if again := received.keys() & self.acked:
            raise Broken(f"acked messages came again: {again}")
        back = received.keys() & dead.keys() - self.may_redrive
        if back:
            raise Broken(f"messages came again although they are dead letters: {back}")
        # What was redriven may have died a second time.
        dead_for_good = {value for value, times in dead.items() if value not in self.redriven or times > 1}
        settled_for_good = self.may_ack | dead_for_good
        if lost := self.published - received.keys() - settled_for_good:
            raise Broken(f"messages are lost: {lost}")
        if made_up := received.keys() - self.may_publish:
            raise Broken(f"messages that nobody published: {made_up}")
        for value, count in received.items():
            if value not in self.may_redrive and count <= self.counts.get(value, 0):
                raise Broken(f"{value!r} was delivered {self.counts[value]} times, and now for the {count}. time")

    async def _check_late_acks(self, broker: Broker) -> None:
        """Who has acked a message may say so again; who acks a dead letter comes too late."""
        for value, receipt in self.acked_with.items():
            [refusal] = await broker.groups.settling.settle_receipts([receipt], SettlementRequest(Verb.ACK))
            if refusal is not None:
                raise Broken(f"{value!r} was acked, and its ack cannot be repeated: {refusal}")
        for value, receipt in self.died_with.items():
            [refusal] = await broker.groups.settling.settle_receipts([receipt], SettlementRequest(Verb.ACK))
            if not isinstance(refusal, StaleReceipt):
                raise Broken(f"{value!r} is a dead letter, and acking it is answered with {refusal!r}")

    async def _dead_letters(self, broker: Broker) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        if DEAD in broker.topic_names():
            read = await broker.read(DEAD, 0, Bounds(1 << 20))
            found.update(message.value for message in read.messages)
        return found

    async def _drain(self, broker: Broker) -> Counter[bytes]:
        """Everything that the group still gets, with its delivery count."""
        group = broker.groups.shards.find(GROUP).group
        for member in list(group.state.members):
            await broker.groups.membership.leave(GROUP, member)
        joined = await broker.groups.membership.join(GROUP, Join("drain", [TOPIC, *self.topics]))
        received: Counter[bytes] = Counter()
        while found := await broker.groups.polling.poll(GROUP, joined.member_id, PollBounds(100, 1 << 20)):
            receipts = []
            for delivery in found:
                for message in decode_run(delivery.run)[0]:
                    if message.value in received:
                        raise Broken(f"{message.value!r} was delivered twice at once")
                    received[message.value] = delivery.count
                    receipts.append(delivery.receipt(message.offset) or "")
            refused = [
                each
                for each in await broker.groups.settling.settle_receipts(receipts, SettlementRequest(Verb.ACK))
                if each
            ]
            if refused:
                raise Broken(f"what was delivered just now cannot be acked: {refused}")
        return received


async def settled(broker: Broker) -> None:
    """Return when nothing is on its way to another topic any more."""
    async with asyncio.timeout(60):
        while True:
            queues = all_queues(broker)
            if not any(queue.moving for queue in queues):
                return
            for queue in queues:
                await broker.groups.shards.map.of_queue(queue.key).work.moved(queue)
            await asyncio.sleep(0)


def _copied(value: object) -> object:
    if isinstance(value, set):
        return set(value)
    return dict(value) if isinstance(value, dict) else value
