"""A worker service: packs orders, eight at a time, until SIGTERM. Start several, and they share the work."""

import os

from goqueue import Client, ReceivedMessage, Reject, from_json


def pack(message: ReceivedMessage) -> None:
    if "item" not in message.value:
        raise Reject("an order needs an item")  # to the dead letters; after any other exception it comes again
    print(f"packed {message.value['item']}\n", end="", flush=True)  # one write, for eight threads print


with Client(os.environ.get("GOQUEUE_ADDRESS", "localhost:9090")) as client:
    client.worker(pack, group="packers", topics="orders", concurrency=8, deserializer=from_json)
