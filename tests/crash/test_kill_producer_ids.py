"""Ids of producers over kills: none is given twice, and each that was told stays good.

``GOQUEUE_KILLS`` says how often (3 unless told otherwise), ``GOQUEUE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from random import Random

import httpx

from goqueue.testing import BrokerProcess

KILLS = int(os.environ.get("GOQUEUE_KILLS", "3"))
ASKERS = 3
PATIENCE_S = 120.0
SETTINGS: dict[str, object] = {"storage.checkpoint_interval_ms": "100ms", "storage.min_free_bytes": "0"}


class Asker(threading.Thread):
    """Asks for one id after the other until the broker is gone."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.told: list[int] = []
        self._url = url
        self.start()

    def run(self) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=PATIENCE_S, trust_env=False) as client:
                while True:
                    self.told.append(client.post("/producers/init", json={}).json()["producer_id"])
        except httpx.TransportError:
            return


def test_no_id_is_given_twice_and_each_that_was_told_stays_good_over_kills(tmp_path: Path) -> None:
    seed = os.environ.get("GOQUEUE_SEED") or str(time.time_ns())
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    rng = Random(seed)
    told: list[int] = []
    for _ in range(KILLS):
        broker = BrokerProcess(tmp_path, settings=SETTINGS)
        try:
            askers = [Asker(broker.url) for _ in range(ASKERS)]
            # Over the end of a block of reserved numbers, now and then.
            goal, deadline = rng.randrange(1, 700), time.monotonic() + PATIENCE_S
            while sum(len(each.told) for each in askers) < goal:
                assert time.monotonic() < deadline
                time.sleep(0.001)
        finally:
            broker.kill()
        for each in askers:
            each.join(PATIENCE_S)
            assert not each.is_alive()
            told += each.told
    assert len(set(told)) == len(told)
    broker = BrokerProcess(tmp_path, settings=SETTINGS)
    try:
        with httpx.Client(base_url=broker.url, timeout=PATIENCE_S, trust_env=False) as client:
            for producer_id in rng.sample(told, min(200, len(told))):
                answer = client.post(f"/producers/{producer_id}/heartbeat", json={"epoch": 0})
                assert answer.status_code == 200, answer.text
            made_up = max(told) + 1
            answer = client.post(f"/producers/{made_up}/heartbeat", json={"epoch": 0})
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown_producer"), made_up
            assert client.post("/producers/init", json={}).json()["producer_id"] not in told
        assert broker.stop() == 0
    finally:
        broker.kill()
