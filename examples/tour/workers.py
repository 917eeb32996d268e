"""Chapter: workers share a queue, one order is poison, and a mended worker gets it back from the dead letters."""

from __future__ import annotations

import time

from examples.tour.orders import RETRIES
from examples.tour.shop import GROUP, POISON, Shop
from examples.tour.stage import wait_until

WORKERS = 4
MENDED_WORKERS = 2


def show(shop: Shop) -> None:
    shop.stage.chapter(
        "Four workers, and an order that breaks them",
        "The same topic is a queue for a group: four processes share it, each order is acked by itself, and one that "
        "fails is tried again later without holding up the others. (Elsewhere: SQS or RabbitMQ, and "
        "glue to fill it from Kafka.)",
    )
    began = time.perf_counter()
    for number in range(WORKERS):
        # They begin together: on a slow machine the first would be done before the last has started.
        start_worker(shop, f"worker-{number + 1}", "--workers", str(WORKERS))
    others = shop.orders.keys() - {POISON}
    shop.shipments.wait_for(others)
    seconds = time.perf_counter() - began
    shop.shipments.check(others)
    shares = sorted(shop.shipments.by_worker.items())
    shop.stage.say(f"{len(others):,} orders shipped in {seconds:.1f} s, the start of four processes included")
    shop.stage.so(
        len(shares) == WORKERS,
        f"all but order {POISON:,} are shipped, each once: by "
        + ", ".join(f"{name} {done:,}" for name, done in shares),
        f"these have worked: {shares}",
    )
    give_up(shop)
    mend(shop)


def start_worker(shop: Shop, name: str, *options: str) -> None:
    arguments = [shop.broker.address, name, *options]
    shop.workers[name] = shop.processes.start("examples.tour.worker", *arguments, log=f"{name}.log")


def stop_workers(shop: Shop) -> list[int]:
    """All that are at work; returns their exit statuses."""
    stopping = list(shop.workers.values())
    shop.workers.clear()
    for worker in stopping:
        if worker.stdout is not None:
            # Its one line comes when it is ready. Told to stop before, it would end like any process.
            worker.stdout.readline()
    return [status for status, _ in shop.processes.stop(*stopping)]


def give_up(shop: Shop) -> None:
    """The poison order has become a dead letter after its retries."""
    wait_until(lambda: any(shop.client.dead_letters("orders")), f"order {POISON} is a dead letter")
    shop.command("dlq", "list", "orders")
    letters = list(shop.client.dead_letters("orders"))
    places = [(letter.origin_partition, letter.origin_offset) for letter in letters]
    shop.stage.so(
        places == [shop.places[POISON]] and letters[0].deliveries == RETRIES + 1,
        f"order {POISON:,}, and no other, is a dead letter after {RETRIES} retries; its error is kept with it",
        f"the dead letters are {letters}",
    )


def mend(shop: Shop) -> None:
    ended = stop_workers(shop)
    shop.stage.so(
        not any(ended), f"told to stop (SIGTERM), {len(ended)} workers end in good order", f"they ended with {ended}"
    )
    for number in range(MENDED_WORKERS):
        start_worker(shop, f"mended-{number + 1}", "--mended")
    shop.command("dlq", "redrive", "orders", "--yes")
    shop.shipments.wait_for({POISON})
    wait_until(lambda: shop.client.describe_group(GROUP).lag == 0, f"group {GROUP} has nothing left to do")
    shop.shipments.check(set(shop.orders))
    shop.stage.so(
        True, f"sent back to its group, the order is shipped by a mended worker: all {len(shop.orders):,} are"
    )
