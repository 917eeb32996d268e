"""A registry whose broker is killed, again and again: every id that it gave stands for its schema.

``GOQUEUE_KILLS`` says how often (3 unless told otherwise), ``GOQUEUE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from random import Random

import httpx
import pytest
from behaviour.process import BrokerProcess

KILLS = int(os.environ.get("GOQUEUE_KILLS", "3"))
PATIENCE_S = 60.0
WRITERS = 3


@pytest.fixture
def rng() -> Random:
    seed = os.environ.get("GOQUEUE_SEED") or str(time.time_ns())
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    return Random(seed)


class Ledger:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.ids: dict[int, str] = {}
        """Texts by the ids that were told for them."""
        self.versions: dict[tuple[str, int], int] = {}
        self.problems: list[str] = []

    def told(self, subject: str, text: str, answer: dict[str, int]) -> None:
        with self.changed:
            if self.ids.setdefault(answer["id"], text) != text:
                self.problems.append(f"id {answer['id']} stands for {text} and for {self.ids[answer['id']]}")
            if self.versions.setdefault((subject, answer["version"]), answer["id"]) != answer["id"]:
                self.problems.append(f"version {answer['version']} of {subject} changed")
            self.changed.notify_all()

    def wait_for(self, more: int) -> None:
        with self.changed:
            goal = len(self.versions) + more
            assert self.changed.wait_for(lambda: self.problems or len(self.versions) >= goal, PATIENCE_S)


def write(url: str, name: str, ledger: Ledger, stop: threading.Event) -> None:
    """Registers one schema after the other, under a subject of its own and under one that all share."""
    serial = 0
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        while not stop.is_set():
            serial += 1
            text = f'{{"type":"enum","name":"E","doc":"{name} {serial}","symbols":[]}}'
            for subject in (name, "shared"):
                try:
                    answer = client.post(f"/subjects/{subject}/versions", json={"schema": text})
                except httpx.HTTPError:
                    # Down; whether it was registered is not known.
                    stop.wait(0.01)
                    continue
                if answer.status_code == 200:
                    ledger.told(subject, text, answer.json())
                elif answer.status_code != 503:
                    ledger.problems.append(answer.text)
                    return


@pytest.mark.timeout(200 + 60 * KILLS)
def test_every_id_stands_for_its_schema_through_kills(tmp_path: Path, rng: Random) -> None:
    ledger, stop = Ledger(), threading.Event()
    options = ("storage.checkpoint_interval_ms=100ms", "storage.min_free_bytes=0", "schemas.max_versions=100000")
    settings = [part for each in options for part in ("--set", each)]
    broker = BrokerProcess(tmp_path, *settings)
    writers = [
        threading.Thread(target=write, args=(broker.url, f"writer-{number}", ledger, stop)) for number in range(WRITERS)
    ]
    try:
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            ledger.wait_for(rng.randint(1, 100))
            broker.kill()
            broker = BrokerProcess(tmp_path, *settings, port=broker.port)
        ledger.wait_for(10)
        stop.set()
        for writer in writers:
            writer.join(PATIENCE_S)
        assert not ledger.problems, ledger.problems[:3]
        with httpx.Client(base_url=broker.url, timeout=30, trust_env=False) as client:
            listed = client.get("/schemas?limit=-1").json()
            offset = 1_000
            while more := client.get(f"/schemas?offset={offset}").json() if len(listed) == offset else []:
                listed += more
                offset += 1_000
        found = {(each["subject"], each["version"]): each["id"] for each in listed}
        texts = {each["id"]: each["schema"] for each in listed}
        assert {place: found.get(place) for place in ledger.versions} == ledger.versions
        assert {schema_id: texts.get(schema_id) for schema_id in ledger.ids} == ledger.ids
        assert broker.stop() == 0
    finally:
        stop.set()
        if broker.process.poll() is None:
            broker.kill()
