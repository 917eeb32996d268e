"""One worker of the shop, a process of its own: takes orders from the group and ships them, until SIGTERM.

A shipment is published and its order acked in one transaction, so that an order is shipped once whatever is killed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from examples.tour.shop import GROUP
from goqueue import Client, GoQueueError, ReceivedMessage, from_json, to_json

AT_ONCE = 200
PATIENT_RETRIES = 20
LOOK_EVERY_S = 0.05


def shipment(order: dict[str, Any], worker: str, mended: bool) -> dict[str, Any]:
    """With the bug that the poison order finds, unless it is mended: nobody had thought of an order without items."""
    price = order["cents"] / (max(1, order["items"]) if mended else order["items"])
    return {name: order[name] for name in ("order", "city", "cents", "at")} | {"worker": worker, "price": price}


def work(address: str, name: str, mended: bool, workers: int) -> None:
    # What is killed must not use up an order's tries: a mended worker sets this for its group.
    settings: dict[str, Any] = {"max_retries": PATIENT_RETRIES} if mended else {}
    with (
        Client(address, max_backoff_ms=200) as client,
        client.producer(transactional_id=name, serializer=to_json) as producer,
        client.consumer(
            GROUP,
            "orders",
            kind="shared",
            client_id=name,
            max_in_flight=2 * AT_ONCE,
            deserializer=from_json,
            **settings,
        ) as consumer,
    ):
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop_taking())
        # From now on it can be told to stop.
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while len(client.describe_group(GROUP).members) < workers:
            time.sleep(LOOK_EVERY_S)
        with suppress(GoQueueError), producer.transaction():
            # The first one takes back what a killed worker of this name has left half done.
            pass
        for orders in consumer.batches(AT_ONCE):
            shipments: list[tuple[ReceivedMessage, dict[str, Any]]] = []
            for order in orders:
                try:
                    shipments.append((order, shipment(order.value, name, mended)))
                except ArithmeticError as error:
                    order.nack(reason=str(error))
            try:
                with producer.transaction() as tx:
                    tx.ack([order for order, _ in shipments])
                    tx.send_many("shipments", [each for _, each in shipments])
            except GoQueueError:
                # All of it has happened, or nothing: then the orders come again, to this worker or to another.
                for order, _ in shipments:
                    if not order.settled:
                        order.nack(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("name")
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--workers", type=int, default=1, help="begin when the group has so many")
    given = parser.parse_args()
    work(given.address, given.name, given.mended, given.workers)
