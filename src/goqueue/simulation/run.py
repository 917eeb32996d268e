"""Runs a plan in a world of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from goqueue.model.clock import stopwatch
from goqueue.simulation import disturbing
from goqueue.simulation.checks import check_everything
from goqueue.simulation.plan import ACTORS, FAULTS, Plan, Step
from goqueue.simulation.ports import SimulatedStopwatch
from goqueue.simulation.processes import Process
from goqueue.simulation.virtual_loop import SimulatedLoop
from goqueue.simulation.workload import (
    administering,
    consuming,
    maintaining,
    members,
    numbering,
    publishing,
    registering,
    streaming,
    transacting,
)
from goqueue.simulation.world import Actor, World

OPERATIONS_BY_KIND: dict[str, Callable[[World, Actor, Random], Awaitable[None]]] = {
    "publish": publishing.publish,
    "publish_delayed": publishing.publish_delayed,
    "publish_once": publishing.publish_once,
    "read": publishing.read,
    "cancel": publishing.cancel,
    "reschedule": publishing.reschedule,
    "make_topic": publishing.make_topic,
    "drop_topic": publishing.drop_topic,
    "poll": consuming.poll,
    "ack": consuming.ack,
    "ack_again": consuming.ack_again,
    "nack": consuming.nack,
    "reject": consuming.reject,
    "extend": consuming.extend,
    "poll_as_former": consuming.poll_as_former,
    "leave": members.leave,
    "come_back": members.come_back,
    "heartbeat": members.heartbeat,
    "stream": streaming.stream,
    "commit_as_former": streaming.commit_as_former,
    "fetch_offsets": streaming.fetch_offsets,
    "redrive": consuming.redrive,
    "begin": transacting.begin,
    "write_in_transaction": transacting.write,
    "ack_in_transaction": transacting.ack,
    "commit": transacting.commit,
    "abort": transacting.abort,
    "begin_again": transacting.begin_again,
    "write_again": transacting.write_again,
    "write_as_former": transacting.write_as_former,
    "prepare": transacting.prepare,
    "commit_many": transacting.commit_many,
    "ask_for_key": transacting.ask_for_key,
    "start_numbering": numbering.start_numbering,
    "publish_numbered": numbering.publish_numbered,
    "publish_numbered_again": numbering.publish_numbered_again,
    "publish_out_of_order": numbering.publish_out_of_order,
    "configure_group": administering.configure_group,
    "reset_group": administering.reset_group,
    "delete_group": administering.delete_group,
    "register_schema": registering.register_schema,
    "look_up_schema": registering.look_up_schema,
    "publish_checked": registering.publish_checked,
    "purge": maintaining.purge,
    "back_up": maintaining.back_up,
}
DISTURBANCES_BY_KIND: dict[str, Callable[[World, Random], Awaitable[None]]] = {
    "kill": disturbing.kill,
    "cut_power": disturbing.cut_power,
    "cut_power_after_answer": disturbing.cut_power_after_answer,
    "restart": disturbing.restart,
    "fail_sync": disturbing.fail_sync,
    "fill_disk": disturbing.fill_disk,
    "slow_disk": disturbing.slow_disk,
    "release_shard": disturbing.release_shard,
    "release_coordinator": disturbing.release_coordinator,
    "save_state": disturbing.save_state,
    "move_clock": disturbing.move_clock,
    "cut_tail": disturbing.cut_tail,
}


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a plan."""

    plan: Plan
    problem: BaseException | None
    history: list[str]
    digest: str
    counts: Counter[str]
    """How often what was done, and how it ended."""


def run_plan(plan: Plan) -> Ran:
    random = Random(f"world {plan.seed}")
    loop = SimulatedLoop(Random(random.getrandbits(64)))
    world = World(loop, random)
    clients = Process("clients")
    problem: BaseException | None = None
    real_stopwatch, stopwatch.now_s = stopwatch.now_s, SimulatedStopwatch(random)
    logging.disable(logging.CRITICAL)
    try:
        loop.run_until_complete(loop.run_in(clients, lambda: _live(world, plan)))
    except Exception as error:
        problem = _first_of(error)
    finally:
        loop.kill(clients)
        world.node.kill()
        loop.close()
        stopwatch.now_s = real_stopwatch
        logging.disable(logging.NOTSET)
    return Ran(plan, problem, world.history.lines, world.history.digest(), world.history.counts)


async def _live(world: World, plan: Plan) -> None:
    await world.set_up()
    progress = Progress()
    async with asyncio.TaskGroup() as everyone:
        everyone.create_task(_disturb(world, plan, progress))
        async with asyncio.TaskGroup() as clients:
            for number in range(1, ACTORS + 1):
                steps = [step for step in plan.steps if step.actor == number]
                clients.create_task(_act(world, Actor(number), steps, progress))
        progress.end()
    await check_everything(world)
    await world.node.stop()


class Progress:
    """How many operations clients have begun: what goes wrong does so after as many as in the plan."""

    def __init__(self) -> None:
        self._begun: float = 0
        self._changed = asyncio.Event()

    def step(self) -> None:
        self._begun += 1
        self._changed.set()

    def end(self) -> None:
        self._begun = float("inf")
        self._changed.set()

    async def reaches(self, count: int) -> None:
        while self._begun < count:
            self._changed.clear()
            await self._changed.wait()


async def _act(world: World, actor: Actor, steps: list[Step], progress: Progress) -> None:
    for step in steps:
        await asyncio.sleep(step.pause_ms / 1_000)
        world.history.counts["operations"] += 1
        progress.step()
        await OPERATIONS_BY_KIND[step.kind](world, actor, Random(step.seed))


async def _disturb(world: World, plan: Plan, progress: Progress) -> None:
    before = 0
    for step in plan.steps:
        if step.actor != FAULTS:
            before += 1
            continue
        await progress.reaches(before)
        await asyncio.sleep(step.pause_ms / 1_000)
        world.history.note(step.kind)
        world.history.counts[step.kind] += 1
        await DISTURBANCES_BY_KIND[step.kind](world, Random(step.seed))


def _first_of(error: BaseException) -> BaseException:
    """Of the problems of several actors, the one that came first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
