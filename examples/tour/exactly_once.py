"""Chapter: payments in transactions, one of which is aborted."""

from __future__ import annotations

from collections import Counter

from examples.tour.shop import Shop
from examples.tour.stage import received
from goqueue import from_json, to_json

PAYMENTS = {"ada": 40, "bob": 25, "eve": 60}
REFUSED = "eve"


class CardRefused(Exception):
    """By the bank, at the first try."""


def show(shop: Shop) -> None:
    shop.stage.chapter(
        "Exactly once",
        "Billing takes a payment, books a debit and a credit, writes a receipt and acks the payment, in one "
        "transaction: readers see all of it or nothing. (Elsewhere: Kafka's transactions, which know no acks of a "
        "queue.)",
    )
    aborted = book(shop)
    check_ledger(shop, aborted)


def book(shop: Shop) -> int:
    """Returns how many transactions were aborted."""
    for topic in ("payments", "ledger", "receipts"):
        shop.client.create_topic(topic, partitions=1, retry_backoff_ms="50ms")
    with shop.client.producer(serializer=to_json) as producer:
        producer.send_many("payments", [{"from": who, "euros": euros} for who, euros in PAYMENTS.items()])
    booked = aborted = 0
    with (
        shop.client.consumer("billing", "payments", kind="shared", deserializer=from_json) as consumer,
        shop.client.producer(transactional_id="billing-1", serializer=to_json) as producer,
    ):
        while booked < len(PAYMENTS):
            payment = received(consumer, "a payment")
            who, euros = payment.value["from"], payment.value["euros"]
            try:
                with producer.transaction() as tx:
                    tx.ack(payment)
                    entries = [{"account": who, "euros": -euros}, {"account": "shop", "euros": euros}]
                    tx.send_many("ledger", entries)
                    tx.send("receipts", {"to": who, "euros": euros})
                    if who == REFUSED and payment.deliveries == 1:
                        raise CardRefused
            except CardRefused:
                aborted += 1
            else:
                booked += 1
    return aborted


def check_ledger(shop: Shop, aborted: int) -> None:
    entries = list(shop.client.read("ledger", deserializer=from_json))
    written = sum(1 for _ in shop.client.read("ledger", isolation="read_uncommitted"))
    receipts = {each.value["to"]: each.value["euros"] for each in shop.client.read("receipts", deserializer=from_json)}
    balances: Counter[str] = Counter()
    for entry in entries:
        balances[entry.value["account"]] += entry.value["euros"]
    shop.stage.say("balances: " + ", ".join(f"{account} {euros:+d} €" for account, euros in balances.items()))
    expected = {who: -euros for who, euros in PAYMENTS.items()} | {"shop": sum(PAYMENTS.values())}
    shop.stage.so(
        balances == expected and receipts == PAYMENTS,
        f"{len(PAYMENTS)} payments are booked once each, with a receipt; together that is {balances.total()}",
        f"the balances are {dict(balances)} instead of {expected}; the receipts are {receipts}",
    )
    shop.stage.so(
        aborted == 1 and len(entries) == 2 * len(PAYMENTS) and written == len(entries) + 2,
        f"{REFUSED}'s first try was aborted: no reader sees its {written - len(entries)} entries in the log",
        f"{aborted} transactions were aborted; {written} entries are in the log, and readers see {len(entries)}",
    )
