"""A backup, read and started on another simulated machine: what must be there, and what must not."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import Random

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS, Bounds, MessagesRead
from goqueue.simulation.disk import SimulatedDisk
from goqueue.simulation.node import Node
from goqueue.simulation.promises import Broken, Place, Sent
from goqueue.simulation.world import BRIEF, TIDY, World
from goqueue.storage.backup.backup_format import Head
from goqueue.storage.backup.backup_reader import read_backup
from goqueue.storage.files.data_folder import RESTORED

_READ_BYTES = 1 << 20


class _Pieces:
    """Reads of any size from pieces of bytes."""

    def __init__(self, whole: bytes) -> None:
        self._whole = memoryview(whole)

    def read(self, size: int, /) -> bytes:
        data, self._whole = bytes(self._whole[:size]), self._whole[size:]
        return data


class _Folder:
    """Writes what a backup holds to a simulated disk."""

    def __init__(self, disk: SimulatedDisk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self._position = 0

    def begin(self, head: Head) -> None:
        self._disk.make_dirs(self._root)

    def begin_file(self, path: str, size: int) -> None:
        target = self._root / path
        self._disk.make_dirs(target.parent)
        self._file, self._position = self._disk.open(target, create=True), 0

    def write(self, data: bytes) -> None:
        self._file.write(self._position, data)
        self._position += len(data)

    def end_file(self) -> None:
        pass


async def check_backup(world: World, backup: bytes, told: Iterable[Sent], random: Random) -> None:
    """Start on what was restored. ``told`` are messages that were told to be stored before the backup was begun."""
    node = Node("restored", world.node.config, world.loop, random)
    root = Path(node.config.storage.path)
    read_backup(_Pieces(backup), _Folder(node.disk, root))
    node.disk.open(root / RESTORED, create=True)
    await node.start()
    try:
        if problems := await node.run(_problems):
            raise Broken(f"a broker is not well on a restored folder: {problems}")
        # Nobody sees what is behind a transaction that has not ended.
        await node.run(_abort_prepared)
        found = await _everything(world, node)
    finally:
        await node.stop()
    for message in told:
        assert message.place is not None
        # What is being purged now may be gone by then.
        is_there = message.place in found or message.due_ns is not None or message.place[:2] in world.busy
        if message.must_be_seen and message.topic not in (TIDY, BRIEF) and not is_there:
            raise Broken(f"{message.value!r} is not in a backup that was begun later: {message}")
    for place, value in found.items():
        if place.topic in world.topics:
            world.promises.check_visible(place, value)


async def _problems(broker: Broker) -> dict[str, str]:
    return broker.problems()


async def _abort_prepared(broker: Broker) -> None:
    for each in broker.operations.transactions.all_open(IN_PROCESS):
        await broker.operations.transactions.abort(IN_PROCESS, each.transaction_id)


async def _everything(world: World, node: Node) -> dict[Place, bytes]:
    found: dict[Place, bytes] = {}
    for topic in world.topics:
        for partition in range(world.partitions(topic)):
            page = await node.run(partial(_page, topic=topic, partition=partition, offset=0))
            while page.messages:
                for message in page.messages:
                    found[Place(topic, partition, message.offset)] = message.value or b""
                page = await node.run(partial(_page, topic=topic, partition=partition, offset=page.next_offset))
    return found


async def _page(broker: Broker, topic: str, partition: int, offset: int) -> MessagesRead:
    return await broker.read(topic, partition, Bounds(_READ_BYTES), offset=offset)
