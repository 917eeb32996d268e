"""What shards were shown of groups, against what the coordinators know."""

from __future__ import annotations

from goqueue.broker.broker import Broker
from goqueue.broker.shards.group_views import news
from goqueue.simulation.promises import Broken
from goqueue.simulation.world import World


async def check_views(world: World) -> None:
    """Shards know what the coordinators know of groups, and of no others."""
    if unlike := await world.node.run(_unlike):
        raise Broken(f"shards know something else of groups than their coordinators: {unlike}")


async def _unlike(broker: Broker) -> list[str]:
    return unlike_views(broker)


def unlike_views(broker: Broker) -> list[str]:
    """What shards have yet to be shown of groups, and groups that they know although they are gone. All are led."""
    shards = broker.groups.shards
    known = [active for shard in shards.all for name in shard.state.names() if (active := shards.get(name))]
    names = {active.name for active in known}
    return [
        *(
            f"{shard.number}: {event}"
            for active in known
            for shard, event in news(shards.map, active.group, is_shared=active.settings.kind == "shared")
        ),
        *(f"{shard.number}: {name}" for shard in shards.all for name in shard.state.views if name not in names),
    ]
