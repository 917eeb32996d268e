"""GoQueue itself, run as users run it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.broker_process import broker_process
from bench.peers.system import Server, System
from bench.peers.work import Durability, Work

_FSYNC = {Durability.FSYNC: "always", Durability.PAGE_CACHE: "interval"}


def _prepare() -> None:
    """It is here."""


@contextmanager
def _start(folder: Path, durability: Durability) -> Iterator[Server]:
    with broker_process(folder / "data", "--set", f"topic.fsync={_FSYNC[durability]}") as broker:
        yield Server(broker.process, broker.address, str(broker.request("GET", "/version")["version"]))


SYSTEM = System(
    key="goqueue",
    name="GoQueue",
    client="goqueue",
    durabilities=frozenset(Durability),
    works=frozenset(Work),
    settings={
        Durability.FSYNC: "topic.fsync=always (the default)",
        Durability.PAGE_CACHE: "topic.fsync=interval (the disk follows within a second)",
    },
    prepare=_prepare,
    start=_start,
    remarks=(
        "Acks and deliveries of its queues are on the disk before they count, under either setting.",
        "Publishing: 16 calls of `send_many` under way. Reading: `read_batches` and `values()`, every checksum "
        "verified; `read`, which makes a record of each message, does about half as many. The queue's worker may "
        "have 5,000 messages in hand.",
    ),
)
