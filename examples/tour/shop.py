"""The shop of the tour: its orders, and all that is known of what was sent and shipped."""

from __future__ import annotations

import random
import shlex
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from subprocess import Popen
from typing import TYPE_CHECKING, Any

from examples.tour.processes import Broker, Processes
from examples.tour.stage import PATIENCE_S, NotSo, Stage
from goqueue import Client, Consumer, from_json

if TYPE_CHECKING:
    from examples.tour.spark import Revenue

ORDERS = 20_000
LATER_ORDERS = 4_000
"""Those that are published while the broker is killed."""
FIRST_OF_NEXT_DAY = 1_000_000
PARTITIONS = 3
POISON = 4_711
OPENS_AT = datetime(2030, 5, 2, 9, tzinfo=UTC)
CITIES = {"Oslo": 5, "Lima": 4, "Cairo": 3, "Kyoto": 3, "Porto": 2}
"""Where customers live; the number says how many of them."""
BUSY = (3, 4, 6, 9, 7, 4, 5, 8, 6, 3)
"""How much is ordered in each hour from opening to closing."""
GROUP = "fulfilment"
ORDER_SCHEMA = """{"type": "object", "required": ["order", "city", "items", "cents", "at"], "properties": {
  "order": {"type": "integer"}, "city": {"type": "string"}, "items": {"type": "integer", "minimum": 0},
  "cents": {"type": "integer", "minimum": 0}, "at": {"type": "string"}}}"""

Place = tuple[int, int]
"""A partition and an offset."""


def make_order(number: int) -> dict[str, Any]:
    """Always the same one for a number. The poison order is the one with a bug waiting for it: it has no items."""
    rng = random.Random(number)
    [city] = rng.choices(list(CITIES), list(CITIES.values()))
    [hour] = rng.choices(range(len(BUSY)), BUSY)
    at = OPENS_AT + timedelta(hours=hour, seconds=rng.randrange(3_600))
    items = 0 if number == POISON else rng.randint(1, 5)
    return {"order": number, "city": city, "items": items, "cents": rng.randint(500, 9_900), "at": at.isoformat()}


def customer_of(number: int) -> str:
    return f"customer-{number % 500}"


@dataclass
class Shop:
    """What the chapters share."""

    stage: Stage
    processes: Processes
    broker: Broker
    client: Client
    orders: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Every order that was sent and stored, by its number."""
    places: dict[int, Place] = field(default_factory=dict)
    """Where the broker said that it is."""
    workers: dict[str, Popen[str]] = field(default_factory=dict)
    """Those that are at work, by name."""
    spark: Revenue | None = None
    """The query that runs beside everything else, if there is a Spark."""

    @cached_property
    def shipments(self) -> Shipments:
        return Shipments(self.client, self.check_workers)

    def sent(self, order: dict[str, Any], place: Place) -> None:
        self.orders[order["order"]] = order
        self.places[order["order"]] = place

    def command(self, *arguments: str) -> str:
        """Run ``goqueue …`` as a user would, show both the line and what it prints, and return that."""
        typed = shlex.join(["goqueue", *arguments])
        self.stage.command(typed)
        server = {"GOQUEUE_SERVER": self.broker.url}
        process = self.processes.start("goqueue", *arguments, log="command.log", variables=server)
        status, told = self.processes.ended(process)
        if status != 0:
            said = (self.processes.folder / "command.log").read_text().splitlines()
            raise NotSo(f"'{typed}' ended with {status}: {' '.join(said[-2:])}")
        self.stage.printed(told)
        return told

    def close_client(self) -> None:
        """Unless its broker is gone: then it would wait for it."""
        if self.broker.process.poll() is None:
            self.client.close()

    def check_workers(self) -> None:
        """Raise if one has ended that nobody has told to."""
        for name, worker in self.workers.items():
            if worker.poll() is not None:
                said = (self.processes.folder / f"{name}.log").read_text().strip().splitlines()
                raise NotSo(f"{name} ended with {worker.returncode}: {''.join(said[-1:])}")

    def check_log(self) -> None:
        """Raise unless the log holds every order that was sent, once, as it was sent, at the place that was told."""
        found: dict[int, Place] = {}
        for record in self.client.read("orders", deserializer=from_json):
            number = record.value["order"]
            if number in found:
                redriven = any(name == "goqueue-for-group" for name, _ in record.headers)
                if redriven:
                    continue
                raise NotSo(f"order {number} is in the log twice")
            if record.value != self.orders.get(number):
                raise NotSo(f"the log holds {record.value}, and what was sent is {self.orders.get(number)}")
            found[number] = (record.partition, record.offset)
        if found != self.places:
            wrong = [number for number in self.places if found.get(number) != self.places[number]]
            raise NotSo(f"{len(wrong)} orders are not where the broker said that they are; the first: {wrong[:3]}")


class Shipments:
    """What workers have shipped, as far as it was read."""

    def __init__(self, client: Client, check_workers: Callable[[], None]) -> None:
        self._client = client
        self._check_workers = check_workers
        self._seen: set[int] = set()
        self.by_worker: Counter[str] = Counter()
        """How many orders each has shipped, when they were counted last."""

    @cached_property
    def _consumer(self) -> Consumer:
        return self._client.consumer("tour", "shipments", mode="stream", deserializer=from_json)

    @property
    def seen(self) -> int:
        return len(self._seen)

    def wait_for(self, orders: set[int]) -> None:
        """Read until each of these is shipped."""
        deadline = time.monotonic() + PATIENCE_S
        while missing := orders - self._seen:
            self._check_workers()
            if time.monotonic() > deadline:
                raise NotSo(f"{len(missing):,} orders are not shipped; one of them is order {min(missing)}")
            self._seen |= {record.value["order"] for record in self._consumer.poll(5_000, timeout=1)}

    def check(self, orders: set[int]) -> None:
        """Raise unless the topic holds a shipment of each of these orders, once, and no other."""
        counted: Counter[int] = Counter()
        self.by_worker.clear()
        for record in self._client.read("shipments", deserializer=from_json):
            counted[record.value["order"]] += 1
            self.by_worker[record.value["worker"]] += 1
        twice = [order for order, times in counted.items() if times > 1]
        if twice:
            raise NotSo(f"{len(twice)} orders were shipped more than once; one of them is order {min(twice)}")
        if counted.keys() != orders:
            raise NotSo(
                f"these orders were shipped and should not be, or the reverse: {sorted(counted.keys() ^ orders)[:5]}"
            )
