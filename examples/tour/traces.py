"""Chapter: where did my order go?"""

from __future__ import annotations

from examples.tour.orders import RETRIES
from examples.tour.shop import POISON, Shop

EVENTS = {"published": 1, "delivered to": 2, "redelivered to": RETRIES, "nacked by": RETRIES + 1}
EVENTS |= {"dead-lettered to": 1, "redriven to": 1, "acked by": 1}


def show(shop: Shop) -> None:
    shop.stage.chapter(
        "Where did my order go?",
        f"The broker remembers what happened to every message. This is the story of order {POISON:,}. "
        "(Elsewhere: a tracing system, if all services send to it.)",
    )
    partition, offset = shop.places[POISON]
    told = shop.command("trace", "orders", str(partition), str(offset))
    check_story(shop, told)


def check_story(shop: Shop, told: str) -> None:
    counted = {event: sum(f"| {event}" in line for line in told.splitlines()) for event in EVENTS}
    shop.stage.so(
        counted == EVENTS,
        f"it tells of {RETRIES + 1} failures, the dead letter, the way back and the ack",
        f"the story should have {EVENTS}, and has {counted}",
    )
