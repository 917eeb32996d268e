"""RabbitMQ with streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.system import Server, System
from bench.peers.systems.rabbitmq import prepare, rabbitmq
from bench.peers.work import Durability, Work


def _prepare() -> None:
    prepare("rstream")


@contextmanager
def _start(folder: Path, _durability: Durability) -> Iterator[Server]:
    with rabbitmq(folder, streams=True) as server:
        yield server


SYSTEM = System(
    key="rabbitmq_stream",
    name="RabbitMQ stream",
    client="rstream",
    durabilities=frozenset({Durability.PAGE_CACHE}),
    works=frozenset({Work.PUBLISH, Work.SINGLE, Work.BACKLOG, Work.LATENCY}),
    settings={
        Durability.PAGE_CACHE: "plugin rabbitmq_stream, one node, publisher confirms, batches as sub-entries of "
        "100 messages without compression; everything else as it comes",
    },
    prepare=_prepare,
    start=_start,
    remarks=(
        "A stream confirms without fsync, and has no setting for more.",
        "A stream is a log: it has no acknowledgement of single messages and no delays.",
        "rstream speaks the protocol of streams: over AMQP with pika each message took several times the processor "
        "time. It reads from its socket in pieces of 256 KiB here, not of 256 bytes as by default, and sends each "
        "batch at once, not every half second.",
    ),
)
