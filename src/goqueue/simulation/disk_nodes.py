"""Files and folders in two worlds, live and durable, and what a power loss leaves of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

SECTOR = 512


@dataclass(frozen=True, slots=True)
class Write:
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    size: int


@dataclass(slots=True, eq=False)
class Inode:
    """A file's content, whatever its names."""

    live: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[Write | Truncate] = field(default_factory=list)

    def sync(self) -> None:
        if self.pending:
            self.durable = bytes(self.live)
            self.pending = []


@dataclass(slots=True, eq=False)
class Folder:
    live: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = Inode | Folder


@dataclass(frozen=True, slots=True)
class Naming:
    """One change of names, which a crash keeps or loses as a whole."""

    changes: tuple[tuple[Folder, str, Node | None], ...]

    def apply(self, entries: Callable[[Folder], dict[str, Node]]) -> None:
        for folder, name, node in self.changes:
            if node is None:
                entries(folder).pop(name, None)
            else:
                entries(folder)[name] = node

    def touches(self, folder: Folder) -> bool:
        return any(each is folder for each, _, _ in self.changes)


def inodes(folder: Folder) -> list[Inode]:
    found: list[Inode] = []
    for node in folder.live.values():
        found += [node] if isinstance(node, Inode) else inodes(node)
    return found


def survivor(
    folder: Folder,
    entries: Callable[[Folder], dict[str, Node]],
    copies: dict[int, Node],
    rng: Random,
    keep: float,
) -> Folder:
    made = Folder()
    copies[id(folder)] = made
    for name, node in entries(folder).items():
        if id(node) not in copies:
            copies[id(node)] = (
                _surviving_file(node, rng, keep)
                if isinstance(node, Inode)
                else survivor(node, entries, copies, rng, keep)
            )
        made.durable[name] = made.live[name] = copies[id(node)]
    return made


def _surviving_file(inode: Inode, rng: Random, keep: float) -> Inode:
    content = bytearray(inode.durable)
    for change in inode.pending:
        fate = rng.random()
        if isinstance(change, Truncate):
            if fate < keep:
                del content[change.size :]
                content.extend(bytes(change.size - len(content)))
        elif fate < keep * 0.7:
            _put(content, change.position, change.data)
        elif fate < keep:
            _tear(content, change, rng)
        elif rng.random() < 0.3:
            # The new length reached the disk and the data did not.
            content.extend(bytes(max(0, change.position + len(change.data) - len(content))))
    return Inode(content, bytes(content))


def _tear(content: bytearray, write: Write, rng: Random) -> None:
    """Keep a part of one write: some sectors, or all bytes up to or from some place."""
    end = write.position + len(write.data)
    way = rng.randrange(3)
    if way == 0:
        start = write.position
        while start < end:
            stop = min(end, (start // SECTOR + 1) * SECTOR)
            if rng.random() < 0.5:
                _put(content, start, write.data[start - write.position : stop - write.position])
            start = stop
    else:
        cut = rng.randint(0, len(write.data))
        if way == 1:
            _put(content, write.position, write.data[:cut])
        else:
            _put(content, write.position + cut, write.data[cut:])


def _put(content: bytearray, position: int, data: bytes) -> None:
    if data:
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data
