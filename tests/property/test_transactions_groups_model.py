"""Random transactions and polls against a model: what was committed comes, what was aborted never does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from doubles.loop import on_a_loop
from doubles.transaction_bench import GROUP, TOPIC, Bench, Got, bench

from goqueue.broker.transactions.open_transactions import OpenTransaction

STEPS = 120


@dataclass
class Model:
    """Messages go by their values, which are all different."""

    committed: set[bytes] = field(default_factory=set)
    """What is for everyone to see, as soon as nothing before it is open."""
    aborted: set[bytes] = field(default_factory=set)
    done: set[bytes] = field(default_factory=set)
    open: dict[str, list[bytes]] = field(default_factory=dict)
    acked_in: dict[str, list[Got]] = field(default_factory=dict)
    in_hand: list[Got] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)
    counts: Counter[bytes] = field(default_factory=Counter)
    serial: int = 0

    def make(self, count: int) -> list[bytes]:
        made = [b"%d" % (self.serial + each) for each in range(count)]
        self.serial += count
        return made

    def seen(self) -> set[bytes]:
        """What a group can have by now."""
        first_open = min((self.places[value] for values in self.open.values() for value in values), default=1 << 60)
        return {value for value in self.committed if self.places[value] < first_open}


class Player:
    def __init__(self, it: Bench, rng: Random, *, keyed: bool) -> None:
        self.it, self.rng, self.model, self.keyed = it, rng, Model(), keyed
        self.transactions: dict[str, OpenTransaction] = {}

    async def step(self) -> None:
        moves = [self.publish, self.publish, self.poll, self.poll, self.ack, self.nack, self.end, self.end]
        await self.rng.choice([*moves, self.begin, self.ack_in, self.restart_seldom])()
        self.check_lag()

    def check_lag(self) -> None:
        assert self.it.lag() == len(self.model.seen() - self.model.done)

    async def begin(self) -> None:
        if len(self.transactions) < 3:
            begun = await self.it.begin()
            self.transactions[begun.transaction_id] = begun
            self.model.open[begun.transaction_id] = []
            self.model.acked_in[begun.transaction_id] = []

    async def publish(self) -> None:
        model = self.model
        values = model.make(self.rng.randint(1, 4))
        name = self.rng.choice([None, *self.transactions])
        for value in values:
            model.places[value] = self.it.broker.topic(TOPIC).partitions[0].log.end_offset
            options: dict[str, Any] = {"priority": self.rng.choice([2, 2, 2, 0, 4])}
            if self.keyed:
                options["key"] = b"%d" % self.rng.randrange(3)
            await self.it.publish(self.transactions.get(name or ""), value, **options)
        if name is None:
            model.committed |= set(values)
        else:
            model.open[name] += values

    async def poll(self) -> None:
        got = await self.it.poll(self.rng.choice([1, 3, 100]))
        model = self.model
        for each in got:
            assert each.value in model.seen(), f"{each.value!r} is not for anyone to see"
            assert each.value not in model.done
            assert each.value not in {other.value for other in model.in_hand}
            model.counts[each.value] += 1
            assert each.count == model.counts[each.value]
        model.in_hand += got

    def take(self, most: int) -> list[Got]:
        chosen = self.rng.sample(self.model.in_hand, min(most, len(self.model.in_hand)))
        self.model.in_hand = [each for each in self.model.in_hand if each not in chosen]
        return chosen

    async def ack(self) -> None:
        chosen = self.take(3)
        assert await self.it.settle("ack", chosen) == [None] * len(chosen)
        self.model.done |= {each.value for each in chosen}

    async def nack(self) -> None:
        chosen = self.take(1)
        assert await self.it.settle("nack", chosen) == [None] * len(chosen)

    async def ack_in(self) -> None:
        if self.transactions:
            name = self.rng.choice(list(self.transactions))
            chosen = self.take(2)
            await self.it.ack_in(self.transactions[name], chosen)
            self.model.acked_in[name] += chosen

    async def end(self) -> None:
        if self.transactions:
            await self.end_one(self.rng.choice(list(self.transactions)), is_commit=self.rng.random() < 0.5)

    async def end_one(self, name: str, *, is_commit: bool) -> None:
        transaction = self.transactions.pop(name)
        values, acked = self.model.open.pop(name), self.model.acked_in.pop(name)
        if is_commit:
            await self.it.commit(transaction)
            self.model.committed |= set(values)
            self.model.done |= {each.value for each in acked}
        else:
            await self.it.abort(transaction)
            self.model.aborted |= set(values)

    async def restart_seldom(self) -> None:
        if self.rng.random() < 0.3:
            await self.it.restart()
            for name in list(self.transactions):
                self.model.aborted |= set(self.model.open.pop(name))
                del self.model.acked_in[name]
            self.transactions.clear()

    async def finish(self) -> None:
        """Whatever is left comes, once nothing is open and nothing in hand."""
        for name in list(self.transactions):
            await self.end_one(name, is_commit=self.rng.random() < 0.5)
        model = self.model
        while model.in_hand:
            await self.ack()
        for _ in range(1_000):
            await self.poll()
            if not model.in_hand:
                break
            while model.in_hand:
                await self.ack()
        assert model.done == model.committed
        assert self.it.lag() == 0
        assert self.it.committed() >= max((model.places[value] + 1 for value in model.committed), default=0)
        assert set(await self.it.values()) == model.committed


@pytest.mark.parametrize("settings", [{}, {"ordering": "key"}], ids=str)
@pytest.mark.parametrize("seed", range(8))
@on_a_loop
async def test_every_committed_message_is_delivered_and_no_aborted_one_ever(
    seed: int, settings: dict[str, object]
) -> None:
    async with bench(topic={"max_retries": 1_000, "segment_bytes": 64 << 10}) as it:
        await it.join(GROUP, **settings)
        player = Player(it, Random(seed), keyed="ordering" in settings)
        for _ in range(STEPS):
            await player.step()
        await player.finish()
