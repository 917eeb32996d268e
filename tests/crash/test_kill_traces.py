"""A broker that is killed under load: what became of every message is still told.

``GOQUEUE_KILLS`` says how often (2 unless told otherwise), ``GOQUEUE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from behaviour.http_member import Member, answered, settle
from behaviour.process import broker_process
from behaviour.waiting import until

from goqueue.wire.trace_context import derived_trace_id

KILLS = int(os.environ.get("GOQUEUE_KILLS", "2"))
ENOUGH = 200
LOOKED_AT = 30


class Load:
    """Publishes, and settles half of what it gets; knows what it was told, and what it may not have been told."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.published: set[int] = set()
        self.settled: dict[int, str] = {}
        self.in_doubt: set[int] = set()
        self._number = 0

    def publish(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            while True:
                self._number += 1
                body = {"messages": [{"value": f"{self._number}-{each}"} for each in range(5)]}
                try:
                    results = answered(client.post("/topics/t/messages", json=body))["results"]
                except httpx.HTTPError:
                    return
                with self.changed:
                    self.published |= {each["offset"] for each in results}
                    self.changed.notify_all()

    def consume(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            try:
                # Under its name it is given the partition at once, not when the session of the one before is over.
                member = Member(client, "g", "t", instance_id="the-one")
                while True:
                    self._some(client, member.poll(max_messages=20))
            except httpx.HTTPError:
                return

    def _some(self, client: httpx.Client, messages: list[dict[str, Any]]) -> None:
        for verb, mine in (("ack", messages[::3]), ("reject", messages[1:2])):
            offsets = {each["offset"] for each in mine}
            if not offsets:
                continue
            with self.changed:
                self.in_doubt |= offsets
            answered(settle(client, verb, [each["receipt_handle"] for each in mine]))
            with self.changed:
                self.in_doubt -= offsets
                self.settled |= dict.fromkeys(offsets, verb)
                self.changed.notify_all()


def looked_up(client: httpx.Client, offset: int) -> dict[str, Any]:
    return dict(answered(client.get(f"/traces/{derived_trace_id('t', 0, offset)}")))


def check(client: httpx.Client, load: Load, rng: Random) -> None:
    for offset in rng.sample(sorted(load.published), LOOKED_AT):
        story = looked_up(client, offset)
        assert (story["offset"], story["events"][0]["event_type"]) == (offset, "publish")
        times = [each["timestamp"] for each in story["events"]]
        assert times == sorted(times)
        kinds = [each["event_type"] for each in story["events"]]
        assert kinds.count("publish") == 1
        if offset not in load.settled and offset not in load.in_doubt:
            assert story["status"] == "pending", story
    for offset in rng.sample(sorted(load.settled), LOOKED_AT):
        story = looked_up(client, offset)
        if load.settled[offset] == "ack":
            assert story["status"] == "completed", story
        else:
            assert story["groups"][0]["state"] in {"moving", "dead-lettered", "settled"}, story
            assert story["status"] == ("pending" if story["groups"][0]["state"] == "moving" else "error"), story
    page = answered(client.get("/traces/search", params={"topic": "t", "limit": 1_000}))
    # What was noted in the last moment before the kill is gone; whoever looks it up is told all the same.
    assert page["count"] > LOOKED_AT
    assert len({each["offset"] for each in page["traces"]}) == page["count"]


def lines_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.iterdir()) if folder.exists() else 0


def check_files(folder: Path) -> None:
    """Of each file, at most the last line is not whole."""
    lines = 0
    for path in folder.iterdir():
        *whole, last = path.read_bytes().split(b"\n")
        assert all(json.loads(line)["place"].startswith("t") for line in whole)
        assert len(last) < 10_000
        lines += len(whole)
    assert lines > 50


@pytest.mark.timeout(200 + 60 * KILLS)
def test_what_became_of_messages_is_told_after_kills(tmp_path: Path) -> None:
    seed = os.environ.get("GOQUEUE_SEED") or str(time.time_ns())
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    rng, load = Random(seed), Load()
    for number in range(KILLS + 1):
        with broker_process(tmp_path / "data") as broker:
            with httpx.Client(base_url=broker.url, timeout=30, trust_env=False) as client:
                if number:
                    check(client, load, rng)
                else:
                    body = {"name": "t", "num_partitions": 1, "settings": {"fsync": "always"}}
                    assert client.post("/topics", json=body).status_code == 201
            if number < KILLS:
                threads = [threading.Thread(target=each, args=(broker.url,)) for each in (load.publish, load.consume)]
                enough = len(load.published) + 5 * ENOUGH, len(load.settled) + ENOUGH
                for thread in threads:
                    thread.start()
                with load.changed:
                    busy = load.changed.wait_for(
                        lambda: len(load.published) >= enough[0] and len(load.settled) >= enough[1],  # noqa: B023
                        120,
                    )
                # They are written a moment after what they tell of.
                until(lambda: lines_in(tmp_path / "data" / "traces") > number * ENOUGH + ENOUGH, 60)  # noqa: B023
                broker.kill()
                for thread in threads:
                    thread.join()
                assert busy
    check_files(tmp_path / "data" / "traces")
