"""A broker that was used for everything, so that its data folder holds every kind of file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from goqueue.testing import BrokerProcess

SETTINGS: dict[str, object] = {
    "storage.checkpoint_interval_ms": 100,
    "storage.cleanup_interval_ms": 100,
    "storage.compaction_min_dirty_ratio": 0.01,
    "storage.min_free_bytes": 0,
}
"""Upkeep that is always at work."""
BIG = "x" * 400
LANES = ["low", "normal", "high", "critical"]


def answered(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json()


def use_everything(broker: BrokerProcess) -> None:
    """Topics with lanes, delays, transactions, compaction and retention; a deleted one; groups; schemas."""
    with httpx.Client(base_url=broker.url, timeout=30) as client:
        _topics(client)
        _messages(client)
        _transactions(client)
        _delays(client)
        _groups(client)
        _schemas(client)
    with broker.client() as library, library.producer() as producer:
        for number in range(600):
            producer.send("orders", f"{number} {BIG}", key=f"k{number % 7}")


def _topics(client: httpx.Client) -> None:
    small = {"segment_bytes": 65_536}
    for name, settings in {
        "orders": {"partitions": 2, **small},
        "profiles": {"partitions": 1, "cleanup": "compact", "tombstone_retention_ms": 0, **small},
        "clicks": {"partitions": 1, "retention_bytes": 1 << 20, **small},
        "gone": {"partitions": 1},
        "empty": {"partitions": 3},
    }.items():
        answered(client.post("/topics", json={"name": name, "settings": settings}))


def _publish(client: httpx.Client, topic: str, messages: list[dict[str, Any]]) -> None:
    answered(client.post(f"/topics/{topic}/messages", json={"messages": messages}))


def _messages(client: httpx.Client) -> None:
    for turn in range(6):
        numbers = range(turn * 100, turn * 100 + 100)
        _publish(
            client,
            "orders",
            [
                {"key": f"k{n % 9}", "value": f"{n} {BIG}", "priority": LANES[n % 4], "headers": {"shop": "north"}}
                for n in numbers
            ],
        )
        profiles = [{"key": f"p{n % 5}", "value": f"{n} {BIG}" if n % 11 else None} for n in numbers]
        _publish(client, "profiles", profiles)
        _publish(client, "clicks", [{"value": f"{n} " + BIG * 8} for n in numbers])
    _publish(client, "clicks", [{"value": "late", "delay": "10d"}])
    for _ in range(4):
        _publish(client, "clicks", [{"value": BIG * 8} for _ in range(100)])
    _publish(client, "gone", [{"value": "v"}])
    client.delete("/topics/gone").raise_for_status()


def _transactions(client: httpx.Client) -> None:
    body = answered(client.post("/producers/init", json={"transactional_id": "app"}))
    mine = {"producer_id": body["producer_id"], "epoch": body["epoch"]}
    for end in ("commit", "abort", "commit", "abort", None):
        answered(client.post("/transactions/begin", json=mine))
        for number in range(5):
            for topic, more in (("orders", {"partition": number % 2}), ("profiles", {"key": f"p{number}"})):
                what = {**mine, "topic": topic, "value": f"{end} {number} {BIG}", **more}
                answered(client.post("/transactions/publish", json=what))
        delayed = {**mine, "topic": "orders", "partition": 0, "value": "in a while", "delay": "1h"}
        answered(client.post("/transactions/publish", json=delayed))
        if end is not None:
            answered(client.post(f"/transactions/{end}", json=mine))


def _delays(client: httpx.Client) -> None:
    _publish(client, "orders", [{"key": "d", "value": f"soon {n}", "delay": "50ms"} for n in range(20)])
    _publish(client, "orders", [{"key": "d", "value": f"later {n}", "delay": "2h"} for n in range(20)])
    _publish(client, "profiles", [{"key": "p1", "value": "later", "delay": "2h"}])


def _groups(client: httpx.Client) -> None:
    join = {"client_id": "desk", "topics": ["orders"], "kind": "shared"}
    member = answered(client.post("/groups/billing/join", json=join))["member_id"]
    for turn in range(6):
        poll = {"member_id": member, "max_messages": 20, "timeout": "1s"}
        messages = answered(client.get("/groups/billing/poll", params=poll))["messages"]
        receipts = [each["receipt_handle"] for each in messages]
        for at, verb in enumerate(("ack", "nack", "reject")):
            for receipt in receipts[at + turn :: 5]:
                client.post(f"/messages/{verb}", json={"receipt_handle": receipt}).raise_for_status()


def _schemas(client: httpx.Client) -> None:
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    client.post("/subjects/orders-value/versions", json={"schema": schema}).raise_for_status()


def files_of(root: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file of a folder: when it was changed, and what it holds."""
    found = sorted(each for each in root.rglob("*") if each.is_file())
    return {each.relative_to(root): (each.stat().st_mtime_ns, each.read_bytes()) for each in found}
