"""Makes a data folder with a given version of GoQueue, to be opened by every later one.

How the archives beside this file were made, from the root of a checkout of that version::

    PYTHONPATH=src python …/make.py format-2.tar.gz --set storage.checkpoint_interval_ms=100 --set trace.sampling=0

What follows the archive's name goes to ``goqueue serve``: a broker that writes checkpoints often takes snapshots soon.
This speaks HTTP only, and leaves out what that version does not have. The broker is killed at the end, so that there
is something to replay. ``told.json`` holds what it answered.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TOLD = "told.json"
SNAPSHOT_EVENTS = 1_010
FOR_EVER = {"retention_ms": None}
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]})


class Broker:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, method: str, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if method in {"POST", "PATCH"} else None
        request = Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def has(self, path: str) -> bool:
        try:
            self("GET", path)
        except HTTPError as error:
            return error.code != 404
        return True


@contextmanager
def running(folder: Path, end_by: signal.Signals) -> Iterator[Broker]:
    command = [sys.executable, "-m", "goqueue", "serve", "--data", str(folder), "--port", "0", "--grpc-port", "0"]
    command += sys.argv[2:]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    stderr = process.stderr
    assert stderr is not None
    ports = (re.search(r"listening .*\bport=(\d+)", line) for line in stderr)
    port = next(found[1] for found in ports if found)
    try:
        yield Broker(f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(end_by)
        process.communicate(timeout=60)


def publish(broker: Broker, topic: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """What was acknowledged: each message with its place."""
    answer = broker("POST", f"/topics/{topic}/messages", messages=list(messages))
    return [
        {**message, "partition": result["partition"], "offset": result["offset"]}
        for message, result in zip(messages, answer["results"], strict=True)
    ]


def make_log(broker: Broker) -> dict[str, Any]:
    told: dict[str, Any] = {"made_at_s": time.time(), "messages": {}}
    broker("POST", "/topics", name="orders", num_partitions=2, settings=FOR_EVER)
    broker("POST", "/topics", name="profiles", num_partitions=1, settings={"cleanup": "compact"})
    broker("POST", "/topics", name="gone", num_partitions=1)
    broker("DELETE", "/topics/gone")
    told["messages"]["orders"] = [
        *publish(broker, "orders", *({"key": f"k{number}", "value": f"order {number}"} for number in range(20))),
        *publish(broker, "orders", {"value": "with a header", "partition": 0, "headers": {"shop": "north"}}),
    ]
    told["messages"]["profiles"] = publish(broker, "profiles", {"key": "a", "value": "1"}, {"key": "b", "value": "2"})
    return told


def make_later(broker: Broker, told: dict[str, Any]) -> None:
    """What came after the first format: groups, delays, schemas, transactions."""
    broker("POST", "/topics", name="jobs", num_partitions=1, settings=FOR_EVER)
    publish(broker, "jobs", *({"value": f"job {number}"} for number in range(6)))
    member = broker("POST", "/groups/workers/join", client_id="w", topics=["jobs"], session_timeout="30m")["member_id"]
    polled = broker("GET", f"/groups/workers/poll?member_id={member}&max_messages=5&timeout=0s")["messages"]
    acked, nacked, rejected, held, _ = (each["receipt_handle"] for each in polled)
    broker("POST", "/messages/ack", receipt_handle=acked)
    broker("POST", "/messages/nack", receipt_handle=nacked, delay="1s")
    broker("POST", "/messages/reject", receipt_handle=rejected, reason="no such card")
    told["member"], told["held_receipt"], told["acked_receipt"] = member, held, acked
    [told["delayed"]] = publish(
        broker, "orders", {"value": "much later", "partition": 1, "deliverAt": "2200-01-01T00:00:00Z"}
    )
    told["schema_id"] = broker("POST", "/subjects/orders-value/versions", schema=SCHEMA)["id"]
    broker("POST", "/topics", name="payments", num_partitions=1, settings=FOR_EVER)
    producer = broker("POST", "/producers/init")
    identity = told["producer"] = {name: producer[name] for name in ("producer_id", "epoch")}
    for value, end in (("committed", "commit"), ("aborted", "abort")):
        broker("POST", "/transactions/begin", **identity)
        broker("POST", "/transactions/publish", **identity, topic="payments", partition=0, value=value)
        broker("POST", f"/transactions/{end}", **identity)
    other = told["preparer"] = {
        name: value for name, value in broker("POST", "/producers/init").items() if name in ("producer_id", "epoch")
    }
    begun = broker("POST", "/transactions/begin", **other)
    broker("POST", "/transactions/publish", **other, topic="payments", partition=0, value="prepared")
    told["prepared"] = begun["transaction_id"]
    broker("POST", "/transactions/prepare", **other)
    make_named(broker, told)


def make_named(broker: Broker, told: dict[str, Any]) -> None:
    """Transactions of producers with names: one of them committed under a key, the other prepared. From format 4 on."""
    broker("POST", "/topics", name="invoices", num_partitions=1, settings=FOR_EVER)
    prepared = []
    for name in ("first", "second"):
        made = broker("POST", "/producers/init", transactional_id=name)
        told[name] = identity = {each: made[each] for each in ("producer_id", "epoch")}
        prepared.append(broker("POST", "/transactions/begin", **identity)["transaction_id"])
        broker("POST", "/transactions/publish", **identity, topic="invoices", partition=0, value=f"of {name}")
        broker("POST", "/transactions/prepare", **identity)
    told["committed"], told["named"] = prepared
    told["key"] = "job#1"
    broker("POST", "/transactions/commit-many", key=told["key"], transactions=[told["committed"]])


def make_snapshot_due(broker: Broker, snapshots: Path) -> None:
    """More than a thousand events in the journal of topics."""
    broker("POST", "/topics", name="busy", num_partitions=1)
    for number in range(SNAPSHOT_EVENTS):
        broker("PATCH", "/topics/busy", settings={"retention_ms": 1_000_000 + number})
    while not list(snapshots.iterdir()):
        time.sleep(0.1)


def main(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        with running(folder, signal.SIGTERM) as broker:
            told = make_log(broker)
            if later := broker.has("/transactions"):
                make_snapshot_due(broker, folder / "snapshots")
                make_later(broker, told)
        with running(folder, signal.SIGKILL) as broker:
            # This has to be replayed.
            told["messages"]["orders"] += publish(broker, "orders", {"value": "before the kill", "partition": 0})
            broker("POST", "/topics", name="last", num_partitions=1, settings=FOR_EVER)
            told["messages"]["last"] = publish(broker, "last", {"value": "only one"})
            if later:
                broker("POST", "/messages/ack", receipt_handle=told["held_receipt"])
        (Path(name) / TOLD).write_text(json.dumps(told, indent=1))
        with tarfile.open(archive, "w:gz") as tar:
            for part in (folder, Path(name) / TOLD):
                tar.add(part, part.name, filter=_anonymous)
    sys.stdout.write(f"{archive}: {archive.stat().st_size} bytes\n")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
