"""A client that reaches its broker through cuts, losses, kills and power cuts, and does not know what became of its
requests."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from remote_broker import TOPIC, Client, RemoteWorld

from goqueue.broker.broker import Broker
from goqueue.simulation.virtual_loop import SimulatedLoop

MESSAGES = 40


@dataclass
class Outcome:
    told: dict[str, int]
    stored: list[tuple[str, int]]
    unanswered: int
    took_s: float


def outcome(seed: int, *, is_careless: bool = False) -> Outcome:
    async def live() -> Outcome:
        world, client = RemoteWorld(loop, seed), Client(is_careless=is_careless)
        await world.start()
        await world.node.run(lambda broker: Broker.create_topic(broker, TOPIC, {"partitions": 1}))

        async def publish() -> None:
            for number in range(MESSAGES):
                await client.publish(f"m{number}")
                await asyncio.sleep(0.3)
            client.disconnect()

        disturbing = asyncio.ensure_future(world.disturb())
        await loop.run_in(world.client_process, publish)
        disturbing.cancel()
        await asyncio.wait([disturbing])
        if not world.node.is_up:
            await world.node.start()
        stored = await world.stored()
        await world.node.stop()
        return Outcome(client.told, stored, client.unanswered, loop.time())

    loop = SimulatedLoop(Random(seed))
    # A broker that loses its power says a lot.
    logging.disable(logging.CRITICAL)
    try:
        return loop.run_until_complete(live())
    finally:
        loop.close()
        logging.disable(logging.NOTSET)


def is_told_the_truth(outcome: Outcome) -> bool:
    """Whether every message is stored once, where its sender was told."""
    return Counter(outcome.stored) == Counter(outcome.told.items())


@pytest.mark.parametrize("seed", range(12))
def test_a_client_that_asks_again_after_an_unknown_outcome_stores_every_message_once(seed: int) -> None:
    found = outcome(seed)
    assert len(found.told) == MESSAGES
    assert is_told_the_truth(found)


def test_requests_remain_without_an_answer_and_one_seed_gives_one_history() -> None:
    assert sum(outcome(seed).unanswered for seed in range(12)) > 12
    assert outcome(5) == outcome(5)
    assert outcome(5) != outcome(6)


def test_taking_an_unknown_outcome_for_a_failure_is_noticed() -> None:
    assert not all(is_told_the_truth(outcome(seed, is_careless=True)) for seed in range(12))
