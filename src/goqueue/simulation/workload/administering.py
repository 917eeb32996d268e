"""What operators do to a group: it is given other settings, set back, deleted."""

from __future__ import annotations

from functools import partial
from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, StartAt
from goqueue.model.errors import GoQueueError, GroupNotFound
from goqueue.simulation.processes import Killed
from goqueue.simulation.promises import Broken
from goqueue.simulation.world import PASSING, WORK, Actor, World, is_doubtful

_LIMITS = range(50, 60)


async def configure_group(world: World, actor: Actor, rng: Random) -> None:
    limit = rng.choice(_LIMITS)
    async with world.passing.lock:
        ended = await world.ask(
            f"configure {PASSING}",
            lambda broker: broker.operations.groups.configure(IN_PROCESS, PASSING, {"max_in_flight": limit}),
        )
        if not isinstance(ended, GoQueueError | Killed):
            world.passing.made()
            world.passing.limits = [limit]
        elif is_doubtful(ended):
            world.passing.made(is_doubtful=True)
            if world.passing.limits:
                world.passing.limits.append(limit)


async def reset_group(world: World, actor: Actor, rng: Random) -> None:
    """From here on the group gets everything again."""
    async with world.passing.lock:
        world.passing.forget()
        ended = await world.ask(
            f"reset {PASSING}",
            lambda broker: broker.operations.offsets.reset(IN_PROCESS, PASSING, WORK, None, StartAt()),
        )
        world.passing.forget()
        world.passing.is_known = not isinstance(ended, GoQueueError | Killed)


async def delete_group(world: World, actor: Actor, rng: Random) -> None:
    passing = world.passing
    async with passing.lock:
        await _let_all_leave(world)
        passing.forget()
        before, passing.state = passing.state, "asked"
        ended = await world.ask(
            f"delete {PASSING}", lambda broker: broker.operations.groups.delete(IN_PROCESS, PASSING)
        )
        passing.forget()
        passing.is_known = False
        if ended is None or (isinstance(ended, GroupNotFound) and before == "refused"):
            # Made again it gets everything.
            passing.state, passing.limits, passing.is_known = "refused", [], True
        elif isinstance(ended, GroupNotFound) and before == "told":
            raise Broken(f"group {PASSING} is gone")
        elif not is_doubtful(ended):
            passing.state = before


async def _let_all_leave(world: World) -> None:
    members = await world.ask(f"members of {PASSING}", _members)
    for member in members if isinstance(members, list) else ():
        await world.ask(f"leave {PASSING}", partial(_leave, member=member))


async def _members(broker: Broker) -> list[str]:
    return broker.operations.groups.member_ids(IN_PROCESS, PASSING)


async def _leave(broker: Broker, member: str) -> bool:
    return await broker.operations.groups.leave(IN_PROCESS, PASSING, member)
