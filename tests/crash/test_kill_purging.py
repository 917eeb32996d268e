"""A topic that is purged while others publish to it, and whose broker is killed right after the answer: nothing that
was removed comes back, nothing that came later is missing, and a dedup id of what was removed is a duplicate still.

``GOQUEUE_KILLS`` says how often (3 unless told otherwise).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from goqueue.testing import BrokerProcess

KILLS = int(os.environ.get("GOQUEUE_KILLS", "3"))
PATIENCE_S = 60


def publish(client: httpx.Client, count: int) -> list[int]:
    messages = [{"value": f"{number}", "partition": 0} for number in range(count)]
    answer = client.post("/topics/t/messages", json={"messages": messages})
    answer.raise_for_status()
    return [each["offset"] for each in answer.json()["results"]]


def publish_once(client: httpx.Client) -> tuple[int, bool]:
    """Where it is, and whether it was before."""
    message = {"value": "once", "partition": 0, "dedup_id": "d3"}
    (result,) = client.post("/topics/t/messages", json={"messages": [message]}).json()["results"]
    return result["offset"], result.get("duplicate", False)


def read(client: httpx.Client) -> list[int]:
    """Offsets of all that is there."""
    found: list[int] = []
    at = 0
    while True:
        page = client.get("/topics/t/partitions/0/messages", params={"offset": at, "limit": 1_000}).json()
        found += [each["offset"] for each in page["messages"]]
        if not page["messages"]:
            return found
        at = page["next_offset"]


@pytest.mark.timeout(200 + 60 * KILLS)
def test_nothing_that_was_purged_comes_back_after_a_kill(tmp_path: Path) -> None:
    # Nobody else is to write a recovery point.
    options: dict[str, Any] = {"storage.checkpoint_interval_ms": "1h", "storage.min_free_bytes": 0}
    stored: set[int] = set()
    earliest = 0
    for life in range(KILLS + 1):
        broker = BrokerProcess(tmp_path / "data", settings=options)
        try:
            with httpx.Client(base_url=broker.url, timeout=PATIENCE_S, trust_env=False) as client:
                if life == 0:
                    settings = {"partitions": 1, "segment_bytes": "64KiB", "dedup_window_ms": "1d"}
                    client.post("/topics", json={"name": "t", "settings": settings}).raise_for_status()
                    assert publish_once(client) == (0, False)
                    stored.add(0)
                found = read(client)
                assert min(found, default=earliest) >= earliest
                assert sorted(stored) == found
                assert publish_once(client) == (0, True)
                stored |= set(publish(client, 500))
                with ThreadPoolExecutor(1) as beside:
                    meanwhile = beside.submit(publish, client, 500)
                    answer = client.post("/admin/topics/t/purge", json={}).json()
                    (purged,) = answer["partitions"]
                    stored |= set(meanwhile.result())
                earliest = purged["earliest"]
                assert earliest >= 500
                stored = {offset for offset in stored if offset >= earliest}
        finally:
            broker.kill()
