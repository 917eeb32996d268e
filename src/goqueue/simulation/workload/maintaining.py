"""What operators do with what is stored: they purge partitions, and back all of it up."""

from __future__ import annotations

from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS
from goqueue.model.errors import GoQueueError
from goqueue.simulation.processes import Killed
from goqueue.simulation.restoring import check_backup
from goqueue.simulation.world import LOG, WIDE, WORK, Actor, World


async def purge(world: World, actor: Actor, rng: Random) -> None:
    topic = rng.choice((LOG, WORK, WIDE))
    partition = rng.randrange(world.partitions(topic))
    if (topic, partition) in world.busy:
        return
    world.busy.add((topic, partition))
    purged = await world.ask(f"purge {topic}/{partition}", lambda broker: broker.purge_topic(topic, partition))
    if not isinstance(purged, GoQueueError | Killed):
        world.promises.purged(topic, partition, purged[0].earliest)
    else:
        # Also an error may come when the beginning has moved already: it says to purge it again.
        world.promises.purged(topic, partition, None)
    world.busy.discard((topic, partition))


async def back_up(world: World, actor: Actor, rng: Random) -> None:
    """Once in a plan: a start on what was restored takes as long as hundreds of other operations."""
    if world.is_backed_up or rng.random() < 0.85:
        return
    told = [each for each in world.promises.sent.values() if each.must_be_seen]
    backup = await world.ask("back up", _read)
    if not isinstance(backup, GoQueueError | Killed):
        world.is_backed_up = True
        world.history.counts["backups checked"] += 1
        await check_backup(world, backup, told, Random(rng.getrandbits(64)))


async def _read(broker: Broker) -> bytes:
    pieces = []
    backup = await broker.operations.maintenance.begin_backup(IN_PROCESS)
    while piece := await backup.next():
        pieces.append(piece)
    return b"".join(pieces)
