"""Chapter: topics, a schema, and a day's orders."""

from __future__ import annotations

import time

from examples.tour.shop import ORDER_SCHEMA, ORDERS, PARTITIONS, Shop, customer_of, make_order
from goqueue import GoQueueError, Outgoing, to_json

RETRY_BACKOFF = "100ms"
RETRIES = 2


def show(shop: Shop) -> None:
    shop.stage.chapter(
        "A shop opens",
        "Orders are messages with keys in a topic, which is a log: whoever wants to reads them, as often as they want. "
        "The broker knows their schema and refuses what does not fit, so no consumer ever sees it. "
        "(Elsewhere: Kafka, and a schema registry beside it.)",
    )
    open_topics(shop)
    refuse(shop)
    publish(shop)


def open_topics(shop: Shop) -> None:
    shop.client.schemas.register("orders-value", ORDER_SCHEMA, "JSON")
    shop.command(
        *("topic", "create", "orders", "--partitions", str(PARTITIONS)),
        *("--set", "schema_validation=on", "--set", "schema_framing=plain"),
        *("--set", f"max_retries={RETRIES}", "--set", f"retry_backoff_ms={RETRY_BACKOFF}"),
        # Short, so that what a killed worker had in hand is soon another's.
        *("--set", "visibility_timeout_ms=3s"),
    )
    shop.client.create_topic("shipments", partitions=PARTITIONS)


def refuse(shop: Shop) -> None:
    order = make_order(0) | {"items": "two"}
    try:
        with shop.client.producer(serializer=to_json) as producer:
            producer.send_many("orders", [order])
    except GoQueueError as error:
        refused = error
    else:
        refused = GoQueueError("it was taken")
    shop.stage.so(refused.code == "schema_violation", f"an order for 'two' items is refused: {refused}")


def publish(shop: Shop) -> None:
    orders = [make_order(number) for number in range(ORDERS)]
    began = time.perf_counter()
    with shop.client.producer(serializer=to_json) as producer:
        stored = producer.send_many("orders", [Outgoing(order, key=customer_of(order["order"])) for order in orders])
    seconds = time.perf_counter() - began
    for order, sent in zip(orders, stored, strict=True):
        shop.sent(order, (sent.partition, sent.offset))
    shop.stage.say(
        f"{ORDERS:,} orders published in {seconds:.2f} s: [bold]{ORDERS / seconds:,.0f} a second[/], "
        "each checked against the schema and on the disk before it was acknowledged"
    )
    shop.check_log()
    shop.stage.so(True, f"read back: {len(shop.places):,} orders, each as it was sent, where the broker said it is")
