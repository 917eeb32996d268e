"""Redis Streams: one server with an append-only file."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.system import Missing, Server, System, free_port, listens, program, running
from bench.peers.work import Durability, Work

_APPENDFSYNC = {Durability.FSYNC: "always", Durability.PAGE_CACHE: "everysec"}


def _program() -> str:
    return program("redis-server", "install Redis (Debian: apt-get install redis-server)")


def _prepare() -> None:
    _program()
    for module in ("redis", "hiredis"):
        if importlib.util.find_spec(module) is None:
            raise Missing(f"there is no Python package {module} here: pip install -e '.[peers]'")


@contextmanager
def _start(folder: Path, durability: Durability) -> Iterator[Server]:
    redis_server, port = _program(), free_port()
    told = subprocess.run([redis_server, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=(\S+)", told)
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(folder),
        "save": "",
        "appendonly": "yes",
        "appendfsync": _APPENDFSYNC[durability],
        "auto-aof-rewrite-percentage": "0",
    }
    command = [redis_server, *(word for name, value in settings.items() for word in (f"--{name}", value))]
    with running(command, folder, lambda: listens(port)) as process:
        yield Server(process, f"redis://127.0.0.1:{port}", version[1] if version else told.strip())


SYSTEM = System(
    key="redis",
    name="Redis Streams",
    client="redis",
    durabilities=frozenset(Durability),
    works=frozenset(Work) - {Work.DELAY},
    settings={
        Durability.FSYNC: "appendonly yes, appendfsync always, no snapshots, no rewriting of the file during the run",
        Durability.PAGE_CACHE: (
            "appendonly yes, appendfsync everysec, no snapshots, no rewriting of the file during the run"
        ),
    },
    prepare=_prepare,
    start=_start,
    remarks=(
        "It keeps every message in memory: the file is there to fill the memory again after a restart.",
        "Its replies are parsed by hiredis (C). Commands are pipelined on a connection of redis-py, which is faster"
        " than that package's pipeline objects.",
        "Batches go as a script call (100 B) or as a transaction (1,000 B), so that there is one wait for the disk for"
        " each; plain pipelining waits after every 16 KiB.",
        "A delivery or an ack in a group is a command in the file like any other: as durable as the messages.",
        "Streams have no delayed delivery.",
    ),
)
