"""Chapter: a message that comes later, and one that comes first."""

from __future__ import annotations

import time

from examples.tour.shop import ORDERS, Shop, customer_of, make_order
from examples.tour.stage import received
from goqueue import to_json

DELAY_S = 3.0
LATE_AT_MOST_S = 5.0
"""On a machine that has a JVM to start besides; in quiet it is some milliseconds."""
URGENT = ORDERS
REDRIVEN = 1
"""The poison order's second copy is the other group's alone, and counts as lag until a poll has come by it."""


def show(shop: Shop) -> None:
    shop.stage.chapter(
        "Later, and first",
        "A delay or a priority is said when a message is sent, and the queue sees to it. (Elsewhere: a scheduler with "
        "a database, and a topic for each priority with consumers that juggle them.)",
    )
    shop.client.create_topic("reminders", partitions=1)
    with shop.client.producer() as producer:
        reminder = producer.send("reminders", "your parcel comes today", key="customer-7", delay=DELAY_S).result()
    shop.command("delay", "list", "reminders")
    overtake(shop)
    remind(shop, (reminder.deliver_at_ns or 0) / 1e9)


def overtake(shop: Shop) -> None:
    """A group that begins now has the whole day's orders before it."""
    urgent = make_order(URGENT)
    with shop.client.producer(serializer=to_json) as producer:
        stored = producer.send("orders", urgent, key=customer_of(URGENT), priority="critical").result()
    shop.sent(urgent, (stored.partition, stored.offset))
    with shop.client.consumer("customs", "orders", kind="shared", max_in_flight=10) as consumer:
        first = received(consumer, "an order")
        behind = shop.client.describe_group("customs").lag - 1 - REDRIVEN
        first.ack().result()
    shop.stage.so(
        (first.partition, first.offset) == shop.places[URGENT] and behind == len(shop.orders) - 1,
        f"the critical order, last of {len(shop.orders):,} in the log, is the first that a new group gets; "
        f"{behind:,} wait behind it",
        f"the first was {first.value!r}, with {behind:,} behind it",
    )


def remind(shop: Shop, due_s: float) -> None:
    with shop.client.consumer("mailers", "reminders", kind="shared") as consumer:
        message = received(consumer, "the reminder")
        came_early = time.time() < due_s
        message.ack().result()
    # When it was there to be had; whoever polls later gets it later.
    late_s = message.timestamp_ns / 1e9 - due_s
    shop.stage.so(
        not came_early and 0 <= late_s <= LATE_AT_MOST_S and message.value == b"your parcel comes today",
        f"the reminder that was to come after {DELAY_S:.0f} s came {late_s * 1_000:.0f} ms after its time",
        f"the reminder {message.value!r} came {late_s:.3f} s after its time",
    )
