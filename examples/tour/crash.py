"""Chapter: kill -9 in the middle of it all."""

from __future__ import annotations

import threading
import time

from examples.tour.shop import GROUP, LATER_ORDERS, ORDERS, Place, Shop, customer_of, make_order
from examples.tour.stage import PATIENCE_S, NotSo, wait_until
from examples.tour.workers import start_worker
from goqueue import GoQueueError, Outgoing, to_json

FIRST = ORDERS + 1
AT_ONCE = 20
BEFORE_THE_CRASH = LATER_ORDERS // 4
AFTER_THE_CRASH = LATER_ORDERS // 4
"""At least so many are left for then, however long it takes until the broker is killed."""
VICTIM = "mended-1"


def show(shop: Shop) -> None:
    running = ", Spark reads what they ship" if shop.spark is not None else ""
    shop.stage.chapter(
        "kill -9",
        f"Orders come in, two workers ship them{running}; then the broker and one of the workers are killed. What was "
        "acknowledged is on the disk. Producers and workers find the broker again by themselves.",
    )
    if shop.spark is not None:
        shop.spark.wait_until_it_reads()
    publisher = Publisher(shop)
    publisher.start()
    wait_until(lambda: len(publisher.stored) >= BEFORE_THE_CRASH, "orders are being published")
    # If they are too quick for that, so be it.
    wait_until(lambda: in_hand(shop) > 0 or publisher.waits, "workers have orders in hand")
    shop.broker.kill()
    shop.processes.kill(shop.workers.pop(VICTIM))
    acknowledged = dict(publisher.stored)
    publisher.go_on()
    shop.stage.so(
        len(acknowledged) <= LATER_ORDERS - AFTER_THE_CRASH,
        f"killed after {len(acknowledged):,} of {LATER_ORDERS:,} orders were acknowledged, while workers shipped them",
        f"{len(acknowledged):,} orders were published before the broker was killed",
    )
    began = time.perf_counter()
    shop.broker.start()
    listening_s = time.perf_counter() - began
    start_worker(shop, VICTIM, "--mended")
    wait_until(lambda: len(publisher.stored) > len(acknowledged), "orders are stored again")
    again_s = time.perf_counter() - began
    shop.stage.say(
        f"the broker is back after [bold]{listening_s:.1f} s[/], the start of Python included, and stores orders again "
        f"after [bold]{again_s:.1f} s[/]"
    )
    publisher.finish()
    check_nothing_is_lost(shop, acknowledged, publisher.stored)


def in_hand(shop: Shop) -> int:
    return sum(member.in_flight for member in shop.client.describe_group(GROUP).members)


class Publisher(threading.Thread):
    """Sends the later orders, a few at a time, until all are acknowledged, through whatever happens.

    The last of them are held back until ``go_on``.
    """

    def __init__(self, shop: Shop) -> None:
        # Whoever gives up on the tour does not wait for it.
        super().__init__(daemon=True)
        self._shop = shop
        self._failed: GoQueueError | None = None
        self._may_end = threading.Event()
        self.waits = False
        """Whether it has come to those."""
        self.stored: dict[int, Place] = {}

    def run(self) -> None:
        numbers = range(FIRST, FIRST + LATER_ORDERS)
        try:
            with self._shop.client.producer(serializer=to_json) as producer:
                for first in range(0, LATER_ORDERS, AT_ONCE):
                    if first >= LATER_ORDERS - AFTER_THE_CRASH and not self._may_end.is_set():
                        self.waits = True
                        self._may_end.wait()
                    some = numbers[first : first + AT_ONCE]
                    messages = [Outgoing(make_order(number), key=customer_of(number)) for number in some]
                    for number, sent in zip(some, producer.send_many("orders", messages), strict=True):
                        self.stored[number] = (sent.partition, sent.offset)
        except GoQueueError as error:
            self._failed = error

    def go_on(self) -> None:
        self._may_end.set()

    def finish(self) -> None:
        self.join(PATIENCE_S)
        if self._failed is not None or self.is_alive():
            raise NotSo(f"publishing did not come to its end: {self._failed}")
        for number, place in self.stored.items():
            self._shop.sent(make_order(number), place)


def check_nothing_is_lost(shop: Shop, acknowledged: dict[int, Place], stored: dict[int, Place]) -> None:
    shop.check_log()
    shop.stage.so(
        len(stored) == LATER_ORDERS and acknowledged.items() <= shop.places.items(),
        f"all {len(acknowledged):,} orders acknowledged before the crash are at their places, and all "
        f"{len(stored):,} are there once",
    )
    shop.shipments.wait_for(set(shop.orders))
    wait_until(lambda: shop.client.describe_group(GROUP).lag == 0, f"group {GROUP} has nothing left to do")
    told = shop.command("group", "lag", GROUP)
    shop.shipments.check(set(shop.orders))
    shop.stage.so(
        told.split()[-4:] == ["all", "0", "0", "0"],
        f"all {len(shop.orders):,} orders of the day are shipped, each once: none that was acked came back",
        f"group {GROUP} should have nothing left to do",
    )
