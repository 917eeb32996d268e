"""RabbitMQ with quorum queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.system import Server, System
from bench.peers.systems.rabbitmq import DEAD_LETTER_PREFETCH, prepare, rabbitmq
from bench.peers.work import Durability, Work


def _prepare() -> None:
    prepare("pika")


@contextmanager
def _start(folder: Path, _durability: Durability) -> Iterator[Server]:
    with rabbitmq(folder) as server:
        yield server


SYSTEM = System(
    key="rabbitmq_quorum",
    name="RabbitMQ quorum queue",
    client="pika",
    durabilities=frozenset({Durability.FSYNC}),
    works=frozenset(Work),
    settings={
        Durability.FSYNC: "x-queue-type=quorum, one node, publisher confirms (up to 8,000 open), persistent messages, "
        f"prefetch 1,000, dead_letter_worker_consumer_prefetch={DEAD_LETTER_PREFETCH}; everything else as it comes",
    },
    prepare=_prepare,
    start=_start,
    remarks=(
        "A quorum queue fsyncs before it confirms, and has no setting for less.",
        "A queue is no log: its backlog is consumed with auto-ack, and is gone after that.",
        "Queue consumers acknowledge 100 messages at a time (multiple=True).",
        "Delays are messages that expire in a waiting queue and go to their queue as dead letters (at-least-once). "
        "They expire at the head of that queue only: one with a short delay waits behind one with a long delay.",
        "pika with callbacks: aiormq, on which aio-pika stands, took 4 to 10 times its processor time a message.",
    ),
)
